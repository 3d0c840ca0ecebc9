"""Measures how fast the parts of a run are alone, and how fast the whole is.

All rates are environment frames per second.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import threading
import time

import numpy as np
import psutil
import tree

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import policy as policy_lib
from scalable_agent import staging
from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.process import timing
from scalable_agent.training import actor_threads
from scalable_agent.training import run as run_lib


Measured = collections.namedtuple('Measured', 'rate core_seconds')
Measured.__doc__ = """How fast something is done.

  rate: Frames per second.
  core_seconds: CPU time of a frame, of all processes.
"""


class Usage:
  """CPU and memory of this process and those it started, from now on."""

  def __init__(self):
    self._start = time.perf_counter(), self._cpu_seconds()

  def _processes(self):
    process = psutil.Process()
    return [process] + process.children(recursive=True)

  def _cpu_seconds(self):
    seconds = 0.
    for process in self._processes():
      with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        seconds += times.user + times.system
    return seconds

  def cores(self):
    """Cores in use on average."""
    wall, cpu = self._start
    return (self._cpu_seconds() - cpu) / (time.perf_counter() - wall)

  def memory_mib(self):
    """MiB in use now, what is shared counted once."""
    total = 0
    for process in self._processes():
      with contextlib.suppress(psutil.Error):
        total += process.memory_full_info().pss
    return total / 2**20


def measure(work, seconds):
  """Measures how fast something is done, after a fifth of the time to warm up.

  Args:
    work: A function without arguments that returns the frames it has done.
    seconds: To measure for.

  Returns:
    A `Measured`.
  """
  def repeat(seconds):
    frames = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
      frames += work()
    return frames / (time.perf_counter() - start)

  work()
  repeat(seconds / 5)
  usage = Usage()
  rate = repeat(seconds)
  return Measured(rate, usage.cores() / rate)


def make_pools(config):
  """Makes the pools of a configuration, a list."""
  layout = suites.choose_layout(config, config.num_actors)
  return suites.make_pools(config, layout, config.seed)


def measure_parts(config, seconds):
  """Measures all parts alone; call before TensorFlow has used any device.

  Args:
    config: A `config.Config`.
    seconds: To measure for, each.

  Returns:
    A dict of `environments`, `inference` (on as many as a pool hands out),
    `learner` and `data_path` in frames per second; `core_seconds`, a dict of
    the same to the core-seconds of a frame; and `inference_by_batch`, a dict of
    batch size to frames per second.
  """
  devices = devices_assembly.choose(dataclasses.replace(
      config, intra_op_threads=len(os.sched_getaffinity(0))))
  layout = suites.choose_layout(config, config.num_actors)
  pools = make_pools(config)
  try:
    output = pools[0].recv()
    pools[0].send(output.ids, output.ids * 0)
    step_output = output.step_output
    agent = agent_assembly.create_agent(config, pools[0])
    memory_assembly.check(config, agent, pools[0])
    learner = learner_assembly.create_learner(config, agent, devices)
    policy = policy_lib.Policy(
        agent, learner.weights(), 0, config.seed, devices.inference,
        devices.jit_compile_policy)
    size = layout.maximum_batch_size
    sizes = sorted({2**i for i in range(layout.size.bit_length())} | {size})
    by_batch = measure_inference(
        config, step_output, policy, agent, sizes, seconds / 4)
    measured = dict(
        environments=measure_environments(config, pools, seconds),
        inference=by_batch[size],
        learner=measure_learner(config, step_output, agent, learner, seconds),
        data_path=measure_data_path(
            config, pools[0], step_output, agent, learner,
            size if layout.size % size == 0 else layout.size, seconds))
    return dict(
        {name: part.rate for name, part in measured.items()},
        core_seconds={
            name: part.core_seconds for name, part in measured.items()},
        inference_by_batch={
            str(size): part.rate for size, part in by_batch.items()})
  finally:
    for pool in pools:
      pool.close()


def measure_environments(config, pools, seconds):
  """Environments with random actions and nothing else, a `Measured`."""
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
  usage, before, start = Usage(), sum(frames), time.perf_counter()
  time.sleep(seconds)
  rate = (sum(frames) - before) / (time.perf_counter() - start)
  core_seconds = usage.cores() / rate
  stop.set()
  for thread in threads:
    thread.join()
  return Measured(rate, core_seconds)


def _repeat(step_output, size):
  """A step output [K, ...], made into one of `size` environments."""
  return tree.map_structure(
      lambda a: np.resize(a, (size,) + a.shape[1:]), step_output)


def measure_inference(config, step_output, policy, agent, sizes, seconds):
  """Measures the policy alone.

  Args:
    config: A `config.Config`.
    step_output: A `StepOutput` of arrays [K, ...].
    policy: A `policy.Policy`.
    agent: Its `networks.Agent`.
    sizes: Batch sizes to measure.
    seconds: To measure for, each.

  Returns:
    A dict of batch size to `Measured`.
  """
  measured = {}
  for size in sizes:
    inputs = (np.zeros([size], np.int32),
              _repeat(step_output, size)._replace(info=()),
              agent.initial_state(size))

    def work():
      policy(*inputs)
      return size * config.num_action_repeats

    measured[size] = measure(work, seconds)
  return measured


def measure_learner(config, step_output, agent, learner, seconds):
  """Updates alone, on a batch that stays on the device, a `Measured`."""
  zeros = trajectories.AgentOutput(
      np.int32(0), np.zeros([agent.num_actions], np.float32), np.float32(0))
  repeat = lambda a: np.repeat(
      np.asarray(a)[np.newaxis], config.unroll_length + 1, axis=0)
  unroll = trajectories.ActorOutput(
      level_name=config.level_name,
      agent_state=tree.map_structure(
          lambda a: a[0], agent.initial_state(1)),
      env_outputs=tree.map_structure(lambda a: repeat(a[0]), step_output),
      agent_outputs=tree.map_structure(repeat, zeros),
      policy_version=0)
  batch = trajectories.new_batch([unroll] * config.batch_size)
  batch.is_replayed[:] = np.arange(config.batch_size) >= config.num_new_unrolls
  placed = learner.place(batch._replace(
      unrolls=staging.stack_time_major(batch.unrolls)))

  def work():
    learner.step(placed)
    return config.frames_per_step

  return measure(work, seconds)


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


def measure_data_path(config, pool, step_output, agent, learner, size, seconds):
  """Measures unrolls, queue, batches and staging alone.

  Args:
    config: A `config.Config`.
    pool: An `environments.Pool`, for its facts.
    step_output: A `StepOutput` of arrays [K, ...].
    agent: A `networks.Agent`.
    learner: A `learner.Learner`.
    size: Environments at a time; divides those of the pool.
    seconds: To measure for.

  Returns:
    A `Measured`.
  """
  output = trajectories.AgentOutput(
      np.zeros([size], np.int32),
      np.zeros([size, agent.num_actions], np.float32),
      np.zeros([size], np.float32))
  state, versions = agent.initial_state(size), np.zeros([size], np.int64)
  queue = staging.TrajectoryQueue(config.queue_capacity)
  area = staging.StagingArea(
      learner_assembly.create_source(
          # There is no whole episode to be had of the same step all the time.
          dataclasses.replace(config, replay_state='stored'), queue,
          timing.StageTimes(), agent, None),
      config.batch_size, learner.place)

  def act():
    with contextlib.suppress(staging.Closed):
      times = timing.StageTimes()
      replay = _RepeatingPool(pool, pool.num_environments, step_output, size)
      actor.run_actor(replay, times, actor.Actor(
          replay.level_names, replay.num_actions,
          lambda *unused_args: (output, state, versions),
          agent.initial_state(pool.num_environments), config.unroll_length,
          config.num_action_repeats, queue.put, lambda episode: None, times))

  thread = threading.Thread(target=act)
  thread.start()

  def work():
    area.get()
    return config.frames_per_step

  try:
    return measure(work, seconds)
  finally:
    area.close()
    thread.join()


def distribution(counts):
  """Returns smallest, mean, largest value and counts, of a Counter of ints."""
  total = sum(counts.values())
  if not total:
    return dict(min=0, mean=0., max=0, counts={})
  return dict(
      min=min(counts), max=max(counts),
      mean=sum(value * count for value, count in counts.items()) / total,
      counts={str(value): counts[value] for value in sorted(counts)})


def measure_whole(config, pools, devices, seconds):
  """Runs the training loop.

  Args:
    config: A `config.Config`, with a log directory of its own.
    pools: A list of pools, which this closes.
    devices: A `devices.Devices`.
    seconds: To measure for.

  Returns:
    A dict: `whole` in frames per second, `cores` in use, `memory_mib`, the
    distributions of `queue_size` (unrolls, at every update), `inference_batch`
    (environments) and `policy_lag` (updates), and `times`, seconds per second
    in every stage.
  """
  run = run_lib.Run(
      config, pools[0], devices,
      functools.partial(actor_threads.ActorThreads, config, pools))
  stop = threading.Event()
  queue_sizes, lags = collections.Counter(), collections.Counter()

  def work():
    staged = run.next_batch(stop)
    queue_sizes[len(run.queue)] += 1
    lags.update(run.policy_lags(staged[0]).tolist())
    run.train_on(staged)
    return config.frames_per_step

  try:
    work()
    measure(work, seconds / 5)
    for counter in (queue_sizes, lags, run.take_batch_sizes()):
      counter.clear()
    run.times.take()
    usage, start = Usage(), time.perf_counter()
    whole = measure(work, seconds).rate
    elapsed = time.perf_counter() - start
    return dict(
        whole=whole,
        cores=usage.cores(),
        memory_mib=usage.memory_mib(),
        queue_size=distribution(queue_sizes),
        inference_batch=distribution(run.take_batch_sizes()),
        policy_lag=distribution(lags),
        times={name: spent / elapsed
               for name, spent in sorted(run.times.take().items())})
  finally:
    run.close()
