"""Compares what a run's buffers will hold with the machine's free memory."""

import dataclasses
import fractions
import math
import sys

from absl import logging
import numpy as np
import tree

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import frame_stacks
from scalable_agent import suites
from scalable_agent.machine import memory as machine_memory
from scalable_agent.replay import prioritized_sequences
from scalable_agent.replay import sequence_store

# Buffers may take this share of the free memory. The rest is for weights,
# environments and everything else.
_SHARE_OF_BUFFERS = fractions.Fraction(8, 10)
_UNITS = ('bytes', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB')


@dataclasses.dataclass(frozen=True)
class Buffer:
  """Where a process keeps unrolls, steps or copies of the weights.

  Attributes:
    flag: The name of the setting that decides how many.
    value: The setting's value.
    bytes_each: Bytes of one unroll, step or copy.
    per_unit: How many of them there are for each unit of the value, a number.
    least: The least value of the setting that can work.
    noun: What they are, in the plural.
    is_preallocated: Whether all of its memory is taken at once.
  """

  flag: str
  value: int
  bytes_each: int
  per_unit: int | fractions.Fraction = 1
  least: int = 1
  noun: str = 'unrolls'
  is_preallocated: bool = False

  @property
  def total(self):
    """What it takes when it is full, in bytes."""
    return self.value * self.per_unit * self.bytes_each


def unroll_bytes(config, agent, facts, is_packed=False):
  """Returns how much memory an `ActorOutput` takes, in bytes.

  Args:
    config: A `config.Config`.
    agent: An agent of `networks`; None for unrolls without core states.
    facts: The environments' `suites.Facts`.
    is_packed: Whether it is kept as `packed_unrolls.pack` makes it. If the
      suite's observations are stacks, no game begins in it.
  """
  entry = _entry(facts)
  entries = tree.flatten(entry)
  states = tree.flatten(agent.initial_state(1)) if agent else []
  num_bytes = (config.unroll_length + 1) * sum(a.nbytes for a in entries)
  if is_packed:
    num_bytes -= config.unroll_length * _repeated_bytes(config, entry)
  return (num_bytes + sum(a.nbytes for a in states) +
          # Python's own part, which is most of a small array.
          len(entries + states) * sys.getsizeof(np.empty([0])))


def step_bytes(config, facts):
  """Returns what `prioritized_sequences` takes for a step, in bytes.

  Args:
    config: A `config.Config`.
    facts: As for `unroll_bytes`.
  """
  entry = _entry(facts)
  # One stack of each lane is whole.
  whole = math.ceil(_stack_bytes(config, entry) / sequence_store.lane_length(
      config.replay_steps, config.unroll_length, config.num_known_environments))
  return (sum(a.nbytes for a in tree.flatten(entry)) + whole -
          _repeated_bytes(config, entry) +
          prioritized_sequences.TREE_BYTES_PER_STEP)


def _stack_bytes(config, entry):
  """Returns the bytes of a stack of frames, 0 if observations are none."""
  if not suites.of(config).has_stacked_frames(config):
    return 0
  (stack,) = entry[0].observation
  return stack.nbytes


def _repeated_bytes(config, entry):
  """Returns the bytes of an entry that are in the one before it too."""
  return (_stack_bytes(config, entry) * (frame_stacks.STACK - 1)
          // frame_stacks.STACK)


def _entry(facts):
  """An entry of an unroll, a nest of arrays [1, ...]."""
  return (
      environments.StepOutput(
          reward=np.zeros([1], np.float32),
          info=environments.StepOutputInfo(
              np.zeros([1], np.float32), np.zeros([1], np.int32)),
          done=np.zeros([1], bool),
          observation=tuple(np.zeros((1, *spec.shape), spec.dtype)
                            for spec in facts.observation_spec)),
      actor.initial_output(1, facts.num_actions))


def buffers(config, agent, facts):
  """Returns where this process will keep unrolls, a list of `Buffer`s.

  Two kinds are left out. A learner that acts for actor jobs has further ones
  for each job, and does not know how many jobs there are. A `replayer.Replayer`
  keeps an episode for each replayed unroll of a batch, and nobody knows how
  long episodes are.

  Args:
    config: A `config.Config` of a process that trains, or of another job.
    agent: As for `unroll_bytes`.
    facts: As for `unroll_bytes`.
  """
  unroll = unroll_bytes(config, agent, facts)
  packed = unroll_bytes(config, agent, facts, is_packed=True)

  def buffer(flag, bytes_each=unroll, **fields):
    return Buffer(flag, getattr(config, flag), bytes_each, **fields)

  if config.is_actor_job:
    # Those being filled, and as many that the learner has not taken yet.
    has_policy = config.inference == 'actor'
    return [buffer('envs_per_actor', per_unit=2)] if has_policy else []
  if config.is_replay_job:
    return [buffer('replay_capacity', packed)]
  found = []
  if config.num_replayed_unrolls and not config.shares_replay:
    found.append(buffer('replay_capacity', packed))
  if config.agent == 'reactor':
    found.append(buffer(
        'replay_steps', step_bytes(config, facts),
        least=config.replay_min_steps, noun='steps', is_preallocated=True))
  found += [
      # One batch is trained on, and one is staged.
      buffer('batch_size', per_unit=fractions.Fraction(2, config.num_learners)),
      buffer('queue_capacity', least=config.num_new_unrolls)]
  if config.task < 0:
    found.append(buffer('num_actors'))
  if config.policy_lag:
    weights = agent.initial_params(config.seed).values()
    found.append(buffer(
        'policy_lag', sum(a.nbytes for a in weights), least=0,
        noun='copies of the weights'))
  return found


def check(config, agent, facts):
  """Refuses buffers that cannot fit into memory; warns if little else could.

  What other programs have taken counts as taken, although the buffers may take
  hours to fill. A log line says how much memory replay will take.

  Args:
    config: A `config.Config`.
    agent: As for `unroll_bytes`.
    facts: As for `unroll_bytes`.

  Raises:
    config_lib.ConfigError: They need more than is free.
  """
  found = buffers(config, agent, facts)
  for buffer in found:
    if buffer.flag in ('replay_capacity', 'replay_steps'):
      logging.info(
          'Replay will take %s of memory when it is full: --%s=%d %s of %s.',
          _size(buffer.total), buffer.flag, buffer.value, buffer.noun,
          _size(buffer.bytes_each))
  available = _available_bytes(config)
  if available is None:
    return
  for buffer in found:
    if buffer.is_preallocated:
      others = sum(other.total for other in found if other is not buffer)
      _check_preallocated(config, buffer, _share_of(available) - others)
  _check_total(config, found, available, unroll_bytes(config, agent, facts))


def _check_total(config, found, available, bytes_of_unroll):
  """Refuses all buffers if they cannot fit; warns if little else could.

  Args:
    config: A `config.Config`.
    found: A list of `Buffer`s.
    available: Of `_available_bytes`.
    bytes_of_unroll: Bytes of an unroll that is not packed.

  Raises:
    config_lib.ConfigError: They need more than is free.
  """
  needed = sum(buffer.total for buffer in found)
  most_bytes = _share_of(available)
  if needed <= most_bytes:
    return
  largest = max(found, key=lambda buffer: buffer.total)
  num_fitting = most_bytes // bytes_of_unroll
  # If there is no room for one unroll in each, fewer unrolls are no help.
  flag = largest.flag if num_fitting >= len(found) else 'unroll_length'
  value = getattr(config, flag)
  text = (
      f'its {largest.noun} of {_size(largest.bytes_each)} '
      f'(--unroll_length={config.unroll_length}) take '
      f'{_size(largest.total)}, those of all buffers {_size(needed)}, and '
      f'{_memory(config)}. ' +
      _advice(found, num_fitting, largest,
              (most_bytes - needed + largest.total) // (
                  largest.bytes_each * largest.per_unit)))
  if needed > available:
    raise config_lib.ConfigError(f'--{flag}={value} cannot work: {text}')
  logging.warning('--%s=%d leaves little memory for the rest: %s', flag, value,
                  text)


def _check_preallocated(config, buffer, left):
  """Refuses a preallocated buffer if it leaves too little for the rest.

  Args:
    config: A `config.Config`.
    buffer: A `Buffer` that is preallocated.
    left: What the other buffers leave for it, in bytes.

  Raises:
    config_lib.ConfigError: It needs more than that.
  """
  if buffer.total <= left:
    return
  most = left // buffer.bytes_each
  raise config_lib.ConfigError(
      f'--{buffer.flag}={buffer.value} cannot work: its {buffer.noun} of '
      f'{_size(buffer.bytes_each)} take {_size(buffer.total)}, and '
      f'{_memory(config)}. A fifth is for the rest. ' + (
          f'It can be at most {most}.' if most >= buffer.least else
          f'Not even --replay_min_steps={buffer.least} of them fit.'))


def room(config):
  """Returns how many bytes buffers may take; `math.inf` if nobody knows.

  Args:
    config: A `config.Config`.
  """
  available = _available_bytes(config)
  return math.inf if available is None else _share_of(available)


def _share_of(available):
  return math.floor(_SHARE_OF_BUFFERS * available)


def _available_bytes(config):
  """Returns the bytes that are free, at most --memory_gb; None if unknown."""
  found = [machine_memory.free_bytes()]
  if config.memory_gb:
    found.append(math.floor(fractions.Fraction(config.memory_gb) * 10**9))
  return min((num for num in found if num is not None), default=None)


def _memory(config):
  """Says in a clause how much memory there is."""
  sizes = machine_memory.total_bytes(), machine_memory.free_bytes()
  clauses = []
  if None not in sizes:
    clauses.append('this machine or container has {} of memory, of which {} '
                   'are free'.format(*map(_size, sizes)))
  if config.memory_gb:
    clauses.append(f'--memory_gb={config.memory_gb:g}')
  return ', and '.join(clauses)


def _advice(found, num_fitting, largest, most):
  """Says which value would leave enough memory, where there is one.

  Args:
    found: A list of `Buffer`s.
    num_fitting: How many unrolls would fit in all, an int.
    largest: The `Buffer` that takes the most.
    most: The largest value of its setting with which all would fit, an int.
      Other settings may require a smaller one, such as a multiple of theirs.
  """
  if num_fitting < len(found):
    return f'{num_fitting} unrolls as long as that would fit.'
  if most >= largest.least:
    return f'It can be at most {most}.'
  flags = ', '.join(
      f'--{buffer.flag}={buffer.value}' for buffer in found)
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
