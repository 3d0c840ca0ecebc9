"""Measures the learner and the policy alone, with batches of several sizes.

On a new machine, above all on one with a GPU, it says what these cost there,
whatever its environments take.
"""

import dataclasses
import time

from absl import logging
import tensorflow as tf

from scalable_agent import policy as policy_lib
from scalable_agent.assembly import agent as agent_assembly
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
    `learner`, a dict of batch size to what `_measure_updates` returns; and
    `machine` and `config`, of the first. A batch that does not fit into the
    device's memory has None.

  Raises:
    ConfigError: What a configuration holds does not fit into the machine's
      memory.
  """
  pool, *others = parts.make_pools(configs[0])
  try:
    output = pool.recv()
    pool.send(output.ids, output.ids * 0)
    step_output = output.step_output
    for config in configs:
      memory_assembly.check(
          config, agent_assembly.create_agent(config, pool), pool)
    return dict(
        inference_by_batch=_measure_policy(
            configs[0], pool, step_output, policy_sizes, seconds / 4),
        learner={
            str(config.batch_size): _measure_updates(
                config, pool, step_output, seconds) for config in configs},
        machine=machine.describe(), config=dataclasses.asdict(configs[0]))
  finally:
    for each in [pool, *others]:
      each.close()


def _measure_policy(config, pool, step_output, sizes, seconds):
  """Returns a dict of batch size to frames per second."""
  logging.info('Measuring the policy for %g s at each batch size', seconds)
  devices = parts.choose_devices(config)
  agent = agent_assembly.create_agent(config, pool)
  policy = policy_lib.Policy(
      agent, agent.initial_params(config.seed), 0, config.seed,
      devices.inference, devices.jit_compile)
  rates = {}
  for size in sizes:
    name = f'inference, batch {size}'
    try:
      rate = parts.measure_inference(
          config, step_output, policy, agent, [size], seconds)[size].rate
    except tf.errors.ResourceExhaustedError:
      rate = None
      _print_too_large(name, devices.inference)
    else:
      _print_rate(name, rate)
    rates[str(size)] = rate
  return rates


def _measure_updates(config, pool, step_output, seconds):
  """Measures updates with one batch size.

  Returns:
    A dict of `alone`, frames per second on a batch that stays on the device;
    `staged`, on batches that are made of unrolls meanwhile; `first_update`, the
    seconds that the first took, compilation included; and `memory_mib`, of the
    learner's first GPU at the most, None on a CPU. None if the batch does not
    fit.
  """
  devices = parts.choose_devices(config)
  name = f'learner, batch {config.batch_size}'
  logging.info('Measuring updates on %d unrolls for %g s', config.batch_size,
               2 * seconds)
  try:
    row = _measure_updates_on(devices, config, pool, step_output, seconds)
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


def _measure_updates_on(devices, config, pool, step_output, seconds):
  agent = agent_assembly.create_agent(config, pool)
  learner = learner_assembly.create_learner(config, agent, devices)
  device = devices.learner[0].lstrip('/').upper()
  is_gpu = device.startswith('GPU')
  if is_gpu:
    tf.config.experimental.reset_memory_stats(device)
  placed = parts.placed_batch(config, step_output, agent, learner)
  start = time.perf_counter()
  learner.step(placed)
  first_update = time.perf_counter() - start
  del placed  # Else the device holds one batch more than in a run.
  alone = parts.measure_learner(config, step_output, agent, learner, seconds)
  staged = parts.measure_staged(
      config, pool, step_output, agent, learner, pool.num_environments, seconds)
  memory = (tf.config.experimental.get_memory_info(device)['peak'] / 2**20
            if is_gpu else None)
  return dict(alone=alone.rate, staged=staged.rate, first_update=first_update,
              memory_mib=memory)


def _print_rate(name, rate, more=''):
  print(f'{name:24s} {rate:10.0f} frames/s{more}', flush=True)


def _print_too_large(name, device):
  print(f'{name:24s} needs more memory than {device} has', flush=True)
