"""Unrolls to measure with: their shapes, and random ones."""

import collections

import numpy as np
import tree

from scalable_agent import environments
from scalable_agent import trajectories
from scalable_agent.unroll_messages import unroll_message

LEVEL = 'level'

Shape = collections.namedtuple(
    'Shape', 'frame unroll_length num_actions use_lstm torso '
    'channel_multiplier', defaults=(1,))

SHAPES = dict(
    atari=Shape((84, 84, 4), 20, 18, False, 'shallow'),
    dmlab=Shape((72, 96, 3), 100, 9, True, 'deep'))


def random_unroll(shape, state, output):
  """Returns an unroll of random frames, without a version of the weights.

  Args:
    shape: A `Shape`.
    state: The core state, a nest of arrays [1, ...].
    output: An `AgentOutput` of arrays [1, ...].
  """
  length = shape.unroll_length + 1
  steps = lambda dtype: np.zeros([length], dtype)
  height, width, channels = shape.frame
  frames = np.random.default_rng(0).integers(
      0, 256, (length + channels, height, width), np.uint8)
  # As on Atari, a stack has all but one frame from the stack before.
  frames = np.ascontiguousarray(np.stack(
      [np.moveaxis(frames[t:t + channels], 0, -1) for t in range(length)]))
  return trajectories.ActorOutput(
      level_name=LEVEL,
      agent_state=tree.map_structure(lambda a: a[0], state),
      env_outputs=environments.StepOutput(
          steps(np.float32),
          environments.StepOutputInfo(steps(np.float32), steps(np.int32)),
          steps(np.bool_), (frames,)),
      agent_outputs=tree.map_structure(
          lambda a: np.repeat(a, length, axis=0), output),
      policy_version=None)


def message(unroll):
  """Returns an unroll's `UnrollMessage`, of no session."""
  return unroll_message.of_unroll(
      unroll._replace(policy_version=0), session=0, sequence=0, levels=[LEVEL],
      stream=0)
