"""What a learner and its actor jobs have to agree on, and their messages."""

import collections
import json

import numpy as np

from scalable_agent import environments
from scalable_agent.environments import ArraySpec
from scalable_agent.remote import frame_stacks
from scalable_agent.remote import wire

VERSION = 1
SERVICE = 'scalable_agent.Learner'

# Settings that both ends need alike: what is in an unroll, and what the weights
# mean. The rest of the configuration is each job's own.
SHARED_SETTINGS = (
    'level_name', 'network', 'use_lstm', 'precision', 'width', 'height',
    'num_action_repeats', 'full_action_set', 'unroll_length', 'inference')

UnrollMessage = collections.namedtuple(
    'UnrollMessage', 'session sequence level policy_version agent_state '
    'env_outputs agent_outputs')
UnrollMessage.__doc__ = """An `ActorOutput` on its way.

  session: uint64, who sends it, as the learner named it.
  sequence: int64, counts the unrolls of a session, so that one that is sent
    again because its answer was lost is taken once.
  level: int32, index into the learner's levels.
  Others: See `staging.ActorOutput`.
"""

WeightsMessage = collections.namedtuple('WeightsMessage', 'version weights')
WeightsMessage.__doc__ = """A version of the weights.

  version: int64, the learner step they are from.
  weights: A dict of name to array.
"""

StepsMessage = collections.namedtuple(
    'StepsMessage', 'ids game_over step_output')
StepsMessage.__doc__ = """A `PoolOutput` of K environments, for `Act`."""

ActionsMessage = collections.namedtuple('ActionsMessage', 'ids actions')
ActionsMessage.__doc__ = """Its answer: int32 [K] each."""

_BOOL, _INT32, _INT64, _UINT64, _FLOAT32 = (
    ArraySpec((), np.dtype(dtype))
    for dtype in ('bool', 'int32', 'int64', 'uint64', 'float32'))
_MAX_INT64 = 2**63 - 1
_KEEPALIVE_MS = 20_000


def agreement(config, num_actions, observation_spec):
  """Returns what has to be equal at both ends, a dict that JSON can hold."""
  settings = {name: getattr(config, name) for name in SHARED_SETTINGS}
  return dict(
      protocol=VERSION, **settings, num_actions=int(num_actions),
      observations=[[list(map(int, spec.shape)), np.dtype(spec.dtype).name]
                    for spec in observation_spec])


def difference(learner, actor):
  """Says in a line how an actor's agreement differs; '' if it does not.

  Args:
    learner: The learner's `agreement`.
    actor: What an actor sent in its place, anything that JSON can hold.
  """
  if not isinstance(actor, dict):
    return 'the actor says nothing of its settings'
  for name, value in learner.items():
    if actor.get(name) != value:
      shown = f'--{name}' if name in SHARED_SETTINGS else name
      return (f'{shown} is {json.dumps(value)} at the learner, '
              f'{json.dumps(actor.get(name))[:200]} at the actor')
  return ''


def _repeat(nest, *shape):
  """Specs of `shape` times what the nest's arrays or specs are."""
  leaves = [ArraySpec(shape + tuple(leaf.shape), np.dtype(leaf.dtype))
            for _, leaf in wire.paths(nest)]
  return wire.rebuild(nest, iter(leaves))


def _step_output(observation_spec):
  return environments.StepOutput(
      reward=_FLOAT32,
      info=environments.StepOutputInfo(_FLOAT32, _INT32),
      done=_BOOL,
      observation=tuple(observation_spec))


def _word_bounds(prefix, observation_spec):
  # The other observations are looked at as numbers, whatever they are.
  return {f'{prefix}.observation.{i}': (-1, environments.NUM_HASH_BUCKETS - 1)
          for i, spec in enumerate(observation_spec)
          if np.dtype(spec.dtype) == np.int32}


def unroll_layout(agent_state, agent_output, observation_spec, unroll_length,
                  num_levels):
  """Returns the `wire.Layout` of `UnrollMessage`s.

  Args:
    agent_state: A nest of arrays [1, ...], the core state of one environment.
    agent_output: An `AgentOutput` of arrays [1, ...].
    observation_spec: A tuple of `ArraySpec`.
    unroll_length: T, in agent steps.
    num_levels: Levels that the learner knows.
  """
  one = lambda nest: wire.rebuild(
      nest, iter([leaf[0] for _, leaf in wire.paths(nest)]))
  num_actions = agent_output.policy_logits.shape[-1]
  template = UnrollMessage(
      session=_UINT64, sequence=_INT64, level=_INT32, policy_version=_INT64,
      agent_state=_repeat(one(agent_state)),
      env_outputs=_repeat(_step_output(observation_spec), unroll_length + 1),
      agent_outputs=_repeat(one(agent_output), unroll_length + 1))
  bounds = dict(
      _word_bounds('env_outputs', observation_spec), **{
          'sequence': (1, _MAX_INT64),
          'level': (0, num_levels - 1),
          'policy_version': (0, _MAX_INT64),
          'agent_outputs.action': (0, num_actions - 1)})
  if len(observation_spec) == 1 and frame_stacks.is_stack(observation_spec[0]):
    return frame_stacks.StackedLayout(template, bounds)
  return wire.Layout(template, bounds)


def weights_layout(weights):
  """Returns the `wire.Layout` of `WeightsMessage`s.

  Args:
    weights: A dict of name to array.
  """
  return wire.Layout(WeightsMessage(_INT64, _repeat(weights)))


def steps_layout(observation_spec, size, num_environments):
  """Returns the `wire.Layout` of `StepsMessage`s of `size` environments."""
  return wire.Layout(
      _repeat(StepsMessage(_INT32, _BOOL, _step_output(observation_spec)),
              size),
      dict(_word_bounds('step_output', observation_spec),
           ids=(0, num_environments - 1)))


def actions_layout(size):
  """Returns the `wire.Layout` of `ActionsMessage`s of `size` environments."""
  return wire.Layout(_repeat(ActionsMessage(_INT32, _INT32), size))


def channel_options(max_message_bytes):
  """Returns gRPC's options for either end.

  Args:
    max_message_bytes: Length of the largest message of the protocol; a larger
      one is refused before it is read into memory.
  """
  return [
      ('grpc.max_receive_message_length', max_message_bytes),
      ('grpc.max_send_message_length', -1),
      # What a machine that lost power, or a cut cable, is noticed by.
      ('grpc.keepalive_time_ms', _KEEPALIVE_MS),
      ('grpc.keepalive_timeout_ms', _KEEPALIVE_MS),
      ('grpc.keepalive_permit_without_calls', 1),
      ('grpc.http2.max_pings_without_data', 0),
      ('grpc.http2.min_ping_interval_without_data_ms', _KEEPALIVE_MS // 2),
      ('grpc.http2.min_recv_ping_interval_without_data_ms', _KEEPALIVE_MS // 2),
      # Reconnecting is up to the client, which waits between its attempts.
      ('grpc.initial_reconnect_backoff_ms', 100),
      ('grpc.min_reconnect_backoff_ms', 100),
      ('grpc.max_reconnect_backoff_ms', 1000),
      ('grpc.use_local_subchannel_pool', 1),
      # Two learners on a port would share its actors without a word.
      ('grpc.so_reuseport', 0),
  ]
