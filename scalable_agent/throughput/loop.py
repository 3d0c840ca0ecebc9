"""Measures how fast the training loop is, and what its parts do meanwhile."""

import collections
import dataclasses
import functools
import tempfile
import threading
import time

from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.process import memory_use
from scalable_agent.throughput import machine
from scalable_agent.throughput import parts
from scalable_agent.training import actor_threads
from scalable_agent.training import run as run_lib


def _distribution(counts):
  """Returns smallest, mean, largest value and counts, of a Counter of ints."""
  total = sum(counts.values())
  if not total:
    return dict(min=0, mean=0., max=0, counts={})
  return dict(
      min=min(counts), max=max(counts),
      mean=sum(value * count for value, count in counts.items()) / total,
      counts={str(value): counts[value] for value in sorted(counts)})


def measure_loop(config, devices, seconds):
  """Runs the training loop, in a log directory of its own.

  Args:
    config: A `config.Config`.
    devices: A `devices.Devices`.
    seconds: To measure for.

  Returns:
    A dict: `whole` in frames per second, `cores` in use, `memory_mib`, the
    distributions of `queue_size` (unrolls, at every update), `inference_batch`
    (environments) and `policy_lag` (updates), and `times`, seconds per second
    in every stage.
  """
  with tempfile.TemporaryDirectory() as logdir:
    pools = parts.make_pools(config)
    agent = agent_assembly.create_agent(config, pools[0])
    memory_assembly.check(config, agent, pools[0])
    run = run_lib.Run(
        dataclasses.replace(config, logdir=logdir), agent, devices,
        functools.partial(actor_threads.ActorThreads, config, pools))
    try:
      return _measure_run(config, run, seconds)
    finally:
      run.close()


def _measure_run(config, run, seconds):
  stop = threading.Event()
  queue_sizes, lags = collections.Counter(), collections.Counter()

  def work():
    staged = run.batches.next(stop)
    queue_sizes[len(run.queue)] += 1
    lags.update(run.policy_lags(staged[0]).tolist())
    run.train_on(staged)
    return config.frames_per_step

  work()
  machine.repeat(work, seconds / 5)
  for counter in (queue_sizes, lags, run.take_batch_sizes()):
    counter.clear()
  run.times.take()
  usage, start = machine.Usage(), time.perf_counter()
  whole = machine.repeat(work, seconds)
  elapsed = time.perf_counter() - start
  return dict(
      whole=whole,
      cores=usage.cores(),
      memory_mib=memory_use.of_family() / 2**20,
      queue_size=_distribution(queue_sizes),
      inference_batch=_distribution(run.take_batch_sizes()),
      policy_lag=_distribution(lags),
      times={name: spent / elapsed
             for name, spent in sorted(run.times.take().items())})
