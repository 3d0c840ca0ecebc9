"""Attacks a learner as those without and with its token might, and watches it.

    python -m tests.remote.attack

starts a learner that may open 1,024 files, and an actor job, whose environments
take as long as they take, so that its rate does not depend on how busy the
machine is. Then it does one thing after the other for some seconds each, and
prints what the learner's process takes meanwhile: memory, threads, descriptors,
connections to its port, the environment frames that it trained on per second,
how long the most recent save is ago, and how often the actor job lost it.

Exits with 1 if the learner ended, stopped training or saving, or kept threads
or descriptors in the end.
"""

import collections
import contextlib
import functools
import itertools
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from absl import app
from absl import flags
from absl import logging
import grpc
import numpy as np
import psutil
import tree

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.config import flags as config_flags
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.remote import channels
from scalable_agent.remote import security as security_lib
from scalable_agent.unroll_messages import unroll_layouts
from tests import ports
from tests.remote import raw_http2
from tests.remote import remote_parts

FLAGS = flags.FLAGS

flags.DEFINE_float('attack_secs', 15., 'How long each attack lasts.')
flags.DEFINE_integer('attack_messages', 100_000, 'How many hostile messages.')
flags.DEFINE_integer(
    'attack_files', 1024, 'How many files the learner may open, at most.')

_TOKEN = 'a token that nobody else has'.replace(' ', '-')
_METADATA = (('authorization', f'Bearer {_TOKEN}'),)
_NUM_ENVIRONMENTS = 4
_NUM_IDLE_ACTORS = 500
_SAVE_SECONDS = 3.
_START_SECONDS = 120.
_SAMPLE_SECONDS = .5
# Beyond what it had before the attacks.
_MAX_MORE_THREADS, _MAX_MORE_FILES = 50, 20

_Sample = collections.namedtuple(
    '_Sample', 'time megabytes threads files connections frames')


def _flags(inference):
  """The flags of every job."""
  return ['--level_name=synthetic:step_ms=10,size=16', '--unroll_length=10',
          f'--inference={inference}', '--batch_size=2',
          f'--envs_per_actor={_NUM_ENVIRONMENTS}', '--num_pools=1',
          '--total_environment_frames=1000000000000']


class _Job:
  """A process of the experiment."""

  def __init__(self, directory, name, *arguments, files=None):
    self.logdir = os.path.join(directory, name)
    self._output = os.path.join(directory, f'{name}.output')
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with open(self._output, 'w') as output:
      self._process = subprocess.Popen(
          [sys.executable, '-m', 'scalable_agent.experiment',
           f'--logdir={self.logdir}', *arguments],
          stdin=subprocess.DEVNULL, stdout=output, stderr=output,
          env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2',
                   CUDA_VISIBLE_DEVICES='-1'),
          preexec_fn=limit if files else None)
    self.pid = self._process.pid

  def output(self):
    with open(self._output, errors='replace') as f:
      return f.read()

  def is_alive(self):
    return self._process.poll() is None

  def stop(self):
    """Returns the exit code."""
    if self.is_alive():
      self._process.send_signal(signal.SIGTERM)
    try:
      return self._process.wait(60.)
    except subprocess.TimeoutExpired:
      self._process.kill()
      return self._process.wait()


class _Watch:
  """Samples the learner, in a thread."""

  def __init__(self, learner, port):
    self._learner = learner
    self._process = psutil.Process(learner.pid)
    self._port = port
    self._samples = []
    self._stop = threading.Event()
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._thread.start()

  def _frames(self):
    with contextlib.suppress(OSError, IndexError, ValueError):
      path = os.path.join(self._learner.logdir, 'metrics.jsonl')
      with open(path, 'rb') as f:
        f.seek(max(os.path.getsize(path) - 20000, 0))
        return json.loads(f.read().split(b'\n')[-2])['frames']
    return 0

  def _run(self):
    while not self._stop.wait(_SAMPLE_SECONDS):
      with contextlib.suppress(psutil.Error):
        connections = sum(
            c.laddr[1] == self._port and c.status == 'ESTABLISHED'
            for c in self._process.net_connections('tcp'))
        self._samples.append(_Sample(
            time.monotonic(), self._process.memory_info().rss / 1e6,
            self._process.num_threads(), self._process.num_fds(), connections,
            self._frames()))

  def take(self):
    """Returns the samples since the last call."""
    samples, self._samples = self._samples, []
    return samples

  def close(self):
    self._stop.set()
    self._thread.join()

  def save_age(self):
    """Returns the seconds since the last checkpoint was saved."""
    ages = []
    with contextlib.suppress(OSError):  # It comes, or goes just now.
      for entry in os.scandir(self._learner.logdir):
        if re.fullmatch(r'ckpt-\d+\.index', entry.name):
          ages.append(time.time() - entry.stat().st_mtime)
    return min(ages, default=float('inf'))

  def has_begun(self):
    """Whether it trains and saves."""
    return self.save_age() < 60. and self._frames() > 0


class _Attacks:
  """Each is a method that does its worst until a time, and says what it did."""

  def __init__(self, port, config):
    self._port = port
    facts = suites.find_facts(config)
    self._levels = [config.level_name]
    self._agreement = protocol.agreement(config, facts)
    agent = agent_assembly.create_agent(config, facts)
    self._layout = unroll_layouts.unroll_layout(
        agent.initial_state(1), actor.initial_output(1, facts.num_actions),
        facts.observation_spec, config.unroll_length, 1)
    self._weights_layout = protocol.weights_layout(agent.initial_params(0))
    self._rng = np.random.default_rng(0)
    self._num_messages = FLAGS.attack_messages

  def nothing(self, deadline):
    time.sleep(max(deadline - time.monotonic(), 0.))
    return ''

  def idle_connections(self, deadline):
    """1,100 that say nothing, each made again once it is closed."""
    sockets, made = [], 0
    while time.monotonic() < deadline:
      sockets = [s for s in sockets if not _is_closed(s)]
      while len(sockets) < 1100 and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
          sockets.append(socket.create_connection(
              ('localhost', self._port), timeout=5.))
        made += 1
      time.sleep(.2)
    for s in sockets:
      s.close()
    return f'{made} connections'

  def refused_calls(self, deadline):
    """1,100 connections that make calls without the token."""
    connections, made, calls = [], 0, 0
    while time.monotonic() < deadline:
      connections = [c for c in connections if c.is_open]
      while len(connections) < 1100 and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
          connections.append(raw_http2.Connection(self._port, host='localhost'))
        made += 1
      for connection in connections:
        connection.open(remote_parts.METHODS[calls % 5])
        connection.look()
        calls += 1
    for connection in connections:
      connection.socket.close()
    return f'{made} connections, {calls} calls'

  def idle_actors(self, deadline):
    """500 actor jobs that fetch the weights once, and then wait."""
    clients = [
        client_lib.LearnerClient(
            functools.partial(
                client_lib.make_link, f'localhost:{self._port}',
                security_lib.Security(_TOKEN.encode()), task, self._agreement,
                self._levels),
            lambda unused_num_levels: self._layout, self._weights_layout)
        for task in range(_NUM_IDLE_ACTORS)]
    for client in clients:
      client.get_weights(-1)
    time.sleep(max(deadline - time.monotonic(), 0.))
    for client in clients:
      client.close()
    return f'{len(clients)} actors'

  def hellos(self, deadline):
    """Of 47,000 levels, and of as many as are allowed."""
    counts = collections.Counter()
    with self._raw() as raw:
      for number in itertools.cycle([47000, 4096]):
        if time.monotonic() > deadline:
          break
        code, _ = raw.unary('Hello', self._hello(self._levels * number))
        counts[number, code.name] += 1
    return _text(counts)

  def open_calls(self, deadline):
    """4,600 at a time that say nothing, opened again every other second."""
    per_connection, connections, opened = 23, [], 0
    with self._raw() as raw:
      sessions = [self._session(raw) for _ in range(150)]
    turns = itertools.count()
    while time.monotonic() < deadline:
      connections = [c for c in connections if c.is_open]
      while len(connections) < 200:
        with contextlib.suppress(OSError):
          connections.append(raw_http2.Connection(
              self._port, _METADATA, host='localhost'))
      for connection in connections:
        for _ in range(per_connection - connection.num_open):
          turn = next(turns)
          connection.open(
              ('PutUnroll', 'Act', 'Hello', 'GetWeights')[turn % 4],
              ((channels.SESSION_KEY, str(sessions[turn % 150])),))
          opened += 1
        connection.look()
      time.sleep(2.)
      for connection in connections:
        connection.look()
    held = sum(c.num_open for c in connections if c.is_open)
    for connection in connections:
      connection.socket.close()
    return f'{opened} calls, {held} of them open in the end'

  def messages(self, unused_deadline):
    """Hostile ones: random bytes, and good messages with some damage."""
    counts = collections.Counter()
    with self._raw() as raw:
      waiting = collections.deque()
      for i in range(self._num_messages):
        if i % 100 == 0:
          session = self._session(raw)
        method = remote_parts.METHODS[self._rng.integers(5)]
        waiting.append(self._begin(raw, method, self._message(
            method, session, i % 100 + 1), session))
        if len(waiting) == 16:
          counts[waiting.popleft()().name] += 1
      for code_of in waiting:
        counts[code_of().name] += 1
    return _text(counts)

  def _raw(self):
    return remote_parts.Raw(self._port, _METADATA)

  def _hello(self, levels):
    return json.dumps(dict(
        agreement=self._agreement, task=0, levels=levels, run='',
        session=None)).encode()

  def _session(self, raw):
    """Returns a new session; tries until there is room."""
    while True:
      code, answer = raw.unary('Hello', self._hello(self._levels))
      if code == grpc.StatusCode.OK:
        return json.loads(answer)['session']
      time.sleep(.5)

  def _begin(self, raw, method, message, session):
    """Begins a call; returns what gives its status code."""
    if method != 'Act':
      return raw.future(method, message).code
    call = raw.channel.stream_stream(f'/{protocol.SERVICE}/Act')(
        iter([message]), timeout=60.,
        metadata=_METADATA + ((channels.SESSION_KEY, str(session)),))
    def code():
      with contextlib.suppress(grpc.RpcError):
        collections.deque(call, maxlen=0)
      return call.code()
    return code

  def _message(self, method, session, sequence):
    rng = self._rng
    if rng.integers(10) == 0:
      return rng.bytes(rng.integers(0, 3000))
    if method == 'PutUnroll':
      message = self._layout.encode(self._unroll(session, sequence))
    elif method == 'GetWeights':
      message = struct.pack('<Qq', session, -1)
    elif method == 'PutEpisodes':
      message = json.dumps(dict(
          session=session, sequence=sequence,
          episodes=[[self._levels[0], 1., 4]])).encode()
    else:
      message = self._hello(self._levels)
    message = bytearray(message)
    for _ in range(rng.integers(1, 4)):
      at = rng.integers(len(message)) if message else 0
      change = rng.integers(4)
      if change == 0:
        message[at:at + rng.integers(1, 50)] = b''
      elif change == 1:
        message[at:at] = rng.bytes(rng.integers(1, 50))
      elif change == 2:
        message[at:at + 4] = b'\0\0\xc0\x7f'
      elif message:
        message[at] ^= 1 << rng.integers(8)
    return bytes(message)

  def _unroll(self, session, sequence):
    # Its template has the shapes, and zeros will do.
    zeros = tree.map_structure(
        lambda spec: np.zeros(spec.shape, spec.dtype),
        self._layout._template)  # pylint: disable=protected-access
    return zeros._replace(
        session=np.uint64(session), sequence=np.int64(sequence))


def _is_closed(s):
  s.setblocking(False)
  try:
    while s.recv(4096):
      pass
    return True
  except BlockingIOError:
    return False
  except OSError:
    return True


def _text(counts):
  return ', '.join(f'{key}: {count}' for key, count in counts.most_common())


def _wait_until(condition, jobs):
  deadline = time.monotonic() + _START_SECONDS
  while not condition():
    if time.monotonic() > deadline or not all(job.is_alive() for job in jobs):
      sys.exit('The jobs do not train:\n' + '\n'.join(
          job.output()[-2000:] for job in jobs))
    time.sleep(.2)


def _attack(attacks, watch, learner, good_actor):
  """Does one attack after the other; returns what was wrong, a list."""
  wrong = []
  first, most_files = None, 0
  print('                       MB  threads    files  connections  frames/s  '
        'saved  lost', flush=True)
  for name, attack in [
      ('before', attacks.nothing),
      ('idle connections', attacks.idle_connections),
      ('refused calls', attacks.refused_calls),
      ('idle actors', attacks.idle_actors),
      ('hellos', attacks.hellos),
      ('open calls', attacks.open_calls),
      ('hostile messages', attacks.messages),
      # Until what was idle has gone.
      ('after', lambda deadline: attacks.nothing(deadline + 15.))]:
    lost = good_actor.output().count('Lost the learner')
    watch.take()
    did = attack(time.monotonic() + FLAGS.attack_secs)
    samples = watch.take()
    lost = good_actor.output().count('Lost the learner') - lost
    start, end = samples[0], samples[-1]
    rate = (end.frames - start.frames) / (end.time - start.time)

    def span(field):
      values = [getattr(sample, field) for sample in samples]
      return f'{min(values):.0f}-{max(values):.0f}'

    age = watch.save_age()
    print(f'{name:17} {span("megabytes"):>9} {span("threads"):>8} '
          f'{span("files"):>8} {span("connections"):>12} {rate:9.0f} '
          f'{age:4.0f} s {lost:5}  {did}', flush=True)
    if first is None:
      # While it saves, it has fewer than otherwise.
      first, most_files = end, max(sample.files for sample in samples)
    if not learner.is_alive():
      return wrong + [f'{name}: the learner ended']
    if age > 4 * _SAVE_SECONDS + 5:
      wrong.append(f'{name}: no save for {age:.0f} s')
    if rate <= 0:
      wrong.append(f'{name}: the learner does not train')
    if lost and name == 'idle connections':
      wrong.append(f'{name}: the actor job lost the learner')
    if end.threads > first.threads + _MAX_MORE_THREADS:
      wrong.append(f'{name}: {end.threads} threads, {first.threads} before')
  if end.files > most_files + _MAX_MORE_FILES:
    wrong.append(f'{end.files} files, {most_files} before')
  return wrong


def _run(inference, directory):
  """Returns what was wrong, a list."""
  print(f'Inference at the {inference}', flush=True)
  port = ports.free_port()
  token_path = os.path.join(directory, 'token')
  with open(token_path, 'w', opener=lambda path, flags_: os.open(
      path, flags_, 0o600)) as f:
    f.write(_TOKEN)
  shared = _flags(inference) + [
      f'--learner_hosts=localhost:{port}', f'--auth_token_file={token_path}']
  for flag in shared + [
      '--job_name=learner', '--task=0', f'--logdir={directory}']:
    name, _, value = flag.removeprefix('--').partition('=')
    FLAGS[name].parse(value)
  attacks = _Attacks(port, config_lib.resolve(config_flags.given()))
  learner = _Job(directory, 'learner', *shared, '--job_name=learner',
                 '--task=0', f'--save_checkpoint_secs={_SAVE_SECONDS}',
                 '--log_interval_secs=0.5', files=FLAGS.attack_files)
  good_actor = _Job(directory, 'actor', *shared, '--job_name=actor', '--task=0')
  try:
    watch = _Watch(learner, port)
    _wait_until(watch.has_begun, [learner, good_actor])
    wrong = _attack(attacks, watch, learner, good_actor)
    watch.close()
  finally:
    codes = [job.stop() for job in (good_actor, learner)]
  if codes != [0, 0]:
    wrong.append(f'actor job and learner exited with {codes}')
  if 'Traceback' in learner.output():
    wrong.append('the learner has printed a traceback')
  if wrong:
    print(learner.output()[-3000:])
  return wrong


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)  # Each client would tell of itself.
  os.nice(5)
  _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
  wrong = []
  for inference in ('actor', 'learner'):
    with tempfile.TemporaryDirectory() as directory:
      wrong += _run(inference, directory)
  print('\n'.join(wrong) or 'Nothing was wrong.')
  sys.exit(bool(wrong))


if __name__ == '__main__':
  app.run(main)
