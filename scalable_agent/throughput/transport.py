"""Measures how fast unrolls and weights pass between actor jobs and a learner.

Nothing acts and nothing trains. Clients, in a process per core, send the same
unroll again and again over 1 to 64 connections, one unroll or more at a time. A
learner's service in another process checks the unrolls and drops them. It and
two services that do nothing, see `transport_sides`, take turns.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import threading
import time

import numpy as np
import psutil

from scalable_agent.machine import cores as machine_cores
from scalable_agent.throughput import machine
from scalable_agent.throughput import processes
from scalable_agent.throughput import transport_sides as sides
from scalable_agent.throughput import unrolls
from scalable_agent.unroll_messages import call_sizes

CONNECTIONS = (1, 4, 16, 64)
# An actor job of one environment sends one at a time, one of several as many as
# have finished.
UNROLLS_PER_CALL = (1, 8)

_NUM_TURNS = 4

_Figures = collections.namedtuple(
    '_Figures', 'unrolls_per_second gets_per_second server_seconds_per_unroll '
    'client_seconds_per_unroll server_seconds_per_get client_seconds_per_get')
_Stretch = collections.namedtuple(
    '_Stretch', 'calls_per_second server_cores client_cores')

Costs = collections.namedtuple(
    'Costs', 'send_unroll receive_unroll send_weights receive_weights '
    'unroll_bytes weights_bytes')
Costs.__doc__ = """What passes between an actor job and a learner, and its cost.

  send_unroll, receive_weights: Core-seconds of the actor job, for each.
  receive_unroll, send_weights: Core-seconds of the learner's process.
  unroll_bytes, weights_bytes: Length of their messages.
"""


def _repeat_calls(calls, seconds, server):
  """Measures functions that threads call in parallel; returns a `_Stretch`."""
  counts = [0] * len(calls)
  begin, stop = threading.Barrier(len(calls) + 1), threading.Event()

  def repeat(i):
    begin.wait()
    while not stop.is_set():
      calls[i](False)
      counts[i] += 1
    calls[i](True)
    counts[i] += 1

  with concurrent.futures.ThreadPoolExecutor(len(calls)) as executor:
    futures = [executor.submit(repeat, i) for i in range(len(calls))]
    begin.wait()
    both = server, psutil.Process()
    start, before = time.perf_counter(), list(map(machine.cpu_seconds, both))
    try:
      time.sleep(seconds)
    finally:
      stop.set()
    # Large calls of many connections end all at once: only whole ones count.
    for future in futures:
      future.result()
    elapsed = time.perf_counter() - start
  return _Stretch(sum(counts) / elapsed, *(
      (machine.cpu_seconds(process) - cpu) / elapsed
      for process, cpu in zip(both, before)))


def _drive(messages, servers, num_connections, unrolls_per_call, seconds):
  """Calls the servers in turns, from a process of its own.

  Args:
    messages: A `sides.Messages`.
    servers: A dict of name to process id and port, as `sides.SIDES` has names.
    num_connections: Connections to each.
    unrolls_per_call: Unrolls that are sent at once.
    seconds: To measure for, each.

  Returns:
    A dict of name to a list, by turn, of the `_Stretch`es of unrolls and of
    weights.
  """
  callers = {
      name: [sides.SIDES[name].make_caller(messages, port, unrolls_per_call)
             for _ in range(num_connections)]
      for name, (_, port) in servers.items()}
  # Connects, and raises if they cannot be called.
  for put, get, _ in itertools.chain(*callers.values()):
    put(True)
    get(True)
  stretches = {name: [] for name in servers}
  # The machine's speed changes, so that only neighbours compare.
  for _ in range(_NUM_TURNS):
    for name, (pid, _) in servers.items():
      server = psutil.Process(pid)
      puts, gets, _ = zip(*callers[name])
      pair = []
      for calls in puts, gets:
        processes.meet()
        pair.append(_repeat_calls(calls, seconds / _NUM_TURNS, server))
      stretches[name].append(pair)
  for _, _, close in itertools.chain(*callers.values()):
    close()
  return stretches


def _drive_together(messages, servers, num_connections, unrolls_per_call,
                    seconds):
  """Calls the servers from a process per core; returns name to `_Figures`."""
  num_processes = min(num_connections, machine_cores.count())
  shares = [num_connections * (i + 1) // num_processes -
            num_connections * i // num_processes for i in range(num_processes)]
  with processes.executor(num_processes) as executor:
    futures = [
        executor.submit(_drive, messages, servers, share, unrolls_per_call,
                        seconds) for share in shares]
    # The first error ends those that wait for the process that had it.
    found = [future.result()
             for future in concurrent.futures.as_completed(futures)]
  return {name: _add_up([process[name] for process in found], unrolls_per_call)
          for name in servers}


def _add_up(stretches, unrolls_per_call):
  """Returns the `_Figures` of all processes together.

  Args:
    stretches: `_Stretch`es by process, turn, and whether of unrolls or weights.
    unrolls_per_call: Unrolls that were sent at once.
  """
  rates, server_cores, client_cores = np.moveaxis(np.array(stretches), -1, 0)
  unrolls_per_second, gets_per_second = (
      rates.sum(axis=0).mean(axis=0) * (unrolls_per_call, 1))
  # All processes have seen the same server.
  server_cores = server_cores.mean(axis=(0, 1))
  client_cores = client_cores.sum(axis=0).mean(axis=0)
  return _Figures(
      unrolls_per_second, gets_per_second,
      server_cores[0] / unrolls_per_second,
      client_cores[0] / unrolls_per_second,
      server_cores[1] / gets_per_second, client_cores[1] / gets_per_second)


def _measure(messages, num_connections, unrolls_per_call, seconds):
  """Returns `_Figures` by name, and bytes by which our server has grown."""
  with contextlib.ExitStack() as stack:
    servers = {
        name: stack.enter_context(
            processes.serving(sides.serve, name, messages))
        for name in sides.SIDES}
    process = psutil.Process(servers['ours'][0])
    before = process.memory_info().rss
    figures = _drive_together(
        messages, servers, num_connections, unrolls_per_call, seconds)
    return figures, process.memory_info().rss - before


def measure_costs(shape, num_connections, unrolls_per_call, seconds):
  """Measures what an unroll and the weights cost both ends, a `Costs`.

  Args:
    shape: An `unrolls.Shape`.
    num_connections: Actor jobs, an int.
    unrolls_per_call: Unrolls that each sends at once, if a call takes as many.
    seconds: To measure for, each.
  """
  messages = sides.Messages(shape)
  figures, _ = _measure(
      messages, num_connections,
      min(unrolls_per_call,
          call_sizes.max_unrolls_per_call(messages.unroll_layout)), seconds)
  ours = figures['ours']
  return Costs(
      ours.client_seconds_per_unroll, ours.server_seconds_per_unroll,
      ours.server_seconds_per_get, ours.client_seconds_per_get,
      len(messages.unroll_layout.encode(unrolls.message(messages.unroll))),
      messages.weights_layout.num_bytes)


def measure_transport(seconds, connections=CONNECTIONS,
                      unrolls_per_call=UNROLLS_PER_CALL, shapes=None):
  """Measures unrolls of some shapes over several numbers of connections.

  Prints a table, line by line, as it goes.

  Args:
    seconds: For each of unrolls and weights, ours, plain and echo.
    connections: Numbers of connections.
    unrolls_per_call: Numbers of unrolls that are sent at once, or the most that
      a call takes.
    shapes: A dict of name to `unrolls.Shape`; by default `unrolls.SHAPES`.

  Returns:
    A dict of shape to a list, for each of `unrolls_per_call` in the order of
    `connections`, of dicts: `connections`, `unrolls_per_call`; `unroll_mb` and
    `weights_mb`, megabytes (10^6 bytes) of one, as it is used;
    `unrolls_mb_per_second` and `weights_per_second` of ours;
    `plain_unrolls_mb_per_second`, `echo_unrolls_mb_per_second` (counted once)
    and `plain_weights_per_second`, what plain gRPC makes of it;
    `unrolls_ratio` and `unrolls_echo_ratio`, ours to those;
    `unrolls_mb_per_learner_cpu_second`;
    `frames_per_second`, environment frames with 4 action repeats;
    `memory_kb_per_connection`, by which the learner's process has grown.
  """
  results = {}
  for name, shape in (shapes or unrolls.SHAPES).items():
    messages = sides.Messages(shape)
    unroll_mb = len(messages.unroll_bytes()) / 1e6
    weights_mb = messages.weights_layout.num_bytes / 1e6
    print(f'{name}: unrolls of {unroll_mb:.2f} MB, weights of '
          f'{weights_mb:.2f} MB', flush=True)
    results[name] = []
    most = call_sizes.max_unrolls_per_call(messages.unroll_layout)
    for per_call, count in itertools.product(
        sorted({min(number, most) for number in unrolls_per_call}),
        connections):
      figures, growth = _measure(messages, count, per_call, seconds)
      ours, plain, echo = (
          figures[side] for side in ('ours', 'plain', 'echo'))
      results[name].append(dict(
          connections=count,
          unrolls_per_call=per_call,
          unroll_mb=unroll_mb,
          weights_mb=weights_mb,
          unrolls_mb_per_second=ours.unrolls_per_second * unroll_mb,
          plain_unrolls_mb_per_second=plain.unrolls_per_second * unroll_mb,
          echo_unrolls_mb_per_second=echo.unrolls_per_second * unroll_mb,
          unrolls_ratio=ours.unrolls_per_second / plain.unrolls_per_second,
          unrolls_echo_ratio=ours.unrolls_per_second / echo.unrolls_per_second,
          weights_per_second=ours.gets_per_second,
          plain_weights_per_second=plain.gets_per_second,
          unrolls_mb_per_learner_cpu_second=(
              unroll_mb / ours.server_seconds_per_unroll),
          frames_per_second=ours.unrolls_per_second * shape.unroll_length * 4,
          memory_kb_per_connection=growth / 1e3 / count))
      print(_row_text(results[name][-1]), flush=True)
  return results


def _row_text(row):
  return (f'  {row["connections"]:3d} connections, '
          f'{row["unrolls_per_call"]} unrolls a call: '
          f'{row["unrolls_mb_per_second"]:6.0f} MB/s, plain gRPC '
          f'{row["plain_unrolls_mb_per_second"]:6.0f}, '
          f'{100 * row["unrolls_ratio"]:.0f} %, echoed '
          f'{row["echo_unrolls_mb_per_second"]:.0f}, '
          f'{100 * row["unrolls_echo_ratio"]:.0f} %, '
          f'{row["frames_per_second"]:.0f} frames/s, '
          f'{row["unrolls_mb_per_learner_cpu_second"]:.0f} MB per CPU second '
          f'of the learner; weights '
          f'{row["weights_per_second"]:.0f}/s, plain '
          f'{row["plain_weights_per_second"]:.0f}/s; '
          f'{row["memory_kb_per_connection"]:.0f} kB a connection')
