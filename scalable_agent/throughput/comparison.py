"""Compares architectures on one machine, as the paper's Table 1 does."""

import dataclasses

from absl import logging

from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.throughput import loop
from scalable_agent.throughput import machine
from scalable_agent.throughput import parts

# Rows of the paper's Table 1 but A3C: name, architecture, dynamic batching.
ARCHITECTURES = (
    ('batched A2C (sync step)', 'a2c_sync_step', True),
    ('batched A2C (sync trajectory)', 'a2c_sync_trajectory', True),
    ('IMPALA', 'impala', False),
    ('IMPALA (dynamic batching)', 'impala', True))


def compare(configs, seconds):
  """Runs every architecture on every level.

  Args:
    configs: A list of `config.Config`s of batched A2C, one for each level.
    seconds: For each.

  Returns:
    A dict of `levels`: level to a list, in the order of `ARCHITECTURES`, of
    dicts `name`, `architecture`, what `loop.measure_loop` returns, and
    `environment_utilisation` by the environments alone; and `machine`.
  """
  results = {}
  for config in configs:
    level = config.level_name
    devices = devices_assembly.choose(config)
    impala = dataclasses.replace(config, architecture='impala')
    logging.info('Measuring the environments of %s alone for %g s', level,
                 seconds)
    with parts.open_pools(impala) as pools:
      environments = parts.measure_environments(impala, pools, seconds).rate
    results[level] = []
    for name, architecture, dynamic in ARCHITECTURES:
      logging.info('Measuring %s on %s for %g s', name, level, seconds)
      figures = loop.measure_loop(
          dataclasses.replace(
              config, architecture=architecture,
              pool_batch_size=config.pool_batch_size if dynamic else 1),
          devices, seconds)
      results[level].append(dict(
          figures, name=name, architecture=architecture,
          environment_utilisation=figures['whole'] / environments))
  return dict(levels=results, machine=machine.describe())


def show(comparison):
  """Prints what `compare` returns."""
  for level, rows in comparison['levels'].items():
    print(level)
    for row in rows:
      print(f'  {row["name"]:32s} {row["whole"]:10.0f} frames/s '
            f'{100 * row["environment_utilisation"]:6.1f} % of the '
            f'environments alone, {row["cores"]:.2f} cores')
