"""Plays environments of Gymnasium: levels named 'gym:<id>', as gym:CartPole-v1.

Supported are discrete actions and observations in a single box, either a vector
or an image. What follows 'gym:' is passed to `gymnasium.make`, so that
'gym:package.module:Name-v0' imports the module that registers 'Name-v0'.
"""

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.environments import contract
from scalable_agent.environments import PoolError
from scalable_agent.environments.engines import gym_ids
from scalable_agent.environments.pools import shown_pool
from scalable_agent.process import errors

# In pixels; less than half of that is enlarged for a person to see.
_SMALLEST_SCREEN = 160


def make_pool(level_name, num_environments, seed, num_action_repeats=1,
              shows=False, **kwargs):
  """Makes a pool of one level.

  Args:
    level_name: A string, 'gym:<id>'.
    num_environments: Number of environments, N.
    seed: An int; environment i is seeded with `seed + i`.
    num_action_repeats: Environment steps per action.
    shows: Whether observations have a second entry, what a person sees, as
      those of a `ShownPool`.
    **kwargs: See `ProcessPool`.

  Returns:
    A `ProcessPool`.

  Raises:
    PoolError: The level is unknown, needs a missing package, has spaces that
      are not supported, or cannot be shown.
  """
  # The pool's processes import this module, and have no use for these.
  from absl import logging
  from scalable_agent.environments.pools import process_pool
  if gym_ids.is_ale(level_name):
    # Once, however many pools are made.
    logging.log_first_n(logging.WARNING, '%s', 1, _describe_ale(level_name))
  kwargs_per_environment = [
      {'level_name': level_name, 'seed': seed + i,
       'num_action_repeats': num_action_repeats, 'shows': shows}
      for i in range(num_environments)]
  pool = process_pool.ProcessPool(
      __name__ + ':make_environment', kwargs_per_environment, **kwargs)
  shape = pool.observation_spec[0].shape
  if _may_be_channels_first(shape):
    logging.log_first_n(
        logging.WARNING, '%s has observations of the shape %s, which are taken '
        'for %d rows of pixels. If these are channels, move them last, as with '
        'gymnasium.wrappers.TransformObservation.', 1, level_name, shape,
        shape[0])
  return pool


def make_environment(level_name, seed, num_action_repeats=1, shows=False):
  """Makes one environment, see `GymEnvironment`; raises as `make_pool` does."""
  if num_action_repeats < 1:
    raise PoolError(f'{level_name}: num_action_repeats {num_action_repeats} is '
                    'less than 1')
  kwargs = {}
  if gym_ids.is_ale(level_name):
    # The emulator repeats actions itself, faster.
    kwargs['frameskip'], num_action_repeats = num_action_repeats, 1
  environment = gym_ids.make(level_name, **kwargs)
  if not shows:
    return GymEnvironment(level_name, environment, seed, num_action_repeats)
  if _renders(environment):
    environment.close()
    environment = gym_ids.make(level_name, render_mode='rgb_array', **kwargs)
  return ShownEnvironment(level_name, environment, seed, num_action_repeats)


def _may_be_channels_first(shape):
  return (len(shape) == 3 and
          shape[0] <= shown_pool.MAX_CHANNELS < min(shape[1:]))


def _describe_ale(level_name):
  level = gym_ids.atari_level(level_name)
  return (f'{level_name} is not the paper\'s protocol: its observations are '
          'single RGB frames, and its actions are sticky.' + (
              f' --level_name={level} is the paper\'s.' if level else ''))


class GymEnvironment:
  """Gives a Gymnasium environment the interface that `ProcessPool` wants.

  Vectors are float32 (or uint8) [size], images [height, width, channels]. An
  observation has to have the shape of its space. In a space of floats it may
  hold numbers of any type, also in a list; in one of uint8, whole numbers from
  0 to 255; in a boolean one, 0 and 1. Booleans become bytes 0 and 255, which
  the agent divides by 255.

  Attributes:
    level_name: A string.
    num_actions: Size of the action set; action 0 is the space's `start`.
    observation_spec: A tuple of one `ArraySpec`.
  """

  def __init__(self, level_name, environment, seed, num_action_repeats):
    """Wraps a `gymnasium.Env`, or raises PoolError about its spaces."""
    self.level_name = level_name
    self._environment = environment
    self._seed = seed
    self._num_action_repeats = num_action_repeats
    self.num_actions, self._first_action = check_actions(
        level_name, environment.action_space)
    spec = _observation_spec(level_name, environment.observation_space)
    self.observation_spec = (spec,)
    self._shape = environment.observation_space.shape
    self._is_boolean = environment.observation_space.dtype == bool
    self._dtype = np.dtype(bool) if self._is_boolean else spec.dtype
    self._adds_channel = len(self._shape) == 2

  def initial(self):
    """Starts the first episode, the seeded one.

    Returns:
      The observation, a tuple of one array.

    Raises:
      ContractError: The environment returned something else.
    """
    return self._reset(seed=self._seed)

  def step(self, action):
    """Repeats an action, until the episode ends at the latest.

    Args:
      action: An int in [0, num_actions).

    Returns:
      The sum of rewards, a float; whether the episode was terminated or
      truncated; and the observation, which then is the next episode's first.

    Raises:
      ContractError: The environment returned something else.
    """
    reward = 0.0
    for _ in range(self._num_action_repeats):
      result = self._environment.step(self._first_action + action)
      try:
        observation, one_reward, terminated, truncated, _ = result
      except (TypeError, ValueError) as e:
        raise contract.refusal(
            'what it returned', result,
            '(observation, reward, terminated, truncated, info)') from e
      reward += (one_reward if type(one_reward) is float else
                 contract.to_reward(one_reward))
      if type(terminated) is not bool:
        terminated = contract.to_bool(terminated, 'terminated')
      if type(truncated) is not bool:
        truncated = contract.to_bool(truncated, 'truncated')
      if terminated or truncated:
        return reward, True, self._reset()
    return reward, False, self._convert(observation)

  def close(self):
    """Frees what the environment holds."""
    self._environment.close()

  def _reset(self, **kwargs):
    result = self._environment.reset(**kwargs)
    try:
      observation, _ = result
    except (TypeError, ValueError) as e:
      raise contract.refusal(
          'what its reset returned', result, '(observation, info)') from e
    return self._convert(observation)

  def _convert(self, observation):
    if (type(observation) is not np.ndarray or
        observation.dtype is not self._dtype or
        observation.shape != self._shape):
      observation = _cast(observation, self._shape, self._dtype)
    if self._is_boolean:
      observation = observation * np.uint8(255)
    if self._adds_channel:
      observation = observation[:, :, np.newaxis]
    return (observation,)


class ShownEnvironment(GymEnvironment):
  """Observes also what a person sees: what it renders, else its image."""

  def __init__(self, level_name, environment, seed, num_action_repeats):
    """Wraps a `gymnasium.Env`, or raises PoolError."""
    super().__init__(level_name, environment, seed, num_action_repeats)
    self._renders = _renders(environment)
    if not self._renders and not shown_pool.is_image(self.observation_spec[0]):
      raise PoolError(
          f'{level_name} cannot be shown: it has no render mode rgb_array, and '
          'its observations are no images')
    try:
      _, screen = self.initial()
    except Exception as error:  # Of a library for graphics, whichever it is.
      raise PoolError(
          f'{level_name} cannot be shown: {type(error).__name__}: '
          f'{errors.one_line(error)}') from error
    self.observation_spec += (ArraySpec(screen.shape, screen.dtype),)

  def _convert(self, observation):
    (own,) = super()._convert(observation)
    return own, _enlarge(self._render() if self._renders else own)

  def _render(self):
    rendered = self._environment.render()
    screen = np.asarray(rendered)
    if screen.dtype.kind == 'f':  # MinAtar's colours are from 0 to 1.
      screen = (255 * screen).astype(np.uint8)
    if screen.ndim != 3 or screen.shape[2] != 3 or screen.dtype != np.uint8:
      raise contract.refusal(
          'what it renders', rendered, 'uint8 (height, width, 3)')
    return screen


def _renders(environment):
  return 'rgb_array' in environment.metadata.get('render_modes', ())


def _enlarge(screen):
  """Makes squares of the pixels of an image that has few."""
  factor = max(_SMALLEST_SCREEN // max(screen.shape[:2]), 1)
  return screen.repeat(factor, axis=0).repeat(factor, axis=1)


def _cast(value, shape, dtype):
  """Returns an observation as an array, see `GymEnvironment`.

  Args:
    value: Of any type.
    shape: The array's, a tuple.
    dtype: The array's, uint8, bool or float32.

  Raises:
    ContractError: It has another shape, or consists of something else than such
      numbers.
  """
  array = contract.as_array(value, shape, dtype)
  kinds = 'fiub' if dtype.kind == 'f' else 'iub'
  if array.shape == shape and array.dtype.kind in kinds:
    converted = array.astype(dtype, copy=False)
    if dtype.kind == 'f' or converted is array or (converted == array).all():
      return converted
  raise contract.observation_refusal(value, shape, dtype)


def check_actions(level_name, space):
  """Returns the number of actions and the first one, or raises PoolError."""
  import gymnasium
  if not isinstance(space, gymnasium.spaces.Discrete):
    raise PoolError(
        f'{level_name}: action space {space} is no gymnasium.spaces.Discrete'
        f'{_package(space)}')
  return int(space.n), int(space.start)


def _package(space):
  """Names the package of a space that is not Gymnasium's, for a message."""
  module = type(space).__module__
  return '' if module.startswith('gymnasium.') else f' (it is of {module})'


def _observation_spec(level_name, space):
  """Returns the `ArraySpec` for an observation space, or raises PoolError."""
  import gymnasium
  if not isinstance(space, gymnasium.spaces.Box):
    raise PoolError(
        f'{level_name}: observation space {space} is no gymnasium.spaces.Box'
        f'{_package(space)}')
  shape, dtype = tuple(space.shape), np.dtype(space.dtype)
  if len(shape) not in (1, 2, 3):
    raise PoolError(
        f'{level_name}: observation space {space} is neither a vector nor an '
        'image')
  if not np.prod(shape):
    raise PoolError(
        f'{level_name}: observation space {space} is empty')
  if dtype not in (np.uint8, bool) and dtype.kind != 'f':
    raise PoolError(
        f'{level_name}: observation space {space} is neither uint8, bool nor '
        'float')
  if len(shape) == 2:
    shape += (1,)
  is_float = dtype.kind == 'f'
  return ArraySpec(shape, np.dtype(np.float32 if is_float else np.uint8))
