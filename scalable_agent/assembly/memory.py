"""Compares what a run's buffers will hold with the machine's memory."""

import collections
import fractions
import math
import sys

from absl import logging
import numpy as np
import tree

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent.process import machine_memory

# Of the memory; the rest is for weights, environments and everything else.
_SHARE_OF_BUFFERS = fractions.Fraction(8, 10)
_UNITS = ('bytes', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB')

Buffer = collections.namedtuple('Buffer', 'flag per_unit least')
Buffer.__doc__ = """Where a process keeps unrolls.

  flag: The name of the setting that decides how many.
  per_unit: How many for each unit of that setting, a number.
  least: The least value of the setting that can work.
"""


def unroll_bytes(config, agent, facts):
  """Returns how much memory an `ActorOutput` takes, in bytes.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    facts: Has `num_actions` and `observation_spec`, as an
      `environments.Pool`.
  """
  entry = (
      environments.StepOutput(
          reward=np.zeros([1], np.float32),
          info=environments.StepOutputInfo(
              np.zeros([1], np.float32), np.zeros([1], np.int32)),
          done=np.zeros([1], bool),
          observation=tuple(np.zeros((1, *spec.shape), spec.dtype)
                            for spec in facts.observation_spec)),
      actor.initial_output(1, facts.num_actions))
  entries, states = tree.flatten(entry), tree.flatten(agent.initial_state(1))
  return ((config.unroll_length + 1) * sum(a.nbytes for a in entries) +
          sum(a.nbytes for a in states) +
          # Of small arrays, most is what Python keeps of each.
          len(entries + states) * sys.getsizeof(np.empty([0])))


def buffers(config):
  """Returns where this process will keep unrolls, a list of `Buffer`s.

  A learner that acts for actor jobs has further ones for each of them, whose
  number it does not know.

  Args:
    config: A `config.Config` of a process that trains, or acts for one.
  """
  if config.is_actor_job:
    # Those being filled, and as many that wait to be sent.
    has_policy = config.inference == 'actor'
    return [Buffer('envs_per_actor', 2, 1)] if has_policy else []
  found = []
  if config.num_replayed_unrolls:
    found.append(Buffer('replay_capacity', 1, 1))
  found += [
      # One batch is trained on, and one is staged.
      Buffer('batch_size', fractions.Fraction(2, config.num_learners), 1),
      Buffer('queue_capacity', 1, config.num_new_unrolls)]
  if config.task < 0:
    found.append(Buffer('num_actors', 1, 1))
  return found


def check(config, agent, facts):
  """Refuses buffers that cannot fit into memory; warns if little else could.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    facts: As for `unroll_bytes`.

  Raises:
    config_lib.ConfigError: They need more than there is.
  """
  found = buffers(config)
  total_bytes = machine_memory.total_bytes()
  if not found or total_bytes is None:
    return
  each = unroll_bytes(config, agent, facts)
  unrolls = {buffer: getattr(config, buffer.flag) * buffer.per_unit
             for buffer in found}
  needed = each * sum(unrolls.values())
  if needed <= _SHARE_OF_BUFFERS * total_bytes:
    return
  num_fitting = math.floor(_SHARE_OF_BUFFERS * total_bytes / each)
  largest = max(found, key=unrolls.get)
  # Where there is no room for one unroll each, no number of them will do.
  flag = largest.flag if num_fitting >= len(found) else 'unroll_length'
  value = getattr(config, flag)
  text = (
      f'its unrolls of {_size(each)} (--unroll_length={config.unroll_length}) '
      f'take {_size(each * unrolls[largest])}, those of all buffers '
      f'{_size(needed)}, and this machine or container has '
      f'{_size(total_bytes)} of memory. ' +
      _advice(config, found, largest, unrolls, num_fitting))
  if needed > total_bytes:
    raise config_lib.ConfigError(f'--{flag}={value} cannot work: {text}')
  logging.warning('--%s=%d leaves little memory for the rest: %s', flag, value,
                  text)


def _advice(config, found, largest, unrolls, num_fitting):
  """Says which value would leave enough memory, where there is one."""
  if num_fitting < len(found):
    return f'{num_fitting} unrolls as long as that would fit.'
  others = sum(unrolls.values()) - unrolls[largest]
  value = math.floor((num_fitting - others) / largest.per_unit)
  if value >= largest.least:
    return f'The largest value that fits is {value}.'
  flags = ', '.join(
      f'--{buffer.flag}={getattr(config, buffer.flag)}' for buffer in found)
  return (f'{num_fitting} unrolls would fit. Lower --unroll_length, or what '
          f'decides how many there are: {flags}.')


def _size(num_bytes):
  """Shows a number of bytes as a person reads it."""
  if num_bytes >= 1000**len(_UNITS):
    return f'over 1000 {_UNITS[-1]}'
  power = 0
  while num_bytes >= 999.5 * 1000**power and power < len(_UNITS) - 1:
    power += 1
  return f'{float(num_bytes) / 1000**power:.3g} {_UNITS[power]}'
