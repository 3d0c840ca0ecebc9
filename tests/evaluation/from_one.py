"""An environment whose actions are numbered from 1 on."""

import gymnasium
import numpy as np


class FromOne(gymnasium.Env):
  """Which shows zeros."""

  observation_space = gymnasium.spaces.Box(-1., 1., (2,), np.float32)
  action_space = gymnasium.spaces.Discrete(2, start=1)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    return np.zeros([2], np.float32), {}


gymnasium.register('FromOne-v0', FromOne)
