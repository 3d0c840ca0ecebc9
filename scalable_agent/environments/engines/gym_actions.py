"""Finds out what the actions of Gymnasium's environments mean.

Only the environment itself can say, and it may be a user's code, some of which
cannot run in a process that has loaded TensorFlow. So a worker of a pool makes
it, like those that play, and hands over the meanings as an observation.
"""

import json

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.environments.engines import gym
from scalable_agent.environments.engines import gym_ids


def find_actions(level_name, **kwargs):
  """Finds out what the actions of a level mean.

  Args:
    level_name: A string, 'gym:<id>'.
    **kwargs: See `ProcessPool`.

  Returns:
    A list of pairs, one for each action: what it means, if the environment says
    so, or its number; and the number that the environment takes.

  Raises:
    PoolError: The level cannot be made.
  """
  # The pool's process imports this module, and has no use for that one.
  from scalable_agent.environments.pools import process_pool
  pool = process_pool.ProcessPool(
      __name__ + ':make_described_actions', [{'level_name': level_name}],
      **kwargs)
  try:
    (text,) = pool.recv().step_output.observation
  finally:
    pool.close()
  return [tuple(action) for action in json.loads(text.tobytes())]


def make_described_actions(level_name):
  """Makes what a `ProcessPool` can hold, see `DescribedActions`."""
  environment = gym_ids.make(level_name)
  try:
    count, first = gym.check_actions(level_name, environment.action_space)
    numbers = range(first, first + count)
    meanings = _action_meanings(environment) or map(str, numbers)
    return DescribedActions(level_name, list(zip(meanings, numbers)))
  finally:
    environment.close()


class DescribedActions:
  """Observes what the actions of a level are: JSON, as bytes; has no steps.

  Attributes:
    level_name: A string.
    num_actions: As of the level.
    observation_spec: A tuple of one `ArraySpec`.
  """

  def __init__(self, level_name, actions):
    """Initializes it with a list of pairs, see `find_actions`."""
    self.level_name = level_name
    self.num_actions = len(actions)
    self._text = np.frombuffer(json.dumps(actions).encode(), np.uint8)
    self.observation_spec = (ArraySpec(self._text.shape, self._text.dtype),)

  def initial(self):
    return (self._text,)

  def step(self, action):
    raise NotImplementedError

  def close(self):
    """There is nothing to close."""


def _action_meanings(environment):
  """Returns a list of strings, or None if the environment's are not known.

  The names are those of the innermost environment, whose actions may not be
  those that it takes from outside.
  """
  import gymnasium
  innermost = environment.unwrapped
  meanings = getattr(innermost, 'get_action_meanings', None)
  if meanings is None or environment.action_space != innermost.action_space:
    return None
  while environment is not innermost:
    if isinstance(environment, gymnasium.ActionWrapper):
      return None
    environment = environment.env
  meanings = list(map(str, meanings()))
  return meanings if len(meanings) == innermost.action_space.n else None
