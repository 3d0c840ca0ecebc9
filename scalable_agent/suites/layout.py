"""How environments are spread over pools, and pools over cores."""

import collections

from scalable_agent.machine import cores as machine_cores

PoolLayout = collections.namedtuple(
    'PoolLayout', 'num_pools size minimum_batch_size maximum_batch_size '
    'num_workers')
PoolLayout.__doc__ = """How environments are spread.

  num_pools: Pools, each driven by its own actor thread.
  size: Environments per pool.
  minimum_batch_size: Environments that a pool waits for before it hands them
    out (Atari: equal to the maximum).
  maximum_batch_size: Environments that a pool hands out at once at the most. A
    pool of several games hands out all environments of a game together, which
    may be more.
  num_workers: Threads (Atari) or processes (others) per pool.
"""
ONE_ENVIRONMENT = PoolLayout(1, 1, 1, 1, 1)


def choose(suite, config, num_environments):
  """Chooses what the flags leave open, from the machine's cores.

  Args:
    suite: The `Suite` of the configuration.
    config: A `config.Config`.
    num_environments: Environments over all pools.

  Returns:
    A `PoolLayout`.
  """
  # Actor jobs share a machine with others: each is laid out for one core.
  num_cores = 1 if config.is_actor_job else machine_cores.count()
  is_fixed = suite.has_fixed_batches
  # Where batches are fixed, environments that wait for each other's unrolls
  # step together all the time.
  lockstep = config.architecture == 'a2c_sync_step' or (
      config.architecture == 'a2c_sync_trajectory' and is_fixed)
  num_pools = config.num_pools
  if config.architecture == 'a3c':
    num_pools = num_environments
  elif not num_pools:
    # One pool in lockstep would be `a2c_sync_step`. Two are not possible with
    # --pool_batch_size, which half of the environments could not fill.
    num_pools = 2 if (config.architecture == 'a2c_sync_trajectory' and is_fixed
                      and num_environments % 2 == 0
                      and not config.pool_batch_size) else 1
  size = num_environments // num_pools

  maximum = config.pool_batch_size or size
  # Only a pool with fixed batches keeps its levels apart.
  num_levels = (len(suite.levels(config.level_name, config.mode == 'test'))
                if is_fixed else 1)
  # Whether environments can step while the policy acts for others.
  overlaps = num_cores > 1 or config.inference == 'learner'
  if is_fixed and overlaps and not lockstep and not config.pool_batch_size:
    # Half of the pool steps while the policy acts for the other half.
    if num_levels > 1:
      maximum = -(-size // 2)
    else:
      maximum = size // 2 if num_pools == 1 and size % 2 == 0 else size
  minimum = maximum if is_fixed or lockstep else 1

  threads = config.environment_threads
  num_workers = suite.num_workers(
      size, num_levels, max(threads // num_pools, 1) if threads else 0,
      max(num_cores // num_pools, 1))
  return PoolLayout(num_pools, size, minimum, maximum, num_workers)


def refuse_too_few(config, num_levels, noun):
  """Refuses a run on one machine that leaves out levels of its suite.

  Args:
    config: A `config.Config` of a suite with several levels.
    num_levels: How many levels the suite has.
    noun: What they are called, in the plural.

  Returns:
    As `Suite.refuse`: None, or a setting's name and a clause that says why.
  """
  if (config.task < 0 and config.is_learner and
      config.num_actors < num_levels):
    return ('num_actors', f'{config.level_name} needs one for each of '
            f'{num_levels} {noun}')
  return None


def process_pool_options(config, layout):
  """Returns the arguments of a `ProcessPool` that are not a suite's.

  Args:
    config: A `config.Config`.
    layout: A `PoolLayout`.

  Returns:
    A dict of name to value.
  """
  return dict(
      step_timeout_seconds=config.environment_timeout_secs,
      start_timeout_seconds=config.environment_start_timeout_secs,
      num_processes=layout.num_workers,
      minimum_batch_size=layout.minimum_batch_size,
      maximum_batch_size=layout.maximum_batch_size)
