"""Endless random play of some environments, and the unrolls of it."""

import numpy as np

from scalable_agent import trajectories
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo

SIZE = 4


class Play:
  """What one environment and its agent did, entry by entry.

  Attributes:
    name: An int.
    done: bool [N], which entries begin an episode; the first always does.
    observation: float32 [N, SIZE]; its first number is that of the entry.
    action: int32 [N], what led to each entry.
  """

  def __init__(self, name, num_entries, seed, end_probability=.15):
    rng = np.random.default_rng([seed, name])
    self.name = name
    self.done = rng.random(num_entries) < end_probability
    self.done[0] = True
    self.observation = rng.normal(size=(num_entries, SIZE)).astype(np.float32)
    self.observation[:, 0] = np.arange(num_entries)
    self.action = rng.integers(3, size=num_entries).astype(np.int32)

  def outputs(self, entries):
    """Returns the `StepOutput` of a slice of the entries."""
    floats = self.observation[entries, 1]
    return StepOutput(
        floats, StepOutputInfo(floats, np.zeros(len(floats), np.int32)),
        self.done[entries], (self.observation[entries],))

  def unroll(self, k, unroll_length):
    """Returns the k-th `ActorOutput`, whose core state nobody knows."""
    entries = slice(k * unroll_length, (k + 1) * unroll_length + 1)
    floats = self.observation[entries, 2]
    return trajectories.ActorOutput(
        level_name=f'level_{self.name}',
        agent_state=(np.full([2], np.nan, np.float32),),
        env_outputs=self.outputs(entries),
        agent_outputs=trajectories.AgentOutput(
            self.action[entries], np.stack([floats, -floats], -1), floats),
        policy_version=np.int64(k), stream=(self.name, 0))

  def episodes(self, num_entries):
    """Returns the first entry and the next one's of episodes, pairs.

    Args:
      num_entries: How many entries are known.
    """
    begins = np.flatnonzero(self.done[:num_entries])
    return [(int(a), int(b)) for a, b in zip(begins, begins[1:])]


def entry_of(unroll):
  """Returns the environment's name, and the number of an unroll's entry 0.

  The other entries have to be those that followed.
  """
  numbers = unroll.env_outputs.observation[0][:, 0]
  np.testing.assert_array_equal(np.diff(numbers), 1)
  return int(unroll.level_name.rpartition('_')[2]), int(numbers[0])
