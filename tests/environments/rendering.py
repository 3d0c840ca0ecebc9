"""Registers an environment whose observations are no images, and that renders.

    --level_name=gym:tests.environments.rendering:Rendering-v0
"""

import gymnasium
import numpy as np


class Rendering(gymnasium.Env):
  """Ends after 5 steps; renders how many they are in shades of red."""

  metadata = {'render_modes': ['rgb_array']}
  observation_space = gymnasium.spaces.Box(0., 9., (1,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)

  def __init__(self, render_mode=None):
    self.render_mode = render_mode

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._step = 0
    return self._observe(), {}

  def step(self, action):
    self._step += 1
    return self._observe(), 1., self._step == 5, False, {}

  def render(self):
    screen = np.zeros([100, 120, 3], np.uint8)
    screen[..., 0] = 50 * self._step
    return screen

  def _observe(self):
    return np.array([self._step], np.float32)


gymnasium.register('Rendering-v0', Rendering)
