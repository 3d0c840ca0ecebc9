"""Plays whole episodes with a trained agent."""

import contextlib
import dataclasses
import time

from absl import logging
import numpy as np
import tree

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent.config import seeds

_MAX_ENVIRONMENTS = 32
# Episodes of Atari have 27,000 agent steps at most. One that has so many may
# never end.
_MAX_STEPS = 10**6
_LOG_SECONDS = 60.


def seed(config):
  """Returns the seed of a configuration's test episodes.

  They start from other no-ops and resets than training episodes.
  """
  return seeds.derive(config.seed, seeds.TESTS)


def play_level(config, policy, agent, on_episode=lambda episode: None,
               on_pool=lambda pool: None):
  """Plays `test_num_episodes` episodes of a level, from their starts.

  Args:
    config: A `config.Config` of a single level, in test mode.
    policy: As for `actor.Actor`.
    agent: The `networks.Agent` or `networks.ReactorAgent` of the policy.
    on_episode: As for `play`.
    on_pool: Called with the `environments.Pool`, which is closed at the end.

  Returns:
    A list of `Episode`s.

  Raises:
    environments.PoolError: An environment cannot be made, or died.
  """
  size = min(config.test_num_episodes, _MAX_ENVIRONMENTS)
  layout = suites.choose_layout(dataclasses.replace(
      config, architecture='impala', num_pools=1, pool_batch_size=size), size)
  (pool,) = suites.make_pools(config, layout, seed(config))
  with contextlib.closing(pool):
    on_pool(pool)
    return play(pool, policy, agent.initial_state(size),
                config.num_action_repeats, config.test_num_episodes, on_episode)


def play(pool, policy, initial_state, num_action_repeats, num_episodes,
         on_episode=lambda episode: None):
  """Plays episodes, actions sampled from the policy.

  Each environment plays a number of episodes that is settled beforehand.
  Counting whichever episodes finish first would favour short ones.

  Args:
    pool: An `environments.Pool` of N environments.
    policy: As for `actor.Actor`.
    initial_state: Core state, [N, ...].
    num_action_repeats: Environment frames per agent step.
    num_episodes: Episodes over all environments.
    on_episode: Called with each `Episode` that counts.

  Returns:
    A list of `num_episodes` `Episode`s.

  Raises:
    environments.PoolError: An environment died, or its episode does not end.
  """
  size = pool.num_environments
  remaining = np.full([size], num_episodes // size)
  remaining[:num_episodes % size] += 1
  core_state = tree.map_structure(np.copy, initial_state)
  last_actions = np.zeros([size], np.int32)
  episodes = []
  lengths = _Lengths()
  while remaining.any():
    ids, env_output, is_first, is_last = pool.recv()
    # One that takes the place of another has no last action.
    last_actions[ids[is_first]] = 0
    counts = is_last & (remaining[ids] > 0)
    remaining[ids[counts]] -= 1
    for episode in actor.finished_episodes(
        pool.level_names, ids, env_output.info, counts, num_action_repeats):
      episodes.append(episode)
      on_episode(episode)
    steps = np.where(remaining[ids] > 0, env_output.info.episode_step, 0)
    lengths.check(pool.level_names[ids[steps.argmax()]], steps.max())
    states = tree.map_structure(lambda a: a[ids], core_state)
    output, states, _ = policy(
        last_actions[ids], env_output._replace(info=()), states)
    pool.send(ids, output.action)
    last_actions[ids] = output.action
    for mine, theirs in zip(tree.flatten(core_state), tree.flatten(states)):
      mine[ids] = theirs
  return episodes


class _Lengths:
  """Logs how long episodes are, and refuses those that do not end."""

  def __init__(self):
    self._logged_time = time.monotonic()

  def check(self, level_name, steps):
    """Takes the level of the longest episode, and its agent steps so far."""
    if steps >= _MAX_STEPS:
      raise environments.PoolError(
          f'An episode of {level_name} has had {steps:,} agent steps and has '
          'not ended. Give its environment a limit, such as max_episode_steps '
          'of Gymnasium.')
    if time.monotonic() - self._logged_time > _LOG_SECONDS:
      self._logged_time = time.monotonic()
      logging.info('Playing %s: the longest episode has had %d agent steps so '
                   'far.', level_name, steps)
