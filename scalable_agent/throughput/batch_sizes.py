"""Measures the learner and the policy alone, with batches of several sizes.

It says what these cost on a new machine, above all on one with a GPU, however
slow its environments are.
"""

import dataclasses
import time

from absl import logging
import tensorflow as tf

from scalable_agent import policy as policy_lib
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.throughput import machine
from scalable_agent.throughput import parts


def measure(configs, policy_sizes, seconds):
  """Measures the policy, and updates alone and with staging; prints each.

  Args:
    configs: A list of `config.Config`s, which differ in their batch size and
      what follows from it.
    policy_sizes: Batch sizes to measure the policy with.
    seconds: To measure updates for, twice for each size; the policy is measured
      for a quarter of it at each size.

  Returns:
    A dict of `inference_by_batch`, a dict of batch size to frames per second;
    `learner`, a dict of batch size to what `_measure_updates` returns;
    `machine`; and `config`, the first one. A batch that does not fit into the
    device's memory has None.

  Raises:
    ConfigError: What a configuration holds does not fit into the machine's
      memory.
  """
  # TensorFlow's threads cannot be changed once it runs.
  devices = parts.choose_devices(configs[0])
  with parts.open_pools(configs[0]) as pools:
    bench = parts.make_bench(configs[0], pools[0])
    for config in configs:
      memory_assembly.check(config, bench.agent, bench.pool)
    return dict(
        inference_by_batch=_measure_policy(
            bench, devices, policy_sizes, seconds / 4),
        learner={
            str(config.batch_size): _measure_updates(
                bench._replace(config=config), seconds) for config in configs},
        machine=machine.describe(), config=dataclasses.asdict(configs[0]))


def _measure_policy(bench, devices, sizes, seconds):
  """Returns a dict of batch size to frames per second."""
  config, agent = bench.config, bench.agent
  logging.info('Measuring the policy for %g s at each batch size', seconds)
  policy = policy_lib.Policy(
      agent, agent.initial_params(config.seed), 0, config.seed,
      devices.inference, devices.jit_compile)
  rates = {}
  for size in sizes:
    name = f'inference, batch {size}'
    try:
      rate = parts.measure_inference(bench, policy, [size], seconds)[size].rate
    except tf.errors.ResourceExhaustedError:
      rate = None
      _print_too_large(name, devices.inference)
    else:
      _print_rate(name, rate)
    rates[str(size)] = rate
  return rates


def _measure_updates(bench, seconds):
  """Measures updates with one batch size.

  Returns:
    A dict of `alone`, frames per second on a batch that stays on the device;
    `staged`, on batches that are joined and placed meanwhile; `first_update`,
    the seconds that the first took, compilation included; and `memory_mib`, of
    the learner's first GPU at the most, None on a CPU. None if the batch does
    not fit.
  """
  devices = parts.choose_devices(bench.config)
  batch_size = bench.config.batch_size
  name = f'learner, batch {batch_size}'
  logging.info(
      'Measuring updates on %d unrolls for %g s', batch_size, 2 * seconds)
  try:
    row = _measure_updates_on(devices, bench, seconds)
  except tf.errors.ResourceExhaustedError:
    _print_too_large(name, devices.learner[0])
    return None
  memory = row['memory_mib']
  _print_rate(
      name, row['alone'],
      f' alone, {row["staged"]:.0f} with staging '
      f'({100 * row["staged"] / row["alone"]:.1f} %); the first update took '
      f'{row["first_update"]:.1f} s'
      + ('' if memory is None else f'; {memory:.0f} MiB of the device'))
  return row


def _measure_updates_on(devices, bench, seconds):
  learner = learner_assembly.create_learner(bench.config, bench.agent, devices)
  bench = bench._replace(learner=learner)
  device = devices.learner[0].lstrip('/').upper()
  is_gpu = device.startswith('GPU')
  if is_gpu:
    tf.config.experimental.reset_memory_stats(device)
  placed = parts.placed_batch(bench)
  start = time.perf_counter()
  learner.step(placed)
  first_update = time.perf_counter() - start
  del placed  # Otherwise the device holds one batch more than in a run.
  alone = parts.measure_learner(bench, seconds)
  staged = parts.measure_staging(bench, learner.step, seconds)
  memory = (tf.config.experimental.get_memory_info(device)['peak'] / 2**20
            if is_gpu else None)
  return dict(alone=alone.rate, staged=staged.rate, first_update=first_update,
              memory_mib=memory)


def _print_rate(name, rate, more=''):
  print(f'{name:24s} {rate:10.0f} frames/s{more}', flush=True)


def _print_too_large(name, device):
  print(f'{name:24s} needs more memory than {device} has', flush=True)
