"""The suites of environments, one record each, and what is asked of them.

A new suite is a module here with a `Suite` in it, and an entry in `SUITES`.
Nothing here needs an emulator or TensorFlow to be imported.
"""

import difflib

from scalable_agent.suites import atari
from scalable_agent.suites import dmlab
from scalable_agent.suites import gym
from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites import synthetic
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
      which users add their own, unless it is similar to one of `Suite.names`.

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
  nearest = difflib.get_close_matches(
      level_name, [name for suite in SUITES for name in suite.names],
      cutoff=_SIMILARITY)
  if nearest:
    raise LookupError(
        f'is no known level. Did you mean {" or ".join(nearest)}? (Name a '
        'level of your own for DeepMind Lab with its folder: '
        f'my_levels/{level_name}.)')
  return dmlab.SUITE


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
  pool = suite.make_pool(config, PoolLayout(1, 1, 1, 1, 1), config.seed)
  pool.close()
  return Facts(pool.num_actions, pool.observation_spec)


def choose_layout(config, num_environments):
  """Chooses what the flags leave open, from the machine's cores.

  Args:
    config: A `config.Config`.
    num_environments: Environments over all pools.

  Returns:
    A `PoolLayout`.
  """
  return layout_lib.choose(of(config), config, num_environments)


def make_pools(config, layout, seed):
  """Makes pools of the configured level.

  Args:
    config: A `config.Config`.
    layout: A `PoolLayout`.
    seed: Every environment gets its own seed from here on.

  Returns:
    A list of `environments.Pool`.

  Raises:
    environments.PoolError: They cannot be made.
  """
  make_pool = of(config).make_pool
  pools = []
  try:
    for i in range(layout.num_pools):
      pools.append(make_pool(config, layout, seed + i * layout.size))
  except BaseException:
    for pool in pools:
      pool.close()
    raise
  return pools


def make_screens(config, seed):
  """Makes what shows an episode as a person sees it.

  Args:
    config: A `config.Config` of a single level.
    seed: That of the one environment it shows.

  Returns:
    A pool of one environment that, sent the same actions, plays the same
    episode as another of this seed, and observes RGB frames. None if the
    level's own observations have to do.

  Raises:
    environments.PoolError: It cannot be made.
  """
  return of(config).make_screens(config, seed)
