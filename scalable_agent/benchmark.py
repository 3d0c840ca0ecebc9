r"""Measures the parts of the training loop alone, and the whole loop.

    python -m scalable_agent.benchmark --level_name=pong

takes the experiment's flags. The ideal is what the machine would reach if the
parts took turns on all cores without a moment lost:

    1 / (1 / environments + 1 / inference + 1 / learner)
"""

import dataclasses
import json
import sys
import tempfile
import threading
import time

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import devices as devices_lib
from scalable_agent import experiment
from scalable_agent import inference
from scalable_agent import networks
from scalable_agent import staging
from scalable_agent import suites
from scalable_agent import training
from scalable_agent.environments import PoolError

FLAGS = flags.FLAGS

flags.DEFINE_float(
    'measure_secs', 10., 'Seconds to measure each part for, after a warm-up of '
    'a fifth of it.')
flags.DEFINE_string('json', '', 'File to write the figures to as JSON.')


def _rate(work, seconds):
  """Calls `work`, which returns frames done, and returns frames per second."""
  def repeat(seconds):
    frames = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
      frames += work()
    return frames / (time.perf_counter() - start)

  work()
  repeat(seconds / 5)
  return repeat(seconds)


def measure_environments(config, pools, seconds):
  """Environment frames per second with random actions and nothing else."""
  rng = np.random.default_rng(config.seed)
  frames = [0] * len(pools)
  stop = threading.Event()

  def drive(i, pool):
    while not stop.is_set():
      ids = pool.recv().ids
      pool.send(ids, rng.integers(0, pool.num_actions, len(ids)))
      frames[i] += len(ids) * config.num_action_repeats

  threads = [threading.Thread(target=drive, args=pair)
             for pair in enumerate(pools)]
  for thread in threads:
    thread.start()

  time.sleep(seconds / 5)
  before, start = sum(frames), time.perf_counter()
  time.sleep(seconds)
  rate = (sum(frames) - before) / (time.perf_counter() - start)
  stop.set()
  for thread in threads:
    thread.join()
  return rate


def measure_inference(config, output, policy, initial_state, seconds):
  """Environment frames per second of the policy alone, on one pool's batch."""
  size = len(output.ids)
  actions = np.zeros([size], np.int32)
  env_output = output.step_output._replace(info=())
  state = tf.nest.map_structure(lambda a: a[:size], initial_state)

  def work():
    policy(actions, env_output, state)
    return size * config.num_action_repeats

  return _rate(work, seconds)


def measure_learner(config, output, agent, learner, seconds):
  """Environment frames per second of updates alone, on one placed batch."""
  zeros = networks.AgentOutput(
      np.int32(0), np.zeros([agent.num_actions], np.float32), np.float32(0))
  repeat = lambda a: np.repeat(
      np.asarray(a)[np.newaxis], config.unroll_length + 1, axis=0)
  unroll = staging.ActorOutput(
      level_name=config.level_name,
      agent_state=tf.nest.map_structure(
          lambda a: a[0], agent.initial_state(1)),
      env_outputs=tf.nest.map_structure(
          lambda a: repeat(a[0]), output.step_output),
      agent_outputs=tf.nest.map_structure(repeat, zeros),
      policy_version=0)
  placed = learner.place(
      staging.stack_time_major([unroll] * config.batch_size))

  def work():
    learner.step(placed)
    return config.frames_per_step

  return _rate(work, seconds)


def measure_whole(config, pools, devices, seconds):
  """Environment frames per second of the training loop."""
  run = training.Run(config, pools, devices)
  stop = threading.Event()

  def work():
    run.train_on(run.next_batch(stop))
    return config.frames_per_step

  try:
    return _rate(work, seconds)
  finally:
    run.close()


def measure(config, seconds):
  """Measures all parts.

  Args:
    config: A `config.Config`.
    seconds: For each part.

  Returns:
    A dict of environment frames per second: `environments`, `inference`,
    `learner`, `ideal` and `whole`; and `efficiency`, whole / ideal.
  """
  devices = devices_lib.choose_devices(config.num_learner_devices, config.xla)
  make_pools = lambda: suites.make_pools(
      config, config.num_actors, config.num_pools, config.pool_batch_size,
      config.seed)
  pools = make_pools()
  output = pools[0].recv()
  pools[0].send(output.ids, np.zeros([len(output.ids)], np.int32))
  agent = training.create_agent(config, pools[0])
  learner = training.create_learner(config, agent, devices)
  policy = inference.Policy(
      agent, learner.weights(), 0, config.seed, devices.inference,
      devices.jit_compile)
  figures = dict(
      environments=measure_environments(config, pools, seconds),
      inference=measure_inference(
          config, output, policy, agent.initial_state(config.num_actors),
          seconds),
      learner=measure_learner(config, output, agent, learner, seconds))
  figures['ideal'] = 1 / sum(1 / rate for rate in figures.values())
  for pool in pools:
    pool.close()
  del pools, learner, policy
  with tempfile.TemporaryDirectory() as logdir:
    figures['whole'] = measure_whole(
        dataclasses.replace(config, logdir=logdir), make_pools(), devices,
        2 * seconds)
  figures['efficiency'] = figures['whole'] / figures['ideal']
  return figures


def main(_):
  try:
    figures = measure(experiment.config_from_flags(), FLAGS.measure_secs)
  except (config_lib.ConfigError, PoolError) as e:
    sys.exit(f'Error: {e}')
  for name, value in figures.items():
    unit = f'{100 * value:8.1f} %' if name == 'efficiency' else (
        f'{value:8.0f} frames/s')
    print(f'{name:12s} {unit}')
  if FLAGS.json:
    with open(FLAGS.json, 'w') as f:
      f.write(json.dumps(figures, indent=2) + '\n')


if __name__ == '__main__':
  app.run(main)
