"""Says what learner and actor jobs have to agree on, and lays out messages."""

import collections
import functools
import json
import struct

import numpy as np
import tree

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import frame_stacks
from scalable_agent.environments import ArraySpec
from scalable_agent.learner_service import stacked_layout
from scalable_agent.remote import wire

VERSION = 4
SERVICE = 'scalable_agent.Learner'
US, THEM = 'the learner', 'the actor'
MAX_EPISODES_PER_CALL = 4096
# A message has several unrolls, since it costs more than packing an Atari
# unroll. Messages that are larger than this are slower by the byte.
MAX_CALL_BYTES = 4 << 20

# Settings that have to be equal at both ends: they say what is in an unroll,
# and what the weights mean. Workers of A3C compute the loss, and have to agree
# on what it depends on too. The rest of the configuration is each job's own.
SHARED_SETTINGS = config_lib.names(config_lib.ACTORS)
_SETTINGS_OF_WORKERS = config_lib.names(config_lib.WORKERS)

# What the parts of an agreement are called that no flag sets.
_NAMES = dict(
    protocol='the version of the protocol',
    num_actions='the number of actions',
    observations='the list of observations')
_MAX_QUOTED = 200

UnrollMessage = collections.namedtuple(
    'UnrollMessage', 'session sequence level policy_version agent_state '
    'env_outputs agent_outputs gradient stream',
    defaults=((), np.int64(0)))
UnrollMessage.__doc__ = """An `ActorOutput` on its way.

  session: uint64, the number of the sender's session.
  sequence: int64, counts the unrolls of a session, so that one that is sent
    again because its answer was lost is taken once.
  level: int32, index into the learner's levels.
  stream: int64, an environment, among those of the session.
  Others: See `trajectories.ActorOutput`.
"""

WeightsMessage = collections.namedtuple('WeightsMessage', 'version weights')
WeightsMessage.__doc__ = """A version of the weights.

  version: int64, the update they are from.
  weights: A dict of name to array.
"""

StepsMessage = collections.namedtuple(
    'StepsMessage', 'ids step_output is_first is_last')
StepsMessage.__doc__ = """A `PoolOutput` of K environments, for `Act`."""

ActionsMessage = collections.namedtuple('ActionsMessage', 'ids actions')
ActionsMessage.__doc__ = """Its answer: int32 [K] each."""

_BOOL, _INT32, _INT64, _UINT64, _FLOAT32 = (
    ArraySpec((), np.dtype(dtype))
    for dtype in ('bool', 'int32', 'int64', 'uint64', 'float32'))
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
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
  return agreement_of(VERSION, names, config, facts)


def agreement_of(version, names, config, facts):
  """Returns the agreement of a protocol.

  Args:
    version: The protocol's, an int.
    names: Of the settings that both ends need alike.
    config: As for `agreement`.
    facts: As for `agreement`.
  """
  return dict(
      protocol=version, **{name: getattr(config, name) for name in names},
      num_actions=int(facts.num_actions),
      observations=[[list(map(int, spec.shape)), np.dtype(spec.dtype).name]
                    for spec in facts.observation_spec])


def difference(ours, theirs, us, them):
  """Says in a line how the agreement of another job differs; '' if not at all.

  Args:
    ours: The `agreement` of this end.
    theirs: What the other job sent in its place, anything that JSON can hold.
    us: What this end is called.
    them: What the other job is called.
  """
  if not isinstance(theirs, dict):
    return f'{them} says nothing of its settings'
  for name, value in ours.items():
    if theirs.get(name) != value:
      return (f'{_NAMES.get(name, f"--{name}")} is {quote(value)} at {us}, '
              f'{quote(theirs.get(name))} at {them}')
  return ''


def quote(value):
  """Shows a value that came from outside: one line of ASCII, not too long."""
  try:
    return json.dumps(value)[:_MAX_QUOTED]
  except RecursionError:
    return '[...]'


def _repeat(nest, *shape):
  """Returns specs of a nest's arrays or specs with `shape` put in front."""
  return tree.map_structure(
      lambda leaf: ArraySpec(shape + tuple(leaf.shape), np.dtype(leaf.dtype)),
      nest)


def _step_output(observation_spec):
  return environments.StepOutput(
      reward=_FLOAT32,
      info=environments.StepOutputInfo(_FLOAT32, _INT32),
      done=_BOOL,
      observation=tuple(observation_spec))


def _step_bounds(prefix, observation_spec):
  # Those of int32 are numbers of words. The network takes any value of others.
  bounds = {f'{prefix}.observation.{i}': (-1, environments.NUM_HASH_BUCKETS - 1)
            for i, spec in enumerate(observation_spec)
            if np.dtype(spec.dtype) == np.int32}
  return dict(bounds, **{f'{prefix}.info.episode_step': (0, _MAX_INT32)})


def unroll_layout(agent_state, agent_output, observation_spec, unroll_length,
                  num_levels, finite=False):
  """Returns the `wire.Layout` of `UnrollMessage`s.

  Args:
    agent_state: A nest of arrays [1, ...], the core state of one environment.
    agent_output: An `AgentOutput` of arrays [1, ...].
    observation_spec: A tuple of `ArraySpec`.
    unroll_length: T, in agent steps.
    num_levels: Levels that the learner knows.
    finite: Whether floats have to be finite. From actor jobs they need not be:
      the learner skips what it cannot learn from, as where actors are threads.
  """
  template, bounds = _unroll_template(
      agent_state, agent_output, observation_spec, unroll_length, num_levels)
  if len(observation_spec) == 1 and frame_stacks.is_stack(observation_spec[0]):
    return stacked_layout.StackedLayout(template, bounds, finite)
  return wire.Layout(template, bounds, finite)


def gradient_layout(gradient, agent_output, unroll_length, num_levels):
  """Returns the `wire.Layout` of `UnrollMessage`s with gradients.

  They have no observations and no core state, which their learner does without.

  Args:
    gradient: A `Gradient` of arrays.
    agent_output: As for `unroll_layout`.
    unroll_length: As for `unroll_layout`.
    num_levels: As for `unroll_layout`.
  """
  template, bounds = _unroll_template(
      (), agent_output, (), unroll_length, num_levels)
  template = template._replace(gradient=_repeat(gradient))
  # The learner skips by the norm, of which these are no part.
  bounds.update((name, (0., _MAX_FLOAT32)) for name, _ in wire.paths(template)
                if name.startswith('gradient.touched.'))
  return wire.Layout(template, bounds, finite=False)


def _unroll_template(agent_state, agent_output, observation_spec, unroll_length,
                     num_levels):
  """Returns an `UnrollMessage` of specs, and the bounds of its values."""
  one = lambda nest: tree.map_structure(lambda leaf: leaf[0], nest)
  num_actions = agent_output.policy_logits.shape[-1]
  template = UnrollMessage(
      session=_UINT64, sequence=_INT64, level=_INT32, policy_version=_INT64,
      stream=_INT64,
      agent_state=_repeat(one(agent_state)),
      env_outputs=_repeat(_step_output(observation_spec), unroll_length + 1),
      agent_outputs=_repeat(one(agent_output), unroll_length + 1))
  bounds = dict(
      _step_bounds('env_outputs', observation_spec), **{
          'sequence': (1, _MAX_INT64),
          'level': (0, num_levels - 1),
          'policy_version': (0, _MAX_INT64),
          'agent_outputs.action': (0, num_actions - 1)})
  return template, bounds


def max_unrolls_per_call(layout):
  """Returns how many unrolls may be sent at once, at least one.

  Args:
    layout: Of `unroll_layout`.
  """
  return max(MAX_CALL_BYTES // wire.aligned(layout.num_bytes), 1)


def max_call_bytes(layout):
  """Returns the length of the largest message with unrolls of a layout."""
  return max_unrolls_per_call(layout) * wire.aligned(layout.num_bytes)


def weights_layout(weights):
  """Returns the `wire.Layout` of `WeightsMessage`s.

  Args:
    weights: A dict of name to array.
  """
  return wire.Layout(WeightsMessage(_INT64, _repeat(weights)))


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
    one = _repeat(self._template(), 1)
    self._bytes_per_environment = sum(
        leaf.num_bytes for leaf in tree.flatten(one))
    # Layouts of sizes that were seen, since there may be thousands of sizes.
    self._layouts = functools.lru_cache(_MAX_LAYOUTS)(self._make)

  def _template(self):
    return StepsMessage(_INT32, _step_output(self._spec), _BOOL, _BOOL)

  def _make(self, size):
    ids = (0, self._num_environments - 1)
    steps = wire.Layout(
        _repeat(self._template(), size),
        dict(_step_bounds('step_output', self._spec), ids=ids), finite=False)
    actions = wire.Layout(
        _repeat(ActionsMessage(_INT32, _INT32), size),
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
