"""Environments that training has to translate."""

import gymnasium
import numpy as np


class FromOne(gymnasium.Env):
  """Shows zeros; its actions are numbered from 1 on."""

  observation_space = gymnasium.spaces.Box(-1., 1., (2,), np.float32)
  action_space = gymnasium.spaces.Discrete(2, start=1)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    return np.zeros([2], np.float32), {}


class Image(FromOne):
  """Has images without an axis of channels."""

  observation_space = gymnasium.spaces.Box(0, 255, (24, 24), np.uint8)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    return np.zeros([24, 24], np.uint8), {}


gymnasium.register('FromOne-v0', FromOne)
gymnasium.register('Image-v0', Image)
