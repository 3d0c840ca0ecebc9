"""How fast unrolls and weights pass between actor jobs and a learner, alone.

Nothing acts and nothing trains: clients in one process send the same unroll
again and again, over 1 to 64 connections, to a learner's service in another one
that checks and drops them. The same bytes over the same number of connections
to a gRPC service that does nothing with them are what gRPC itself allows.
"""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import threading
import time

import grpc
import numpy as np
import psutil
import tensorflow as tf

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import networks
from scalable_agent import staging
from scalable_agent.remote import client as client_lib
from scalable_agent.remote import protocol
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import service as service_lib

Shape = collections.namedtuple(
    'Shape', 'frame unroll_length num_actions use_lstm torso')

SHAPES = dict(
    atari=Shape((84, 84, 4), 20, 18, False, 'shallow'),
    dmlab=Shape((72, 96, 3), 100, 9, True, 'deep'))
CONNECTIONS = (1, 4, 16, 64)

_AGREEMENT = dict(protocol=protocol.VERSION)
_LEVEL = 'level'
_SECURITY = security_lib.Security()


class _Messages:
  """What is sent in a shape: layouts, an unroll and weights."""

  def __init__(self, shape):
    spec = (environments.ArraySpec(shape.frame, np.dtype(np.uint8)),)
    agent = networks.Agent(shape.num_actions, spec, shape.torso, shape.use_lstm)
    state, output = agent.initial_state(1), actor.initial_output(
        1, shape.num_actions)
    self.unroll_layout = protocol.unroll_layout(
        state, output, spec, shape.unroll_length, 1)
    self.weights = agent.initial_params(0)
    self.weights_layout = protocol.weights_layout(self.weights)
    self.unroll = _random_unroll(shape, state, output)

  def encoded_unroll(self, session, sequence):
    """The unroll as a message, bytes."""
    unroll = self.unroll
    return self.unroll_layout.encode(protocol.UnrollMessage(
        np.uint64(session), np.int64(sequence), np.int32(0), np.int64(0),
        unroll.agent_state, unroll.env_outputs, unroll.agent_outputs))


def _random_unroll(shape, state, output):
  """One unroll, without a version of the weights, of random frames."""
  length = shape.unroll_length + 1
  steps = lambda dtype: np.zeros([length], dtype)
  frames = np.random.default_rng(0).integers(
      0, 256, (length,) + shape.frame, np.uint8)
  return staging.ActorOutput(
      level_name=_LEVEL,
      agent_state=tf.nest.map_structure(lambda a: a[0], state),
      env_outputs=environments.StepOutput(
          steps(np.float32),
          environments.StepOutputInfo(steps(np.float32), steps(np.int32)),
          steps(np.bool_), (frames,)),
      agent_outputs=tf.nest.map_structure(
          lambda a: np.repeat(a, length, axis=0), output),
      policy_version=None)


@contextlib.contextmanager
def _plain_server(messages):
  """A service that answers with what ours does, and does nothing else."""
  weights = messages.weights_layout.encode(
      protocol.WeightsMessage(np.int64(0), messages.weights))
  unary = grpc.unary_unary_rpc_method_handler
  server = grpc.server(
      concurrent.futures.ThreadPoolExecutor(256),
      options=protocol.channel_options(1 << 30))
  server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
      protocol.SERVICE, dict(
          PutUnroll=unary(lambda message, context: b''),
          GetWeights=unary(lambda message, context: weights)))])
  port = server.add_insecure_port('localhost:0')
  server.start()
  yield port
  server.stop(None).wait()


@contextlib.contextmanager
def _our_server(messages):
  service = service_lib.Service(
      'localhost:0', _AGREEMENT, [_LEVEL], messages.unroll_layout,
      messages.weights_layout, lambda unroll: None,
      lambda *unused_episode: None, _SECURITY)
  service.update(messages.weights, 0)
  yield service.port
  service.close()


def _serve(make_server, shape, connection):
  """Runs a server in a process of its own until the connection ends."""
  with make_server(_Messages(shape)) as port:
    connection.send(port)
    with contextlib.suppress(EOFError):
      connection.recv()


def _plain_caller(messages, port):
  """Returns functions that send an unroll and get weights, and a closer."""
  channel = grpc.insecure_channel(
      f'localhost:{port}', protocol.channel_options(1 << 30))
  put, get = (channel.unary_unary(f'/{protocol.SERVICE}/{name}')
              for name in ('PutUnroll', 'GetWeights'))
  message = messages.encoded_unroll(session=0, sequence=1)
  return lambda: put(message), lambda: get(bytes(16)), channel.close


def _our_caller(messages, port):
  client = client_lib.LearnerClient(
      f'localhost:{port}', _AGREEMENT, 0, [_LEVEL],
      lambda unused_num_levels: messages.unroll_layout,
      messages.weights_layout, _SECURITY)
  _, version = client.get_weights(-1)
  unroll = messages.unroll._replace(policy_version=version)
  return (lambda: client.put_unroll(unroll), lambda: client.get_weights(-1),
          client.close)


def _cpu_seconds(process):
  times = process.cpu_times()
  return times.user + times.system


def _call_rate(calls, seconds, server):
  """Measures functions that threads call in parallel.

  Returns:
    Calls per second, and seconds of the server's CPU time per call.
  """
  counts = [0] * len(calls)
  stop = threading.Event()

  def repeat(i):
    while not stop.is_set():
      calls[i]()
      counts[i] += 1

  threads = [threading.Thread(target=repeat, args=[i])
             for i in range(len(calls))]
  for thread in threads:
    thread.start()
  time.sleep(seconds / 5)
  before, start, cpu = sum(counts), time.perf_counter(), _cpu_seconds(server)
  time.sleep(seconds)
  done, elapsed = sum(counts) - before, time.perf_counter() - start
  cpu = _cpu_seconds(server) - cpu
  stop.set()
  for thread in threads:
    thread.join()
  return done / elapsed, cpu / max(done, 1)


def _drive(make_caller, shape, port, num_connections, seconds, server_pid):
  """Calls the server from a process of its own.

  Returns:
    Unrolls per second, weights per second, and seconds of the server's CPU time
    per unroll.
  """
  server = psutil.Process(server_pid)
  messages = _Messages(shape)
  callers = [make_caller(messages, port) for _ in range(num_connections)]
  puts, gets, closers = zip(*callers)
  puts_per_second, seconds_per_put = _call_rate(puts, seconds, server)
  gets_per_second, _ = _call_rate(gets, seconds, server)
  for close in closers:
    close()
  return puts_per_second, gets_per_second, seconds_per_put


def _measure(make_server, make_caller, shape, num_connections, seconds):
  context = multiprocessing.get_context('spawn')
  ours, theirs = context.Pipe()
  server = context.Process(target=_serve, args=(make_server, shape, theirs))
  server.start()
  theirs.close()
  try:
    port = ours.recv()
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
      puts, gets, seconds_per_put = executor.submit(
          _drive, make_caller, shape, port, num_connections, seconds,
          server.pid).result()
    return puts, gets, seconds_per_put, process.memory_info().rss - before
  finally:
    ours.close()
    server.join()


def measure_transport(seconds, connections=CONNECTIONS, shapes=None):
  """Measures unrolls of some shapes over several numbers of connections.

  Args:
    seconds: For each of unrolls and weights, ours and plain.
    connections: Numbers of connections.
    shapes: A dict of name to `Shape`; by default `SHAPES`.

  Returns:
    A dict of shape to a list, in the order of `connections`, of dicts:
    `connections`; `unroll_mb` and `weights_mb`, megabytes (10^6 bytes) of one
    message; `unrolls_mb_per_second` and `weights_per_second` of ours, the same
    of plain gRPC with the prefix `plain_`; `unrolls_ratio`, ours / plain;
    `frames_per_second`, environment frames with 4 action repeats;
    `memory_kb_per_connection`, by which the learner's process has grown.
  """
  results = {}
  for name, shape in (shapes or SHAPES).items():
    messages = _Messages(shape)
    unroll_mb = messages.unroll_layout.num_bytes / 1e6
    results[name] = []
    for count in connections:
      plain_puts, plain_gets, _, _ = _measure(
          _plain_server, _plain_caller, shape, count, seconds)
      puts, gets, seconds_per_put, growth = _measure(
          _our_server, _our_caller, shape, count, seconds)
      results[name].append(dict(
          connections=count,
          unroll_mb=unroll_mb,
          weights_mb=messages.weights_layout.num_bytes / 1e6,
          unrolls_mb_per_second=puts * unroll_mb,
          plain_unrolls_mb_per_second=plain_puts * unroll_mb,
          unrolls_ratio=puts / plain_puts,
          weights_per_second=gets,
          plain_weights_per_second=plain_gets,
          unrolls_mb_per_learner_cpu_second=unroll_mb / seconds_per_put,
          frames_per_second=puts * shape.unroll_length * 4,
          memory_kb_per_connection=growth / 1e3 / count))
  return results


def print_transport(results):
  """Prints what `measure_transport` returned as a table."""
  for name, rows in results.items():
    print(f'{name}: unrolls of {rows[0]["unroll_mb"]:.2f} MB, weights of '
          f'{rows[0]["weights_mb"]:.2f} MB')
    for row in rows:
      print(f'  {row["connections"]:3d} connections: unrolls '
            f'{row["unrolls_mb_per_second"]:6.0f} MB/s, plain gRPC '
            f'{row["plain_unrolls_mb_per_second"]:6.0f}, '
            f'{100 * row["unrolls_ratio"]:.0f} %, '
            f'{row["frames_per_second"]:.0f} frames/s, '
            f'{row["unrolls_mb_per_learner_cpu_second"]:.0f} MB per CPU second '
            f'of the learner; weights '
            f'{row["weights_per_second"]:.0f}/s, plain '
            f'{row["plain_weights_per_second"]:.0f}/s; '
            f'{row["memory_kb_per_connection"]:.0f} kB a connection')
