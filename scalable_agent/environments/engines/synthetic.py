"""Makes environments that only take time, for measuring everything else.

Levels are named 'synthetic:' and options, e.g. 'synthetic:step_ms=5,std=0.5'.
"""

import time

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.environments import DEFAULT_ACTION_SET
from scalable_agent.environments import PoolError

PREFIX = 'synthetic:'

_OPTIONS = {'step_ms': 5., 'std': 0., 'reset_ms': 0., 'episode_steps': 1000.,
            'size': 0.}
# Below this the parameters of a gamma distribution overflow.
_LEAST_STD = 1e-6
_STEPS_PER_DRAW = 1024
_NUM_FRAMES = 8


def parse(level_name):
  """Returns the options of a level.

  Args:
    level_name: 'synthetic:' followed by name=value pairs with commas between:
      step_ms: Mean time of a step in milliseconds; 5.
      std: Its standard deviation as a fraction of the mean; 0. Times have a
        gamma distribution.
      reset_ms: What the last step of an episode takes in addition; 0.
      episode_steps: Mean length of an episode, geometrically distributed; 1000.
      size: Observations are vectors of so many floats, a whole number; 0 for
        frames.

  Returns:
    A dict of option to float.

  Raises:
    PoolError: An option is unknown or has no such value.
  """
  options = dict(_OPTIONS)
  for pair in filter(None, level_name[len(PREFIX):].split(',')):
    name, _, value = pair.partition('=')
    if name not in options:
      raise PoolError(f'{level_name}: there is no option {name!r}, expected '
                      f'some of {", ".join(_OPTIONS)}')
    try:
      options[name] = float(value)
    except ValueError:
      options[name] = -1.
    if not 0 <= options[name] < float('inf'):
      raise PoolError(f'{level_name}: {name} is {value!r}, expected a number '
                      'that is not negative')
  if options['episode_steps'] < 1:
    raise PoolError(f'{level_name}: episodes need a step')
  if not options['size'].is_integer():
    raise PoolError(f'{level_name}: size is {options["size"]:g}, expected a '
                    'whole number')
  if 0 < options['std'] < _LEAST_STD:
    raise PoolError(f'{level_name}: std is {options["std"]:g}, expected 0 or '
                    f'at least {_LEAST_STD:g}')
  return options


def make_pool(level_name, num_environments, seed, height, width, **kwargs):
  """Makes a pool of one level.

  Args:
    level_name: A string, see `parse`.
    num_environments: Number of environments, N.
    seed: An int; environment i is seeded with `seed + i`.
    height: Of the frame, in pixels.
    width: Of the frame, in pixels.
    **kwargs: See `ProcessPool`.

  Returns:
    A `ProcessPool`.

  Raises:
    PoolError: The level's name is malformed.
  """
  # The pool's processes import this module, and have no use for that one.
  from scalable_agent.environments.pools import process_pool
  parse(level_name)
  return process_pool.ProcessPool(
      __name__ + ':SyntheticEnvironment',
      [dict(level_name=level_name, seed=seed + i, height=height, width=width)
       for i in range(num_environments)],
      **kwargs)


class SyntheticEnvironment:
  """Sleeps for as long as a step is to take; see `ProcessPool`.

  Observations are uint8 [height, width, 3] or float32 [size]. The reward is 1
  in an episode's last step.
  """

  def __init__(self, level_name, seed, height, width):
    options = parse(level_name)
    self.level_name = level_name
    self.num_actions = len(DEFAULT_ACTION_SET)
    self._step_seconds = options['step_ms'] / 1000
    self._std = options['std']
    self._reset_seconds = options['reset_ms'] / 1000
    self._end_probability = 1 / options['episode_steps']
    self._rng = np.random.default_rng(seed)
    if options['size']:
      spec = ArraySpec((int(options['size']),), np.dtype(np.float32))
      frames = self._rng.normal(size=(_NUM_FRAMES,) + spec.shape)
    else:
      spec = ArraySpec((height, width, 3), np.dtype(np.uint8))
      frames = self._rng.integers(0, 256, (_NUM_FRAMES,) + spec.shape)
    self.observation_spec = (spec,)
    self._frames = frames.astype(spec.dtype)
    self._steps = self._draw_steps()

  def initial(self):
    """Returns the first observation, a tuple of one array."""
    return (self._frames[0],)

  def _draw_steps(self):
    """Yields duration, whether it ends the episode, and frame of each step."""
    while True:
      done = self._rng.random(_STEPS_PER_DRAW) < self._end_probability
      seconds = np.full(_STEPS_PER_DRAW, self._step_seconds)
      if self._std:
        shape = self._std ** -2
        seconds *= self._rng.gamma(shape, size=_STEPS_PER_DRAW) / shape
      seconds += done * self._reset_seconds
      frames = self._rng.integers(_NUM_FRAMES, size=_STEPS_PER_DRAW)
      yield from zip(seconds.tolist(), done.tolist(), frames.tolist())

  def step(self, action):
    """Returns reward, done and observation after a while."""
    seconds, done, frame = next(self._steps)
    time.sleep(seconds)
    return float(done), done, (self._frames[frame],)

  def close(self):
    """Holds nothing to free."""
