"""Measures how fast the parts of a run are, each alone.

All rates are environment frames per second.
"""

import collections
import contextlib
import dataclasses
import itertools
import threading
import time

from absl import logging
import numpy as np
import tree

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import policy as policy_lib
from scalable_agent import staging
from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.assembly import actor as actor_assembly
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.machine import cores as machine_cores
from scalable_agent.process import errors
from scalable_agent.process import tensorflow_environment
from scalable_agent.process import timing
from scalable_agent.throughput import machine
from scalable_agent.throughput import processes

Bench = collections.namedtuple(
    'Bench', 'config pool step_output agent learner', defaults=(None,))
Bench.__doc__ = """What a part is measured with.

  config: A `config.Config`.
  pool: An `environments.Pool`, for its facts.
  step_output: A `StepOutput` of it, of arrays [K, ...].
  agent: An agent of `networks`.
  learner: A `learner.Learner`; None where updates are not measured.
"""


def make_pools(config):
  """Makes the pools of a configuration, a list."""
  layout = suites.choose_layout(config, config.num_actors)
  return suites.make_pools(config, layout, config.seed)


@contextlib.contextmanager
def open_pools(config):
  """Makes the pools of a configuration, a list, and closes them after use."""
  pools = make_pools(config)
  try:
    yield pools
  finally:
    for pool in pools:
      pool.close()


def make_bench(config, pool):
  """Returns a `Bench` of a pool that nothing has been received from yet."""
  output = pool.recv()
  pool.send(output.ids, output.ids * 0)
  return Bench(config, pool, output.step_output,
               agent_assembly.create_agent(config, pool))


def measure_parts(config, seconds, more_sizes=()):
  """Measures all parts alone, in a process of its own.

  TensorFlow's threads cannot be changed once it runs, and alone a part may use
  all cores.

  Args:
    config: A `config.Config`.
    seconds: To measure for, each.
    more_sizes: Batch sizes to measure the policy with beside those that occur.

  Returns:
    A dict of `environments`, `inference` (on as many as a pool hands out),
    `learner` and `data_path` in frames per second; `core_seconds`, a dict of
    the same to the core-seconds of a frame; and two dicts of batch size to what
    the policy makes of it, `inference_by_batch` in frames per second and
    `inference_core_seconds`, again of a frame.
  """
  logging.info(
      'Measuring each part of %s on %s alone for %g s',
      config.agent if config.agent == 'reactor' else config.architecture,
      config.level_name, seconds)
  with processes.executor(1, tensorflow_environment.load) as executor:
    return executor.submit(
        _measure_parts, config, seconds, more_sizes).result()


def choose_devices(config):
  """Chooses the devices of a part that may use all cores, a `Devices`."""
  return devices_assembly.choose(dataclasses.replace(
      config, intra_op_threads=machine_cores.count()))


def _measure_parts(config, seconds, more_sizes):
  devices = choose_devices(config)
  layout = suites.choose_layout(config, config.num_actors)
  with open_pools(config) as pools:
    bench = make_bench(config, pools[0])
    memory_assembly.check(config, bench.agent, bench.pool)
    bench = bench._replace(learner=learner_assembly.create_learner(
        config, bench.agent, devices))
    policy = policy_lib.Policy(
        bench.agent, bench.learner.weights(), 0, config.seed,
        devices.inference, devices.jit_compile)
    size = layout.maximum_batch_size
    sizes = sorted({2**i for i in range(layout.size.bit_length())} |
                   {size, *more_sizes})
    by_batch = measure_inference(bench, policy, sizes, seconds / 4)
    measured = dict(
        environments=measure_environments(config, pools, seconds),
        inference=by_batch[size],
        learner=measure_learner(bench, seconds),
        data_path=measure_batches(
            bench, size if layout.size % size == 0 else layout.size, seconds))
    return dict(
        {name: part.rate for name, part in measured.items()},
        core_seconds={
            name: part.core_seconds for name, part in measured.items()},
        inference_by_batch={
            str(size): part.rate for size, part in by_batch.items()},
        inference_core_seconds={
            str(size): part.core_seconds for size, part in by_batch.items()})


def measure_environments(config, pools, seconds):
  """Measures environments with random actions and nothing else.

  Args:
    config: A `config.Config`.
    pools: A list of `environments.Pool`s.
    seconds: To measure for, after a fifth of it to warm up.

  Returns:
    A `machine.Measured`.

  Raises:
    PoolError: An environment died.
    Failure: No environment has made a step while it was measured.
  """
  rng = np.random.default_rng(config.seed)
  frames, failures = [0] * len(pools), []
  stop = threading.Event()

  def drive(i, pool):
    try:
      while not stop.is_set():
        ids = pool.recv().ids
        pool.send(ids, rng.integers(0, pool.num_actions, len(ids)))
        frames[i] += len(ids) * config.num_action_repeats
    except BaseException as e:  # Raised in the main thread.
      failures.append(e)
      stop.set()

  threads = [threading.Thread(target=drive, args=pair, daemon=True)
             for pair in enumerate(pools)]
  for thread in threads:
    thread.start()
  try:
    stop.wait(seconds / 5)
    usage, before, start = machine.Usage(), sum(frames), time.perf_counter()
    stop.wait(seconds)
    rate = (sum(frames) - before) / (time.perf_counter() - start)
    cores = usage.cores()
  finally:
    stop.set()
    for thread in threads:
      thread.join()
  if failures:
    raise failures[0]
  if not rate:
    raise errors.Failure(
        f'No environment of {config.level_name} has made a step within '
        f'--measure_secs={seconds:g}. Set it to more.')
  return machine.Measured(rate, cores / rate)


def _repeat(step_output, size):
  """A step output [K, ...], made into one of `size` environments."""
  return tree.map_structure(
      lambda a: np.resize(a, (size,) + a.shape[1:]), step_output)


def measure_inference(bench, policy, sizes, seconds):
  """Measures the policy alone.

  Args:
    bench: A `Bench`.
    policy: A `policy.Policy` of its agent.
    sizes: Batch sizes to measure.
    seconds: To measure for, each.

  Returns:
    A dict of batch size to `machine.Measured`.
  """
  measured = {}
  for size in sizes:
    inputs = (np.zeros([size], np.int32),
              _repeat(bench.step_output, size)._replace(info=()),
              bench.agent.initial_state(size))

    def work():
      policy(*inputs)
      return size * bench.config.num_action_repeats

    measured[size] = machine.measure(work, seconds)
  return measured


def measure_learner(bench, seconds):
  """Updates alone, on a batch that stays there, a `machine.Measured`."""
  placed = placed_batch(bench)

  def work():
    bench.learner.step(placed)
    return bench.config.frames_per_step

  return machine.measure(work, seconds)


def _unrolls(bench, count):
  """Returns a list of unrolls in memory of their own, of one step repeated."""
  config, agent = bench.config, bench.agent
  zeros = trajectories.AgentOutput(
      np.int32(0), np.zeros([agent.num_actions], np.float32), np.float32(0))
  repeat = lambda a: np.repeat(
      np.asarray(a)[np.newaxis], config.unroll_length + 1, axis=0)
  return [trajectories.ActorOutput(
      level_name=config.level_name,
      agent_state=tree.map_structure(
          lambda a: a[0], agent.initial_state(1)),
      env_outputs=tree.map_structure(
          lambda a: repeat(a[0]), bench.step_output),
      agent_outputs=tree.map_structure(repeat, zeros),
      policy_version=np.int64(0)) for _ in range(count)]


def placed_batch(bench):
  """Returns a batch for `Learner.step`, all of whose steps are the same."""
  config = bench.config
  batch = trajectories.new_batch(_unrolls(bench, 1) * config.batch_size)
  batch.is_replayed[:] = np.arange(config.batch_size) >= config.num_new_unrolls
  return bench.learner.place(staging.join(batch))


class _RepeatingPool(environments.Pool):
  """Hands out the same outputs for ever, in turn, and takes no time for it."""

  def __init__(self, pool, num_environments, step_output, size):
    self.num_environments = num_environments
    self.num_actions = pool.num_actions
    self.level_names = pool.level_names[:1] * num_environments
    self._step_output = _repeat(step_output, size)
    self._never = np.zeros([size], bool)
    self._turns = np.arange(num_environments, dtype=np.int32).reshape(-1, size)
    self._turn = 0

  def recv(self):
    self._turn = (self._turn + 1) % len(self._turns)
    return environments.PoolOutput(
        self._turns[self._turn], self._step_output, self._never, self._never)

  def send(self, ids, actions):
    pass


def measure_batches(bench, size, seconds):
  """Measures unrolls, queue, batches and staging, and no updates.

  One thread makes the unrolls, of steps that take no time.

  Args:
    bench: A `Bench`.
    size: Environments at a time; divides those of the pool.
    seconds: To measure for.

  Returns:
    A `machine.Measured`.
  """
  config, pool, agent = bench.config, bench.pool, bench.agent
  output = trajectories.AgentOutput(
      np.zeros([size], np.int32),
      np.zeros([size, agent.num_actions], np.float32),
      np.zeros([size], np.float32))
  state, versions = agent.initial_state(size), np.zeros([size], np.int64)

  def act(put):
    replay = _RepeatingPool(
        pool, pool.num_environments, bench.step_output, size)
    actor.run_actor(replay, actor_assembly.create_actor(
        config, agent, replay.level_names,
        lambda *unused_args: (output, state, versions), put,
        lambda episode: None, timing.StageTimes()))

  return _measure_fed(bench, act, lambda placed: None, seconds)


def measure_staging(bench, use, seconds):
  """Measures queue, batches and staging of unrolls that are there.

  So it is where unrolls come from other machines.

  Args:
    bench: A `Bench`.
    use: A function that is given each batch, as `Learner.place` returns it.
    seconds: To measure for.

  Returns:
    A `machine.Measured`.
  """
  # No batch finds in the processor's cache what the one before has left.
  unrolls = _unrolls(bench, 2 * bench.config.batch_size)

  def feed(put):
    for unroll in itertools.cycle(unrolls):
      put(unroll)

  return _measure_fed(bench, feed, use, seconds)


def _measure_fed(bench, feed, use, seconds):
  """Measures batches of what `feed`, in a thread, puts into the queue.

  The source gets priorities for each batch, as from an update that has some.
  """
  config = bench.config
  queue = staging.TrajectoryQueue(config.queue_capacity)
  source = learner_assembly.create_source(
      # The same step again and again makes no whole episode to replay.
      dataclasses.replace(config, replay_state='stored'), queue,
      timing.StageTimes(), bench.agent, None)
  area = staging.StagingArea(
      source, config.batch_size,
      lambda batch: (batch.keys, bench.learner.place(batch)))
  priorities = np.ones([config.batch_size], np.float32)
  failures = []

  def run():
    try:
      feed(queue.put)
    except staging.Closed:
      pass
    except BaseException as e:  # Raised in the thread that waits for unrolls.
      failures.append(e)
      queue.close()

  def work():
    try:
      keys, placed = area.get()
    except staging.Closed:
      if failures:
        raise failures[0]
      raise
    source.update(keys, priorities)
    use(placed)
    return config.frames_per_step

  thread = threading.Thread(target=run)
  thread.start()
  try:
    return machine.measure(work, seconds)
  finally:
    area.close()
    thread.join()
