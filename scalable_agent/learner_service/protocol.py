"""Says what learner and actor jobs agree on, and lays out weights and steps."""

import collections
import functools
import struct

import numpy as np
import tree

from scalable_agent import config as config_lib
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import agreements
from scalable_agent.unroll_messages import specs

VERSION = 4
SERVICE = 'scalable_agent.Learner'
US, THEM = 'the learner', 'the actor'
MAX_EPISODES_PER_CALL = 4096

# Settings that have to be equal at both ends: they say what is in an unroll,
# and what the weights mean. Workers of A3C compute the loss, and have to agree
# on what it depends on too. The rest of the configuration is each job's own.
SHARED_SETTINGS = config_lib.names(config_lib.ACTORS)
_SETTINGS_OF_WORKERS = config_lib.names(config_lib.WORKERS)

WeightsMessage = collections.namedtuple('WeightsMessage', 'version weights')
WeightsMessage.__doc__ = """A version of the weights.

  version: int64, the update they are from.
  weights: A dict of name to array.
"""

StepsMessage = collections.namedtuple(
    'StepsMessage', 'ids step_output is_first is_last')
StepsMessage.__doc__ = """A `PoolOutput` of K environments, for `Act`."""

ActionsMessage = collections.namedtuple('ActionsMessage', 'ids actions')
ActionsMessage.__doc__ = """The answer to a `StepsMessage`: int32 [K] each."""

# How many sizes of a pool's batches to keep layouts for.
_MAX_LAYOUTS = 256


def agreement(config, facts):
  """Returns what has to be equal at both ends, a dict that JSON can hold.

  Args:
    config: A `config.Config`.
    facts: Has `num_actions` and `observation_spec`, as an
      `environments.Pool`.
  """
  names = SHARED_SETTINGS + (
      _SETTINGS_OF_WORKERS if config.architecture == 'a3c' else ())
  return agreements.agreement_of(VERSION, names, config, facts)


def weights_layout(weights):
  """Returns the `wire.Layout` of `WeightsMessage`s.

  Args:
    weights: A dict of name to array.
  """
  return wire.Layout(WeightsMessage(specs.INT64, specs.repeat(weights)))


class StepsLayouts:
  """The layouts of `StepsMessage`s and their answers, by environments in them.
  """

  def __init__(self, observation_spec, num_environments, num_actions):
    """Initializes the layouts.

    Args:
      observation_spec: A tuple of `ArraySpec`.
      num_environments: Of the sender, N; there are layouts for 1 to N.
      num_actions: Size of the action set.
    """
    self._spec = tuple(observation_spec)
    self._num_environments = num_environments
    self._num_actions = num_actions
    one = specs.repeat(self._template(), 1)
    self._bytes_per_environment = sum(
        leaf.num_bytes for leaf in tree.flatten(one))
    # Layouts of sizes that were seen, since there may be thousands of sizes.
    self._layouts = functools.lru_cache(_MAX_LAYOUTS)(self._make)

  def _template(self):
    return StepsMessage(
        specs.INT32, specs.step_output(self._spec), specs.BOOL, specs.BOOL)

  def _make(self, size):
    ids = (0, self._num_environments - 1)
    steps = wire.Layout(
        specs.repeat(self._template(), size),
        dict(specs.step_bounds('step_output', self._spec), ids=ids),
        finite=False)
    actions = wire.Layout(
        specs.repeat(ActionsMessage(specs.INT32, specs.INT32), size),
        dict(ids=ids, actions=(0, self._num_actions - 1)))
    return steps, actions

  @property
  def max_bytes(self):
    """Length of the largest message."""
    return self.of_size(self._num_environments)[0].num_bytes

  def of_size(self, size):
    """Returns the `wire.Layout`s of steps and actions of `size` environments.
    """
    return self._layouts(size)

  def decode(self, message):
    """Returns a `StepsMessage`, and the `wire.Layout` of the answer to it.

    Raises:
      wire.WireError: The message is not as agreed, or has one environment
        twice.
    """
    # This only guesses the size. The layout compares the whole header.
    header = struct.unpack_from('<Q', message)[0] if len(message) >= 8 else 0
    size, rest = divmod(len(message) - 8 - header, self._bytes_per_environment)
    if rest or not 1 <= size <= self._num_environments:
      raise wire.WireError(f'{len(message)} bytes are no steps of 1 to '
                           f'{self._num_environments} environments')
    layout, answer = self._layouts(size)
    steps = layout.decode(message)
    if len(np.unique(steps.ids)) < size:
      raise wire.WireError('an environment is in the steps twice')
    return steps, answer
