"""Plays environments of Gymnasium: levels named 'gym:<id>', as gym:CartPole-v1.

Supported are discrete actions and observations in a single box, either a vector
or an image. What follows 'gym:' is passed to `gymnasium.make`, so that
'gym:package.module:Name-v0' imports the module that registers 'Name-v0'.
"""

import difflib

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.environments import PoolError
from scalable_agent.environments import contract

PREFIX = 'gym:'

# A namespace of Gymnasium's and the module that registers it.
_NAMESPACE_MODULES = {'ALE': 'ale_py'}


def make_pool(level_name, num_environments, seed, num_action_repeats=1,
              num_processes=None, **kwargs):
  """Makes a pool of one level.

  Args:
    level_name: A string, 'gym:<id>'.
    num_environments: Number of environments, N.
    seed: An int; environment i is seeded with `seed + i`.
    num_action_repeats: Environment steps per action.
    num_processes: See `ReplacingProcessPool`, also for what is in `kwargs`.

  Returns:
    A `ReplacingProcessPool`.

  Raises:
    PoolError: The level is unknown, needs a missing package, or has spaces
      that are not supported.
  """
  # The pool's processes import this module, and have no use for that one.
  from scalable_agent.environments import replacing_pool
  kwargs_per_environment = [
      {'level_name': level_name, 'seed': seed + i,
       'num_action_repeats': num_action_repeats}
      for i in range(num_environments)]
  return replacing_pool.ReplacingProcessPool(
      __name__ + ':make_environment', kwargs_per_environment,
      num_processes=num_processes, **kwargs)


def make_environment(level_name, seed, num_action_repeats=1):
  """Makes one environment, see `GymEnvironment`; raises as `make_pool` does."""
  if num_action_repeats < 1:
    raise PoolError('{}: num_action_repeats {} is less than 1'.format(
        level_name, num_action_repeats))
  return GymEnvironment(level_name, _make(level_name), seed, num_action_repeats)


class GymEnvironment:
  """Gives a Gymnasium environment the interface that `ProcessPool` wants.

  Vectors are float32 (or uint8) [size], images [height, width, channels]. What
  the environment observes has to have the shape of its space. Where the space
  is one of floats, it may consist of numbers of any type, also in a list; where
  it is one of uint8, of whole numbers from 0 to 255.

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
    self.num_actions, self._first_action = _check_actions(
        level_name, environment.action_space)
    spec = _observation_spec(level_name, environment.observation_space)
    self.observation_spec = (spec,)
    self._shape, self._dtype = environment.observation_space.shape, spec.dtype
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
    """Repeats an action until the episode ends or it has been often enough.

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
    if self._adds_channel:
      observation = observation[:, :, np.newaxis]
    return (observation,)


def _cast(value, shape, dtype):
  """Returns an observation as an array, see `GymEnvironment`.

  Args:
    value: Of any type.
    shape: The array's, a tuple.
    dtype: The array's, uint8 or float32.

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


def _make(level_name):
  """Returns the `gymnasium.Env`, or raises PoolError in one line."""
  if not level_name.startswith(PREFIX):
    raise PoolError('{}: level names of Gymnasium start with {}'.format(
        level_name, PREFIX))
  try:
    import gymnasium
  except ImportError as error:
    raise PoolError('{}: Gymnasium cannot be imported: {}'.format(
        level_name, error)) from error
  environment_id = level_name[len(PREFIX):]
  namespace = environment_id.split('/')[0]
  if namespace in _NAMESPACE_MODULES:
    environment_id = '{}:{}'.format(
        _NAMESPACE_MODULES[namespace], environment_id)
  try:
    # The checker would only warn, at a cost in every step.
    return gymnasium.make(environment_id, disable_env_checker=True)
  except gymnasium.error.UnregisteredEnv as error:
    raise PoolError('{}: {}{}'.format(
        level_name, _one_line(error),
        _suggestion(environment_id, gymnasium.registry))) from error
  except (gymnasium.error.Error, ImportError) as error:
    raise PoolError(
        '{}: {}'.format(level_name, _one_line(error))) from error


def _one_line(error):
  return ' '.join(str(error).split())


def _suggestion(environment_id, registry):
  """Returns text to append, naming up to three similar ids."""
  similar = difflib.get_close_matches(
      environment_id.split(':')[-1], list(registry))
  if not similar:
    return ''
  return ' (similar: {})'.format(', '.join(PREFIX + name for name in similar))


def _check_actions(level_name, space):
  """Returns the number of actions and the first one, or raises PoolError."""
  import gymnasium
  if not isinstance(space, gymnasium.spaces.Discrete):
    raise PoolError(
        '{}: action space {} is not Discrete'.format(level_name, space))
  return int(space.n), int(space.start)


def _observation_spec(level_name, space):
  """Returns the `ArraySpec` for an observation space, or raises PoolError."""
  import gymnasium
  if not isinstance(space, gymnasium.spaces.Box):
    raise PoolError(
        '{}: observation space {} is not a Box'.format(level_name, space))
  shape, dtype = tuple(space.shape), np.dtype(space.dtype)
  if len(shape) not in (1, 2, 3):
    raise PoolError(
        '{}: observation space {} is neither a vector nor an image'.format(
            level_name, space))
  if dtype != np.uint8 and dtype.kind != 'f':
    raise PoolError(
        '{}: observation space {} is neither uint8 nor float'.format(
            level_name, space))
  if len(shape) == 2:
    shape += (1,)
  return ArraySpec(shape, dtype if dtype == np.uint8 else np.dtype(np.float32))
