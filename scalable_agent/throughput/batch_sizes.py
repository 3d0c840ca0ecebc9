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
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.process import errors
from scalable_agent.throughput import machine
from scalable_agent.throughput import parts


def measure(configs, policy_sizes, seconds):
  """Measures updates, alone and with staging, and the policy; prints each.

  Args:
    configs: A list of `config.Config`s that differ in their batch size.
    policy_sizes: Batch sizes to measure the policy with.
    seconds: To measure updates for, twice for each size, and the policy for a
      quarter of it.

  Returns:
    A dict of `learner`, a dict of batch size to what `_measure_updates`
    returns; `inference_by_batch`, a dict of batch size to frames per second;
    and `machine` and `config`, of the first.

  Raises:
    Failure: A batch does not fit into the device's memory.
  """
  config = configs[0]
  devices = devices_assembly.choose(config)
  pool, *others = parts.make_pools(config)
  try:
    output = pool.recv()
    pool.send(output.ids, output.ids * 0)
    step_output = output.step_output
    updates = {}
    for each in configs:
      logging.info('Measuring updates on %d unrolls for %g s', each.batch_size,
                   2 * seconds)
      try:
        row = _measure_updates(each, devices, pool, step_output, seconds)
      except tf.errors.ResourceExhaustedError:
        raise errors.Failure(
            f'Updates on {each.batch_size} unrolls need more memory than '
            f'{devices.learner[0]} has. Leave {each.batch_size} out of '
            '--batch_sizes.') from None
      _print_updates(each.batch_size, row)
      updates[str(each.batch_size)] = row
    agent = agent_assembly.create_agent(config, pool)
    weights = learner_assembly.create_learner(config, agent, devices).weights()
    policy = policy_lib.Policy(
        agent, weights, 0, config.seed, devices.inference,
        devices.jit_compile)
    logging.info('Measuring the policy for %g s', seconds / 4)
    by_batch = parts.measure_inference(
        config, step_output, policy, agent, policy_sizes, seconds / 4)
    rates = {str(size): part.rate for size, part in by_batch.items()}
    for size, rate in rates.items():
      _print_rate(f'inference, batch {size}', rate)
    return dict(
        learner=updates, inference_by_batch=rates,
        machine=machine.describe(), config=dataclasses.asdict(config))
  finally:
    for each in [pool, *others]:
      each.close()


def _measure_updates(config, devices, pool, step_output, seconds):
  """Measures updates with one batch size.

  Returns:
    A dict of `alone`, frames per second on a batch that stays on the device;
    `staged`, on batches that are made of unrolls meanwhile; `first_update`,
    the seconds that the first took, compilation included; and
    `memory_mib`, of the device at the most, None on a CPU.
  """
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
  alone = parts.measure_learner(config, step_output, agent, learner, seconds)
  staged = parts.measure_staged(
      config, pool, step_output, agent, learner, pool.num_environments, seconds)
  memory = (tf.config.experimental.get_memory_info(device)['peak'] / 2**20
            if is_gpu else None)
  return dict(alone=alone.rate, staged=staged.rate, first_update=first_update,
              memory_mib=memory)


def _print_rate(name, rate, more=''):
  print(f'{name:24s} {rate:10.0f} frames/s{more}', flush=True)


def _print_updates(size, row):
  memory = row['memory_mib']
  _print_rate(
      f'learner, batch {size}', row['alone'],
      f' alone, {row["staged"]:.0f} with staging '
      f'({100 * row["staged"] / row["alone"]:.1f} %); the first update took '
      f'{row["first_update"]:.1f} s'
      + ('' if memory is None else f'; {memory:.0f} MiB of the device'))
