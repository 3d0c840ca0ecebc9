"""Measures what a replay job serves to learners.

Nothing acts and nothing trains. Learners, a process each, draw unrolls of the
same job in batches, in three ways that take turns:

    served   the learners receive the bytes, and drop them
    drawn    they make unrolls of them, as a true learner does
    mixed    they also insert new unrolls, one for each seven that they draw

Megabytes (10^6 bytes) are those on the wire, where each frame of a stack is
once.
"""

import collections
import concurrent.futures
import contextlib
import math
import time

import numpy as np
import psutil

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent.machine import cores as machine_cores
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import wire
from scalable_agent.shared_replay import agent_link
from scalable_agent.shared_replay import contents as contents_lib
from scalable_agent.shared_replay import drawn_unrolls
from scalable_agent.shared_replay import protocol
from scalable_agent.shared_replay import service as service_lib
from scalable_agent.throughput import machine
from scalable_agent.throughput import processes
from scalable_agent.throughput import unrolls

NUM_LEARNERS = 4
# Of LASER's batch of 128 on Atari 123 are replayed, of one of 32 on DMLab 28.
NUM_DRAWN = dict(atari=123, dmlab=28)
MAX_DRAWN = protocol.MAX_DRAWN
WAYS = ('served', 'drawn', 'mixed')

# More than fits into the caches of processors.
_CONTENTS_BYTES = 400 << 20
_NEW_PER_DRAWN = 7
_NUM_TURNS = 4
_AGREEMENT = dict(protocol=protocol.VERSION)
_SECURITY = security_lib.Security()

_Stretch = collections.namedtuple(
    '_Stretch', 'num_bytes num_batches seconds learner_cpu job_cpu')


def _facts(shape):
  return suites.Facts(shape.num_actions, (
      environments.ArraySpec(shape.frame, np.dtype(np.uint8)),))


def _layout(shape):
  return protocol.unroll_layout(shape, _facts(shape), 1)


def _make_unroll(shape):
  return unrolls.random_unroll(
      shape, (), actor.initial_output(1, shape.num_actions))._replace(
          policy_version=np.int64(0))


def _make_client(shape, port, name):
  layout = _layout(shape)
  # So large a batch that nobody waits for another: that is not measured.
  return drawn_unrolls.DrawnUnrolls(agent_link.AgentLink(
      f'localhost:{port}', _AGREEMENT, name, name, protocol.MAX_BATCH,
      lambda unused_num_levels: layout, _SECURITY))


def _serve(shape, capacity, connection):
  """Keeps replay in a process of its own until the connection ends."""
  layout = _layout(shape)
  service = service_lib.Service(
      'localhost:0',
      service_lib.Offer(_AGREEMENT, [unrolls.LEVEL], layout, num_agents=0),
      contents_lib.Contents(layout, capacity, math.inf, seed=0), _SECURITY)
  connection.send(service.port)
  with contextlib.suppress(EOFError):
    connection.recv()
  service.close()


def _receive(client, layout, count):
  """Draws unrolls, and drops what comes; returns its bytes."""
  client.request(count)
  num_bytes = 0
  while count:
    answer = client.receive()
    count -= sum(1 for _ in wire.split(layout, answer))
    num_bytes += len(answer)
  return num_bytes


def _make_batch(way, client, shape, count, unroll):
  """Returns a function that makes a batch, and returns the bytes drawn."""
  layout = _layout(shape)
  message_bytes = wire.aligned(len(layout.encode(unrolls.message(unroll))))
  if way == 'served':
    return lambda: _receive(client, layout, count)
  new = [unroll] * max(count // _NEW_PER_DRAWN, 1) if way == 'mixed' else []

  def draw():
    if new:
      client.extend(new)
    return len(client.sample(count)) * message_bytes

  return draw


def _learn(shape, job, index, count, seconds):
  """Draws in turns, in a process of its own.

  Args:
    shape: A `unrolls.Shape`.
    job: The process id and the port of the replay job.
    index: Of this learner.
    count: Unrolls in a batch.
    seconds: To measure for, each way.

  Returns:
    A dict of way to a list of `_Stretch`es, by turn.
  """
  pid, port = job
  process = psutil.Process(pid)
  client = _make_client(shape, port, str(index))
  unroll = _make_unroll(shape)
  stretches = {way: [] for way in WAYS}
  # The machine's speed changes, so that only neighbours compare.
  for _ in range(_NUM_TURNS):
    for way in WAYS:
      make_batch = _make_batch(way, client, shape, count, unroll)
      make_batch()
      processes.meet()
      stretches[way].append(
          _measure_stretch(make_batch, seconds / _NUM_TURNS, process))
  processes.meet()
  client.close()
  return stretches


def _measure_stretch(make_batch, seconds, process):
  start, cpu = time.perf_counter(), time.process_time()
  job_cpu = machine.cpu_seconds(process)
  num_bytes = num_batches = 0
  while time.perf_counter() - start < seconds:
    num_bytes += make_batch()
    num_batches += 1
  return _Stretch(
      num_bytes, num_batches, time.perf_counter() - start,
      time.process_time() - cpu, machine.cpu_seconds(process) - job_cpu)


def _measure(shape, num_learners, count, seconds):
  """Returns a list of what `_learn` returned, of every learner."""
  unroll = _make_unroll(shape)
  message_bytes = _layout(shape).num_bytes
  capacity = max(_CONTENTS_BYTES // message_bytes, 2)
  with processes.serving(_serve, shape, capacity) as (pid, port):
    filling = _make_client(shape, port, 'fills')
    filling.extend([unroll] * capacity)
    filling.sample(1)
    filling.close()
    with processes.executor(num_learners) as executor:
      futures = [executor.submit(_learn, shape, (pid, port), i, count, seconds)
                 for i in range(num_learners)]
      # The first error ends those that wait for the learner that had it.
      return [future.result()
              for future in concurrent.futures.as_completed(futures)]


def measure_shared_replay(seconds, num_learners=NUM_LEARNERS, num_drawn=0,
                          shapes=None):
  """Measures what a replay job serves, and prints a line for each way.

  Args:
    seconds: For each shape and way.
    num_learners: How many draw at a time.
    num_drawn: Unrolls that each draws at once, 0 for `NUM_DRAWN`.
    shapes: A dict of name to `unrolls.Shape`; by default
      `unrolls.SHAPES`.

  Returns:
    A dict of shape to a dict of way, see the module, to a dict:
    `mb_per_second`, to all learners together; `unrolls_per_second`, likewise;
    `batch_ms`, what a learner waits for a batch; `mb_per_job_cpu_second` and
    `mb_per_learner_cpu_second`; and beside the ways `cores`, the machine's.
  """
  results = {}
  for name, shape in (shapes or unrolls.SHAPES).items():
    count = num_drawn or NUM_DRAWN[name]
    learners = _measure(shape, num_learners, count, seconds)
    figures = {}
    for way in WAYS:
      figures[way] = _add_up([learner[way] for learner in learners], count)
      print(f'{name}, {way:6s}: {_text(figures[way], num_learners, count)}',
            flush=True)
    results[name] = dict(figures, cores=machine_cores.count())
  return results


def _add_up(stretches, count):
  """Returns what `measure_shared_replay` returns of one way.

  Args:
    stretches: `_Stretch`es by learner and turn.
    count: Unrolls that each draws at once.
  """
  num_bytes, batches, seconds, learner_seconds, job_seconds = np.moveaxis(
      np.array(stretches, float), -1, 0)
  megabytes = num_bytes.sum() / 1e6
  rate = (num_bytes / seconds).sum(axis=0).mean() / 1e6
  return dict(
      mb_per_second=rate,
      unrolls_per_second=rate / megabytes * batches.sum() * count,
      batch_ms=1e3 * seconds.sum() / batches.sum(),
      # Every learner has seen all that the job did.
      mb_per_job_cpu_second=megabytes / job_seconds.mean(axis=0).sum(),
      mb_per_learner_cpu_second=megabytes / learner_seconds.sum())


def _text(row, num_learners, count):
  return (f'{row["mb_per_second"]:6.0f} MB/s to {num_learners} learners, '
          f'{row["unrolls_per_second"]:.0f} unrolls/s, {row["batch_ms"]:.0f} '
          f'ms for {count} unrolls; {row["mb_per_job_cpu_second"]:.0f} MB per '
          f'CPU second of the job, {row["mb_per_learner_cpu_second"]:.0f} of '
          'the learners')
