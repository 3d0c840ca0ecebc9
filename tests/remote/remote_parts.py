"""What the tests of transport and services are made of: small and quick."""

import collections
import contextlib
import functools
import json
import socket
import struct
import threading
import time
import types

import grpc
import numpy as np
import tree

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import networks
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.environments import ArraySpec
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.learner_service import service as service_lib
from scalable_agent.remote import channels
from scalable_agent.remote import security as security_lib
from scalable_agent.suites import Facts
from scalable_agent.unroll_messages import unroll_layouts
from scalable_agent.unroll_messages import unroll_message

UNROLL_LENGTH = 3
NUM_ACTIONS = 4
LEVELS = ['easy', 'hard']
# A frame, and the words of an instruction.
SPEC = (ArraySpec((2, 2, 1), np.uint8), ArraySpec((3,), np.int32))
SETTINGS = dict(
    {name: config_lib.SETTINGS[name].default
     for name in protocol.SHARED_SETTINGS},
    level_name='both', network='deep', use_lstm=True, precision='float32',
    width=2, height=2, num_action_repeats=4, full_action_set=False,
    unroll_length=UNROLL_LENGTH, inference='actor', architecture='impala')
METHODS = ('Hello', 'PutUnroll', 'PutEpisodes', 'GetWeights', 'Act')
NO_SECURITY = security_lib.Security()


def initial_state(size):
  return networks.LSTMState(*np.zeros([2, size, 5], np.float32))


def weights_of(version):
  """Weights that all say which version they are."""
  return {'a/w': np.full([100, 10], version, np.float32),
          'b': np.full([7], version, np.float32)}


def make_agreement(num_actions=NUM_ACTIONS, spec=SPEC, **changes):
  return protocol.agreement(
      types.SimpleNamespace(**dict(SETTINGS, **changes)),
      Facts(num_actions, spec))


@functools.lru_cache(maxsize=None)  # Layouts do not change.
def unroll_layout(num_levels=len(LEVELS), finite=False):
  output = trajectories.AgentOutput(
      np.zeros([1], np.int32), np.zeros([1, NUM_ACTIONS], np.float32),
      np.zeros([1], np.float32))
  return unroll_layouts.unroll_layout(
      initial_state(1), output, SPEC, UNROLL_LENGTH, num_levels, finite)


def weights_layout():
  return protocol.weights_layout(weights_of(0))


def make_step_output(rng, *shape):
  return environments.StepOutput(
      reward=rng.normal(size=shape).astype(np.float32),
      info=environments.StepOutputInfo(
          rng.normal(size=shape).astype(np.float32),
          rng.integers(0, 99, shape, dtype=np.int32)),
      done=rng.integers(0, 2, shape).astype(bool),
      observation=(
          rng.integers(0, 256, shape + (2, 2, 1), dtype=np.uint8),
          rng.integers(-1, 1000, shape + (3,), dtype=np.int32)))


def make_unroll(seed, version=0, level='easy'):
  """An `ActorOutput` of its own for every seed."""
  rng = np.random.default_rng(seed)
  length = UNROLL_LENGTH + 1
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  return trajectories.ActorOutput(
      level_name=level,
      agent_state=networks.LSTMState(normal(5), normal(5)),
      env_outputs=make_step_output(rng, length),
      agent_outputs=trajectories.AgentOutput(
          rng.integers(0, NUM_ACTIONS, [length], dtype=np.int32),
          normal(length, NUM_ACTIONS), normal(length)),
      policy_version=np.int64(version))


def put_message(session, sequence, seed=0, **changes):
  """The message that puts `make_unroll(seed)`."""
  unroll = make_unroll(seed)
  return unroll_layout().encode(unroll_message.UnrollMessage(
      session=np.uint64(session), sequence=np.int64(sequence),
      level=np.int32(0), policy_version=np.int64(0),
      agent_state=unroll.agent_state, env_outputs=unroll.env_outputs,
      agent_outputs=unroll.agent_outputs)._replace(**changes))


def hello_message(**changes):
  return json.dumps(dict(dict(
      agreement=make_agreement(), task=0, levels=['easy'], run='',
      session=None), **changes)).encode()


def same(a, b):
  """Whether two `ActorOutput`s are equal, policy versions aside."""
  leaves = lambda u: [np.asarray(leaf) for part in (
      u.agent_state, u.env_outputs, u.agent_outputs)
                      for leaf in tree.flatten(part)]
  return a.level_name == b.level_name and all(
      x.dtype == y.dtype and np.array_equal(x, y)
      for x, y in zip(leaves(a), leaves(b), strict=True))


class Learner:
  """A service, what it put, and weights."""

  def __init__(self, capacity=1000, port=0, host='127.0.0.1',
               security=NO_SECURITY, agreement=None, wrap_put=lambda put: put,
               **options):
    self.queue = staging.TrajectoryQueue(capacity)
    self.episodes = []
    self.service = service_lib.Service(
        f'{host}:{port}', service_lib.Offer(
            agreement or make_agreement(), LEVELS, unroll_layout(),
            options.pop('weights_layout', None) or weights_layout(),
            wrap_put(self.queue.put),
            lambda *episode: self.episodes.append(episode),
            facts=Facts(NUM_ACTIONS, SPEC), **options),
        security)
    self.port = self.service.port
    self.service.update(weights_of(0), 0)

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self.close()

  def take(self, count, timeout=60.):
    """Returns the next unrolls; fails if they do not come."""
    wait_until(lambda: len(self.queue) >= count, timeout)
    return self.queue.get_many(count)

  def drain(self, count):
    """Takes one by one, which a queue smaller than `count` allows."""
    return [unroll for _ in range(count) for unroll in self.take(1)]

  def close(self):
    self.queue.close()
    self.service.close()


def link_maker(port, task=0, security=NO_SECURITY, host='127.0.0.1'):
  """What an actor job makes its links with."""
  return functools.partial(
      client_lib.make_link, f'{host}:{port}', security, task)


def make_client(port, task=0, security=NO_SECURITY, levels=('easy',),
                host='127.0.0.1', **changes):
  """A client that agrees with `Learner`, but for `changes` of the agreement."""
  return client_lib.LearnerClient(
      functools.partial(
          link_maker(port, task, security, host), make_agreement(**changes),
          list(levels)),
      unroll_layout, weights_layout())


def make_link(port, levels=('easy',)):
  """The link of a pool whose policy is at the learner."""
  return link_maker(port)(make_agreement(), list(levels))


@contextlib.contextmanager
def client_of(learner, **options):
  client = make_client(learner.port, **options)
  try:
    yield client
  finally:
    client.close()


class Raw:
  """Calls a service with whatever bytes."""

  def __init__(self, port, metadata=(), timeout=60., credentials=None,
               compression=None):
    # One that compresses cannot be one of the package's.
    options = [] if compression else channels.channel_options(1 << 24)
    address = f'127.0.0.1:{port}'
    self.channel = (
        grpc.secure_channel(address, credentials, options) if credentials
        else grpc.insecure_channel(address, options, compression))
    self._metadata = tuple(metadata)
    self._timeout = timeout

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self.channel.close()

  def future(self, method, message):
    if method == 'PutUnroll':
      return _OneAnswer(self.channel.stream_stream(
          f'/{protocol.SERVICE}/{method}')(
              iter([message]), metadata=self._metadata, timeout=self._timeout))
    return self.channel.unary_unary(f'/{protocol.SERVICE}/{method}').future(
        message, metadata=self._metadata, timeout=self._timeout)

  def unary(self, method, message):
    """Returns (status code, answer or details)."""
    return _outcome(lambda: self.future(method, message).result())

  def act(self, session, messages):
    """Returns (status code, list of answers or details)."""
    call = self.channel.stream_stream(f'/{protocol.SERVICE}/Act')
    return _outcome(lambda: list(call(
        iter(messages), timeout=self._timeout, metadata=self._metadata + (
            () if session is None else
            ((channels.SESSION_KEY, str(session)),)))))

  def hello(self, **changes):
    """Returns the number of a new session."""
    code, answer = self.unary('Hello', hello_message(**changes))
    assert code == grpc.StatusCode.OK, answer
    return json.loads(answer)['session']

  def get_weights(self, session, version):
    return self.unary('GetWeights', struct.pack('<Qq', session, version))


class _OneAnswer:
  """A stream of one message, as gRPC's future of a call."""

  def __init__(self, call):
    self._call = call

  def result(self):
    (answer,) = self._call
    return answer

  def code(self):
    # A stream ends once its answers have been read.
    with contextlib.suppress(grpc.RpcError):
      collections.deque(self._call, maxlen=0)
    return self._call.code()

  def __getattr__(self, name):
    return getattr(self._call, name)


def _outcome(call):
  try:
    return grpc.StatusCode.OK, call()
  except grpc.RpcError as e:
    return e.code(), e.details()


def wait_until(condition, timeout=60.):
  deadline = time.monotonic() + timeout
  while not condition():
    assert time.monotonic() < deadline, 'not in time'
    time.sleep(.01)


class Thread(threading.Thread):
  """Runs a function; `result` waits for what it returned or raised."""

  def __init__(self, function, *args):
    super().__init__(daemon=True)
    self._function = lambda: function(*args)
    self._outcome = None
    self.start()

  def run(self):
    try:
      self._outcome = True, self._function()
    except BaseException as e:  # For the thread that asks.
      self._outcome = False, e

  def result(self, timeout=60.):
    self.join(timeout)
    assert not self.is_alive(), 'not in time'
    good, value = self._outcome
    if good:
      return value
    raise value


class Proxy:
  """A network between client and server that can be cut, or go silent."""

  def __init__(self, port):
    self._target = port
    self._pairs = []
    self._silent = set()
    self._listener = socket.create_server(('127.0.0.1', 0))
    self.port = self._listener.getsockname()[1]
    threading.Thread(target=self._accept, daemon=True).start()

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self._listener.close()
    self.cut()

  @property
  def num_connections(self):
    """How many there have been."""
    return len(self._pairs)

  def _accept(self):
    while True:
      try:
        inner, _ = self._listener.accept()
      except OSError:
        return
      try:
        outer = socket.create_connection(('127.0.0.1', self._target))
      except OSError:
        inner.close()
        continue
      pair = inner, outer
      self._pairs.append(pair)
      for ends in pair, pair[::-1]:
        threading.Thread(
            target=self._copy, args=(pair, *ends), daemon=True).start()

  def _copy(self, pair, start, end):
    with contextlib.suppress(OSError):
      while data := start.recv(65536):
        if pair not in self._silent:
          end.sendall(data)
    self._shut(pair)

  def _shut(self, pair):
    for end in pair:
      with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

  def cut(self):
    """Ends the connections there are."""
    for pair in list(self._pairs):
      self._shut(pair)

  def silence(self):
    """Swallows what the connections there are carry from now on."""
    self._silent.update(self._pairs)
