"""Defines what all environments share: the output of a step, and the pool.

A pool runs many environments and hands out the outputs of those that are ready,
so that Python's cost is paid per batch and not per environment:

    pool = ...
    while True:
      output = pool.recv()                       # K environments are ready
      actions = policy(output.step_output, ...)  # int32 [K]
      pool.send(output.ids, actions)

`recv` after construction hands out the initial outputs first; each environment
then steps once per action it is sent. Importing this package needs neither
TensorFlow nor any emulator.
"""

import collections
import dataclasses
import math

import numpy as np

from scalable_agent.environments.level_cache import LocalLevelCache

StepOutputInfo = collections.namedtuple(
    'StepOutputInfo', 'episode_return episode_step')
StepOutputInfo.__doc__ = """Running totals of the current episode.

On the last step of an episode the totals include that step; the step after it
starts from zero again.

  episode_return: float32 [...], the sum of unclipped rewards.
  episode_step: int32 [...], agent steps (environment frames / action repeats).
"""

StepOutput = collections.namedtuple(
    'StepOutput', 'reward info done observation')
StepOutput.__doc__ = """What came of an agent step, as the original defines it.

On the last step of an episode `done` is True, `reward` and `info` still belong
to that episode, and `observation` is the first one of the next episode. The
very first output of an environment has reward 0 and done True.

  reward: float32 [...], unclipped.
  info: A `StepOutputInfo`.
  done: bool [...], the episode ended, as the learner sees it.
  observation: A tuple of arrays, one for each entry of the pool's
    `observation_spec`: the frame (or vector) and, for levels with language, the
    word ids of the instruction.
"""

PoolOutput = collections.namedtuple(
    'PoolOutput', 'ids step_output is_first is_last')
PoolOutput.__doc__ = """What `recv` hands out for K environments that are ready.

  ids: int32 [K], distinct indices of environments in the pool.
  step_output: A `StepOutput` of arrays [K, ...]. The caller owns them.
  is_first: bool [K], this is the first output of a new environment. If another
    one had the same id before, it died, and its unroll stays unfinished.
  is_last: bool [K], a whole episode ended here. This is `done` except that the
    first output of an environment ends no episode, and that on Atari the loss
    of a life sets `done` alone.
"""


@dataclasses.dataclass(frozen=True)
class ArraySpec:
  """Shape, a tuple without batch, and NumPy dtype of an array.

  Not a named tuple, because dm-tree would take it apart.
  """
  shape: tuple
  dtype: np.dtype

  @property
  def num_bytes(self):
    """Of one array."""
    return math.prod(self.shape) * np.dtype(self.dtype).itemsize


# Instructions are observed as ids of words: hash buckets, and -1 for no word.
NUM_HASH_BUCKETS = 1000

DEFAULT_ACTION_SET = (
    (0, 0, 0, 1, 0, 0, 0),    # Forward
    (0, 0, 0, -1, 0, 0, 0),   # Backward
    (0, 0, -1, 0, 0, 0, 0),   # Strafe Left
    (0, 0, 1, 0, 0, 0, 0),    # Strafe Right
    (-20, 0, 0, 0, 0, 0, 0),  # Look Left
    (20, 0, 0, 0, 0, 0, 0),   # Look Right
    (-20, 0, 0, 1, 0, 0, 0),  # Look Left + Forward
    (20, 0, 0, 1, 0, 0, 0),   # Look Right + Forward
    (0, 0, 0, 0, 1, 0, 0),    # Fire
)
# What these do, one after the other.
ACTION_MEANINGS = (
    'FORWARD', 'BACKWARD', 'STRAFE_LEFT', 'STRAFE_RIGHT', 'LOOK_LEFT',
    'LOOK_RIGHT', 'FORWARD_LOOK_LEFT', 'FORWARD_LOOK_RIGHT', 'FIRE')


class PoolError(RuntimeError):
  """An environment cannot be made, or died; the message says which and why."""


class Pool:
  """The interface of a pool of environments.

  One thread drives a pool; `close` may be called by any thread.

  Attributes:
    num_environments: Number of environments, N; ids are 0 to N - 1.
    num_actions: Size of the discrete action set.
    observation_spec: A tuple of `ArraySpec`, one per entry of an observation.
    level_names: A list of N level names, by environment id.
  """

  num_environments: int
  num_actions: int
  observation_spec: tuple
  level_names: list

  def recv(self):
    """Waits for ready environments.

    Returns:
      A `PoolOutput` of between 1 and N environments.

    Raises:
      PoolError: An environment died, or the pool is closed.
    """
    raise NotImplementedError

  def send(self, ids, actions):
    """Steps environments.

    Args:
      ids: int32 [K], the `ids` of the last `recv`, in the same order. Pools of
        processes take any that were handed out and not sent since.
      actions: int32 [K], indices into the action set.
    """
    raise NotImplementedError

  def close(self):
    """Ends all environments. May be called twice."""
    raise NotImplementedError
