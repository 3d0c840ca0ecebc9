"""What passes from acting to learning: steps, unrolls, episodes and batches.

T is the number of agent steps of an unroll, B the number of unrolls of a batch.
"""

import collections

import numpy as np

AgentOutput = collections.namedtuple(
    'AgentOutput', 'action policy_logits baseline')
AgentOutput.__doc__ = """What the agent computes from a `StepOutput`.

  action: int32 [..., B], sampled from the policy.
  policy_logits: float32 [..., B, NUM_ACTIONS], un-normalised.
  baseline: float32 [..., B], the value estimate.
"""

Gradient = collections.namedtuple('Gradient', 'dense touched logs')
Gradient.__doc__ = """The gradient of an unroll's loss.

  dense: A dict of name to float32 tensor or array like the weight.
  touched: Of weights whose gradient is sparse, a dict of name to float32
    [rows], how often each row occurs in it.
  logs: A dict of name to float32 scalar, to log with the update.
"""

ActorOutput = collections.namedtuple(
    'ActorOutput',
    'level_name agent_state env_outputs agent_outputs policy_version gradient '
    'stream', defaults=(np.int64(0), (), ()))
ActorOutput.__doc__ = """An unroll, or B of them.

Entry t of `agent_outputs` led to entry t of `env_outputs`; entry 0 of both
repeats the last of the unroll before.

  level_name: String; a list of B.
  agent_state: The core state before entry 0, [...]; [B, ...].
  env_outputs: A `StepOutput` of [T+1, ...] arrays; [T+1, B, ...].
  agent_outputs: An `AgentOutput` of [T+1, ...] arrays; [T+1, B, ...].
  policy_version: int64, the update whose weights took the first action; [B].
  gradient: Empty, but the `Gradient` where the actor computes it (A3C).
  stream: Identifies the environment; one that takes its place has another.
    Hashable, empty where it is not known.
"""

Episode = collections.namedtuple(
    'Episode', 'level_name episode_return episode_frames')
Episode.__doc__ = """A finished episode.

  level_name: String.
  episode_return: Float, the sum of its unclipped rewards. On Atari, of all
    lives.
  episode_frames: Int, its length in environment frames.
"""

Batch = collections.namedtuple(
    'Batch', 'unrolls is_replayed weights keys kept_versions', defaults=((),))
Batch.__doc__ = """What an update trains on.

  unrolls: An `ActorOutput` of B unrolls. What a source returns has a list of B
    single ones in its place.
  is_replayed: bool [B], whether the unroll was drawn from replay.
  weights: float32 [B], by which an algorithm may weigh the unroll's loss.
  keys: int64 [B], what the source knows the unroll by; -1 if it has no name.
  kept_versions: int64 [N], the policy versions of N more unrolls, which came
    from actors for this batch and are kept for replay alone. Their frames count
    as trained on.
"""


def new_batch(unrolls):
  """Returns a `Batch` of unrolls, a list, that come from actors."""
  size = len(unrolls)
  return Batch(
      unrolls,
      is_replayed=np.zeros([size], bool),
      weights=np.ones([size], np.float32),
      keys=np.full([size], -1, np.int64))
