"""Makes the pools of environments that a configuration asks for."""

import os

from scalable_agent import environments


def make_pools(config, num_environments, num_pools, pool_batch_size, seed):
  """Makes pools of the configured level.

  Args:
    config: A `config.Config`.
    num_environments: Environments over all pools.
    num_pools: Number of pools; 0 leaves it to the suite.
    pool_batch_size: Environments that one `recv` hands out; 0 leaves it to the
      suite.
    seed: Every environment gets its own seed from here on.

  Returns:
    A list of `environments.Pool`.

  Raises:
    environments.PoolError: They cannot be made.
  """
  num_pools = num_pools or 1
  size = num_environments // num_pools
  make = {'atari': _make_atari, 'gym': _make_gym, 'dmlab': _make_dmlab}
  pools = []
  try:
    for i in range(num_pools):
      pools.append(make[config.suite](
          config, size, pool_batch_size, num_pools, seed + i * size))
  except BaseException:
    for pool in pools:
      pool.close()
    raise
  return pools


def _make_atari(config, size, pool_batch_size, num_pools, seed):
  from scalable_agent.environments import atari
  # Half of the pool steps while the policy acts for the other half.
  if not pool_batch_size:
    pool_batch_size = size // 2 if num_pools == 1 and size % 2 == 0 else size
  return atari.AtariPool(
      config.level_name, size, seed,
      batch_size=pool_batch_size,
      num_threads=config.environment_threads or os.cpu_count(),
      num_action_repeats=config.num_action_repeats,
      width=config.width,
      height=config.height,
      full_action_set=config.full_action_set)


def _make_gym(config, size, pool_batch_size, num_pools, seed):
  from scalable_agent.environments import gym
  processes = config.environment_threads or os.cpu_count()
  return gym.make_pool(
      config.level_name, size, seed, config.num_action_repeats,
      num_processes=min(max(processes // num_pools, 1), size),
      maximum_batch_size=pool_batch_size or None)


def _make_dmlab(config, *unused_args):
  raise environments.PoolError(
      f'--level_name={config.level_name} is a DeepMind Lab level, which this '
      'version cannot run yet. Choose an Atari game (pong) or gym:<id> '
      '(gym:CartPole-v1).')
