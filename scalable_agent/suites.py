"""Makes the pools of environments that a configuration asks for."""

import collections
import functools
import itertools
import os

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent.environments import dmlab

PoolLayout = collections.namedtuple(
    'PoolLayout', 'num_pools size minimum_batch_size maximum_batch_size '
    'num_workers')
PoolLayout.__doc__ = """How environments are spread.

  num_pools: Pools, each driven by its own actor thread.
  size: Environments per pool.
  minimum_batch_size: Environments that a pool waits for before it hands them
    out (Atari: equal to the maximum).
  maximum_batch_size: Environments that a pool hands out at once at the most.
  num_workers: Threads (Atari) or processes (others) per pool.
"""


Facts = collections.namedtuple('Facts', 'num_actions observation_spec')
Facts.__doc__ = """What is the same in all environments, see `Pool`."""


def level_names(config):
  """Returns the levels that a configuration plays, a list, as logged."""
  if config.level_name == 'atari57':
    return list(atari57.GAMES)
  if config.suite != 'dmlab':
    return [config.level_name]
  names = (list(dmlab30.LEVEL_MAPPING) if config.level_name == 'dmlab30' else
           [dmlab.short_name(config.level_name)])
  return ([dmlab.test_twin(name) for name in names] if config.mode == 'test'
          else names)


def find_facts(config):
  """Finds out what environments are like, by making one if need be.

  Args:
    config: A `config.Config`.

  Returns:
    `Facts`.

  Raises:
    environments.PoolError: It cannot be made.
  """
  if config.suite == 'dmlab':
    # A learner needs no DeepMind Lab where others act.
    if config.mode == 'test':
      dmlab.check(level_names(config), config.dataset_path)
    return Facts(dmlab.NUM_ACTIONS,
                 dmlab.observation_spec(config.height, config.width))
  (pool,) = make_pools(config, PoolLayout(1, 1, 1, 1, 1), config.seed)
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
  # Actor jobs share a machine with others: each is laid out for one core.
  num_cores = 1 if config.is_actor_job else len(os.sched_getaffinity(0))
  # Whether environments can step while the policy acts for others.
  overlaps = num_cores > 1 or config.inference == 'learner'
  is_atari = config.suite == 'atari'
  lockstep = config.architecture == 'a2c_sync_step' or (
      config.architecture == 'a2c_sync_trajectory' and is_atari)
  num_pools = config.num_pools
  if not num_pools:
    # Within a pool, Atari games that wait for each other's unrolls all step
    # together, so that with one pool this would be `a2c_sync_step`.
    num_pools = 2 if (config.architecture == 'a2c_sync_trajectory' and is_atari
                      and num_environments % 2 == 0) else 1
  size = num_environments // num_pools

  maximum = config.pool_batch_size or size
  if is_atari and overlaps and not lockstep and not config.pool_batch_size:
    # Half of the pool steps while the policy acts for the other half.
    if len(level_names(config)) > 1:
      maximum = -(-size // 2)
    else:
      maximum = size // 2 if num_pools == 1 and size % 2 == 0 else size
  minimum = maximum if is_atari or lockstep else 1

  num_workers = config.environment_threads
  if not num_workers and config.suite == 'synthetic':
    num_workers = num_environments  # They sleep, and so need no core each.
  num_workers = max((num_workers or num_cores) // num_pools, 1)
  if config.suite == 'dmlab':
    num_workers = size
  elif not is_atari:
    num_workers = min(num_workers, size)
  return PoolLayout(num_pools, size, minimum, maximum, num_workers)


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
  make = {'atari': _make_atari, 'gym': _make_gym, 'dmlab': _make_dmlab,
          'synthetic': _make_synthetic}[config.suite]
  pools = []
  try:
    for i in range(layout.num_pools):
      pools.append(make(config, layout, seed + i * layout.size))
  except BaseException:
    for pool in pools:
      pool.close()
    raise
  return pools


def _make_atari(config, layout, seed):
  from scalable_agent.environments import atari
  from scalable_agent.environments import composite_pool
  levels = level_names(config)
  make = functools.partial(
      atari.AtariPool,
      num_action_repeats=config.num_action_repeats,
      width=config.width,
      height=config.height,
      full_action_set=config.full_action_set)
  if len(levels) == 1:
    return make(levels[0], layout.size, seed,
                batch_size=layout.maximum_batch_size,
                num_threads=layout.num_workers)
  sizes = collections.Counter(
      level for level, _ in zip(itertools.cycle(levels), range(layout.size)))
  members = []
  for level, size in sizes.items():
    members.append(make(level, size, seed, num_threads=1))
    seed += size
  return composite_pool.CompositePool(members, layout.maximum_batch_size)


def make_screens(config, seed):
  """Makes what shows a game as a person sees it.

  Args:
    config: A `config.Config` of a single level.
    seed: That of the one environment it shows.

  Returns:
    A pool of one environment that, sent the same actions, plays the same game
    as another of this seed, and observes RGB frames; None if the level's own
    observations have to do.

  Raises:
    environments.PoolError: It cannot be made.
  """
  if config.suite != 'atari':
    return None
  from scalable_agent.environments import atari
  return atari.AtariPool(
      config.level_name, 1, seed, num_threads=1,
      num_action_repeats=config.num_action_repeats,
      width=atari.SCREEN_WIDTH, height=atari.SCREEN_HEIGHT,
      full_action_set=config.full_action_set, colour=True)


def _process_pool_options(layout):
  return dict(
      num_processes=layout.num_workers,
      minimum_batch_size=layout.minimum_batch_size,
      maximum_batch_size=layout.maximum_batch_size,
      # Whoever wants more than one environment at a time wants all of them.
      timeout_ms=None)


def _make_gym(config, layout, seed):
  from scalable_agent.environments import gym
  return gym.make_pool(
      config.level_name, layout.size, seed, config.num_action_repeats,
      **_process_pool_options(layout))


def _make_synthetic(config, layout, seed):
  from scalable_agent.environments import synthetic
  return synthetic.make_pool(
      config.level_name, layout.size, seed, config.height, config.width,
      **_process_pool_options(layout))


def _make_dmlab(config, layout, seed):
  levels = level_names(config)
  return dmlab.make_pool(
      [levels[i % len(levels)] for i in range(layout.size)], seed,
      config.height, config.width, config.num_action_repeats,
      config.dataset_path, config.level_cache_dir, config.mode == 'test',
      **_process_pool_options(layout))
