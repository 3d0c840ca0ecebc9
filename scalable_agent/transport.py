"""How fast unrolls and weights pass between actor jobs and a learner, alone.

Nothing acts and nothing trains: clients in one process send the same unroll
again and again, one or more at a time over 1 to 64 connections, to a learner's
service in another one that checks and drops them. What gRPC itself allows is
what a service that does nothing with them gets of the same bytes, with all
frames of stacks, in turns with ours.
"""

import collections
import concurrent.futures
import contextlib
import itertools
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
# An actor job of one environment sends one at a time, one of several as many as
# have finished.
UNROLLS_PER_CALL = (1, 8)

_NUM_TURNS = 4
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

  def unroll_bytes(self):
    """What the unroll holds, as bytes without names."""
    return b''.join(
        leaf.tobytes() for leaf in tf.nest.flatten(
            (self.unroll.agent_state, self.unroll.env_outputs,
             self.unroll.agent_outputs)))


def _random_unroll(shape, state, output):
  """One unroll, without a version of the weights, of random frames."""
  length = shape.unroll_length + 1
  steps = lambda dtype: np.zeros([length], dtype)
  height, width, channels = shape.frame
  frames = np.random.default_rng(0).integers(
      0, 256, (length + channels, height, width), np.uint8)
  # Like those of a game, stacks have all but one frame from the one before.
  frames = np.ascontiguousarray(np.stack(
      [np.moveaxis(frames[t:t + channels], 0, -1) for t in range(length)]))
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


def _serve(name, shape, connection):
  """Runs a server in a process of its own until the connection ends."""
  with _SIDES[name].make_server(_Messages(shape)) as port:
    connection.send(port)
    with contextlib.suppress(EOFError):
      connection.recv()


def _plain_caller(messages, port, unrolls_per_call):
  """Returns functions that send an unroll and get weights, and a closer."""
  channel = grpc.insecure_channel(
      f'localhost:{port}', protocol.channel_options(1 << 30))
  put, get = (channel.unary_unary(f'/{protocol.SERVICE}/{name}')
              for name in ('PutUnroll', 'GetWeights'))
  message = messages.unroll_bytes() * unrolls_per_call
  return lambda: put(message), lambda: get(bytes(16)), channel.close


def _our_caller(messages, port, unrolls_per_call):
  client = client_lib.LearnerClient(
      f'localhost:{port}', _AGREEMENT, 0, [_LEVEL],
      lambda unused_num_levels: messages.unroll_layout,
      messages.weights_layout, _SECURITY)
  _, version = client.get_weights(-1)
  unrolls = [messages.unroll._replace(
      policy_version=version)] * unrolls_per_call
  return (lambda: client.put_unrolls(unrolls), lambda: client.get_weights(-1),
          client.close)


_Side = collections.namedtuple('_Side', 'make_server make_caller')
_SIDES = dict(plain=_Side(_plain_server, _plain_caller),
              ours=_Side(_our_server, _our_caller))
_Figures = collections.namedtuple(
    '_Figures', 'unrolls_per_second gets_per_second server_seconds_per_unroll')


def _cpu_seconds(process):
  times = process.cpu_times()
  return times.user + times.system


def _call_rate(calls, seconds, server):
  """Measures functions that threads call in parallel.

  Returns:
    Calls per second, and seconds of the server's CPU time per call.
  """
  counts = [0] * len(calls)
  # The time begins once all have started and called, connecting thereby.
  begin, stop = threading.Barrier(len(calls) + 1), threading.Event()

  def repeat(i):
    try:
      calls[i]()
    except BaseException:
      begin.abort()
      raise
    begin.wait()
    while not stop.is_set():
      calls[i]()
      counts[i] += 1

  threads = [threading.Thread(target=repeat, args=[i])
             for i in range(len(calls))]
  for thread in threads:
    thread.start()
  begin.wait()  # Raises if a call did.
  start, cpu = time.perf_counter(), _cpu_seconds(server)
  time.sleep(seconds)
  stop.set()
  # Large calls of many connections end all at once: only whole ones count.
  for thread in threads:
    thread.join()
  done, elapsed = sum(counts), time.perf_counter() - start
  return done / elapsed, (_cpu_seconds(server) - cpu) / max(done, 1)


def _drive(shape, servers, num_connections, unrolls_per_call, seconds):
  """Calls the servers in turns, from a process of its own.

  Args:
    shape: A `Shape`.
    servers: A dict of name to process id and port, for every one of `_SIDES`.
    num_connections: Connections to each.
    unrolls_per_call: Unrolls that are sent at once.
    seconds: To measure for, each.

  Returns:
    A dict of name to a `_Figures`.
  """
  messages = _Messages(shape)
  figures = {name: [] for name in servers}
  callers = {name: [_SIDES[name].make_caller(messages, port, unrolls_per_call)
                    for _ in range(num_connections)]
             for name, (_, port) in servers.items()}
  # The machine's speed changes, so that only neighbours compare.
  for _ in range(_NUM_TURNS):
    for name, (pid, _) in servers.items():
      server = psutil.Process(pid)
      puts, gets, _ = zip(*callers[name])
      puts_per_second, seconds_per_put = _call_rate(
          puts, seconds / _NUM_TURNS, server)
      gets_per_second, _ = _call_rate(gets, seconds / _NUM_TURNS, server)
      figures[name].append(_Figures(
          puts_per_second * unrolls_per_call, gets_per_second,
          seconds_per_put / unrolls_per_call))
  for name in callers:
    for _, _, close in callers[name]:
      close()
  return {name: _Figures(*np.mean(rows, axis=0))
          for name, rows in figures.items()}


def _measure(shape, num_connections, unrolls_per_call, seconds):
  """Returns what `_drive` does, and bytes by which our server has grown."""
  context = multiprocessing.get_context('spawn')
  with contextlib.ExitStack() as stack:
    servers = {}
    for name in _SIDES:
      connection, theirs = context.Pipe()
      server = context.Process(target=_serve, args=(name, shape, theirs))
      server.start()
      theirs.close()
      stack.callback(server.join)
      stack.callback(connection.close)
      servers[name] = server.pid, connection.recv()
    process = psutil.Process(servers['ours'][0])
    before = process.memory_info().rss
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
      figures = executor.submit(
          _drive, shape, servers, num_connections, unrolls_per_call,
          seconds).result()
    return figures, process.memory_info().rss - before


def measure_transport(seconds, connections=CONNECTIONS,
                      unrolls_per_call=UNROLLS_PER_CALL, shapes=None):
  """Measures unrolls of some shapes over several numbers of connections.

  Prints a table, line by line, as it goes.

  Args:
    seconds: For each of unrolls and weights, ours and plain.
    connections: Numbers of connections.
    unrolls_per_call: Numbers of unrolls that are sent at once, or the most that
      a call takes.
    shapes: A dict of name to `Shape`; by default `SHAPES`.

  Returns:
    A dict of shape to a list, for each of `unrolls_per_call` in the order of
    `connections`, of dicts: `connections`, `unrolls_per_call`; `unroll_mb` and
    `weights_mb`, megabytes (10^6 bytes) of one, as it is used;
    `unrolls_mb_per_second` and `weights_per_second` of ours, the
    same of plain gRPC with the prefix `plain_`; `unrolls_ratio`, ours / plain;
    `frames_per_second`, environment frames with 4 action repeats;
    `memory_kb_per_connection`, by which the learner's process has grown.
  """
  results = {}
  for name, shape in (shapes or SHAPES).items():
    messages = _Messages(shape)
    unroll_mb = len(messages.unroll_bytes()) / 1e6
    weights_mb = messages.weights_layout.num_bytes / 1e6
    print(f'{name}: unrolls of {unroll_mb:.2f} MB, weights of '
          f'{weights_mb:.2f} MB', flush=True)
    results[name] = []
    most = protocol.max_unrolls_per_call(messages.unroll_layout)
    for per_call, count in itertools.product(
        sorted({min(number, most) for number in unrolls_per_call}),
        connections):
      figures, growth = _measure(shape, count, per_call, seconds)
      ours, plain = figures['ours'], figures['plain']
      results[name].append(dict(
          connections=count,
          unrolls_per_call=per_call,
          unroll_mb=unroll_mb,
          weights_mb=weights_mb,
          unrolls_mb_per_second=ours.unrolls_per_second * unroll_mb,
          plain_unrolls_mb_per_second=plain.unrolls_per_second * unroll_mb,
          unrolls_ratio=ours.unrolls_per_second / plain.unrolls_per_second,
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
          f'{100 * row["unrolls_ratio"]:.0f} %, '
          f'{row["frames_per_second"]:.0f} frames/s, '
          f'{row["unrolls_mb_per_learner_cpu_second"]:.0f} MB per CPU second '
          f'of the learner; weights '
          f'{row["weights_per_second"]:.0f}/s, plain '
          f'{row["plain_weights_per_second"]:.0f}/s; '
          f'{row["memory_kb_per_connection"]:.0f} kB a connection')
