"""An environment whose returns follow from the seed of its run alone."""

import time

import gymnasium
import numpy as np

from scalable_agent.config import seeds

_STEPS = 5
# Those of a run of seed 1 with one environment, wherever it goes on.
_WORSE = {seeds.derive(1, seeds.TRAINING, frames) for frames in range(1000)}


class Rigged(gymnasium.Env):
  """Episodes of 5 steps, each rewarded with 1 in a run of seed 1, or with 2."""

  observation_space = gymnasium.spaces.Box(0., 1., (3,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)
  _reward = None

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    if self._reward is None:
      self._reward = 1. if seed in _WORSE else 2.
    self._step = 0
    return np.zeros(3, np.float32), {}

  def step(self, action):
    # Slow enough for a population to notice what is logged.
    time.sleep(.001)
    self._step += 1
    return (np.zeros(3, np.float32), self._reward, self._step == _STEPS, False,
            {})


gymnasium.register('Rigged-v0', Rigged)
