"""The suites of environments, one record each, and what is asked of them.

A new suite is a module here with a `Suite` in it, and an entry in `SUITES`.
Nothing here needs an emulator or TensorFlow to be imported. Most suites import
their engines in functions, since engines load absl, and settings are resolved
without it.
"""

import difflib

from scalable_agent.environments.engines import gym_ids
from scalable_agent.environments.pools import shown_pool
from scalable_agent.suites import atari
from scalable_agent.suites import dmlab
from scalable_agent.suites import gym
from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites import synthetic
from scalable_agent.suites.layout import ONE_ENVIRONMENT
from scalable_agent.suites.layout import PoolLayout
from scalable_agent.suites.suite import Facts
from scalable_agent.suites.suite import Suite

SUITES = (gym.SUITE, synthetic.SUITE, atari.SUITE, dmlab.SUITE)

# Names that are as similar as this to a known one are taken for a mistake.
_SIMILARITY = .75


def find(level_name):
  """Finds the suite that has a level.

  Args:
    level_name: A string. What no suite knows is a level of DeepMind Lab, to
      which users add their own, unless it is similar to one of `Suite.names`
      or looks like the id of an environment of Gymnasium.

  Returns:
    A `Suite`.

  Raises:
    LookupError: None has; the message goes on from the level's name.
  """
  for suite in SUITES:
    if suite.has(level_name):
      return suite
  if not level_name:
    raise LookupError(
        'is no known level. Expected an Atari game in snake case (pong, '
        'space_invaders), atari57 for all of them, gym:<id> '
        '(gym:CartPole-v1), dmlab30 or a level of DeepMind Lab.')
  nearest = _nearest(level_name)
  if nearest:
    raise LookupError(
        f'is no known level. Did you mean {" or ".join(nearest)}? (Name a '
        'level of your own for DeepMind Lab with its folder: '
        f'my_levels/{level_name}.)')
  return dmlab.SUITE


def _nearest(level_name):
  """Returns the names that a user may have meant, the nearest first."""
  if gym_ids.is_like_id(level_name):
    atari_level = gym_ids.atari_level(level_name)
    game = level_name.partition('-')[0]
    if atari_level is None and atari.SUITE.has(game):
      atari_level = game
    return [atari_level or f'gym:{level_name.removeprefix("gym")}']
  return difflib.get_close_matches(
      level_name.casefold(), [name for suite in SUITES for name in suite.names],
      cutoff=_SIMILARITY)


def of(config):
  """Returns the `Suite` of a `config.Config`."""
  (suite,) = [suite for suite in SUITES if suite.name == config.suite]
  return suite


def level_names(config):
  """Returns the levels that a configuration plays, a list, as logged."""
  return of(config).levels(config.level_name, config.mode == 'test')


def find_facts(config):
  """Finds out what environments are like, by making one if need be.

  Args:
    config: A `config.Config`.

  Returns:
    `Facts`.

  Raises:
    environments.PoolError: It cannot be made.
  """
  suite = of(config)
  if suite.find_facts is not None:
    return suite.find_facts(config)
  (pool,) = make_pools(config, ONE_ENVIRONMENT, config.seed)
  pool.close()
  return Facts(pool.num_actions, pool.observation_spec)


def find_actions(config, facts):
  """Finds out what the actions mean.

  Args:
    config: A `config.Config`.
    facts: The `Facts` of its levels.

  Returns:
    A list of pairs, one for each action: what it means, a string; and what the
    environment itself is sent for it, as JSON can hold it.

  Raises:
    environments.PoolError: What knows them cannot be made.
  """
  suite = of(config)
  if suite.find_actions is not None:
    return suite.find_actions(config)
  return [(str(i), i) for i in range(facts.num_actions)]


def choose_layout(config, num_environments):
  """Chooses what the flags leave open, from the machine's cores.

  Args:
    config: A `config.Config`.
    num_environments: Environments over all pools.

  Returns:
    A `PoolLayout`.
  """
  return layout_lib.choose(of(config), config, num_environments)


def turns(config, first, count):
  """Returns the levels of environments, which have them by turns.

  Args:
    config: A `config.Config`.
    first: Number of the first environment. Environment n plays level n modulo
      the number of levels.
    count: Number of environments.

  Returns:
    A list of `count` level names, as logged.
  """
  levels = level_names(config)
  return [levels[n % len(levels)] for n in range(first, first + count)]


def make_pools(config, layout, seed, first=0):
  """Makes pools of the configured level, or of its levels by turns.

  Args:
    config: A `config.Config`.
    layout: A `PoolLayout`.
    seed: Environment n is seeded with `seed + n`.
    first: Number of the first environment, see `turns`.

  Returns:
    A list of `environments.Pool`.

  Raises:
    environments.PoolError: They cannot be made.
  """
  make_pool = of(config).make_pool
  pools = []
  try:
    for n in range(first, first + layout.num_pools * layout.size, layout.size):
      pools.append(make_pool(
          config, turns(config, n, layout.size), layout, seed + n))
  except BaseException:
    for pool in pools:
      pool.close()
    raise
  return pools


def make_shown_pool(config, seed):
  """Makes one environment, and shows it as a person sees it.

  Args:
    config: A `config.Config` of a single level.
    seed: The environment's.

  Returns:
    An `environments.Pool` as `shown_pool.ShownPool`: behind the level's own
    observations there is an image.

  Raises:
    environments.PoolError: It cannot be made, or shown.
  """
  suite = of(config)
  if suite.make_shown_pool is not None:
    return suite.make_shown_pool(config, seed)
  (pool,) = make_pools(config, ONE_ENVIRONMENT, seed)
  return shown_pool.ShownPool(pool)
