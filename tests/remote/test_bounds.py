"""What those without the token, and those with it, can take of a learner."""

import contextlib
import socket
import struct
import threading
import time

import grpc
import numpy as np
import psutil
import pytest

from scalable_agent.files import open_files
from scalable_agent.learner_service import protocol
from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import channels
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import server as server_lib
from scalable_agent.remote import sessions as sessions_lib
from scalable_agent.remote import thread_pool
from tests.learner_service import test_service
from tests.remote import raw_http2
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')

_TOKEN = b'correct-horse-battery'
_SECURITY = security_lib.Security(token=_TOKEN)
_METADATA = security_lib.metadata(_SECURITY)
_OK = grpc.StatusCode.OK
# Those of gRPC itself are among them.
_MAX_THREADS = 50


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(server_lib, '_CHECK_SECONDS', .02)
  monkeypatch.setattr(server_lib, '_CLOSE_GRACE_SECONDS', .1)
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .02)
  monkeypatch.setattr(link_lib, '_LONGEST_WAIT_SECONDS', .1)


class _GoodActor:
  """An actor job in a thread, which puts an unroll at a time."""

  def __init__(self, learner, security=_SECURITY):
    self._learner = learner
    self._client = remote_parts.make_client(learner.port, security=security)
    self.num_put = 0
    self._stop = threading.Event()
    self._put()
    self._thread = remote_parts.Thread(self._run)

  def _put(self):
    version = self._client.get_weights(-1)[1]
    self._client.put_unrolls(
        [remote_parts.make_unroll(self.num_put, version)])
    self.num_put += 1
    self._learner.drain(1)

  def _run(self):
    while not self._stop.wait(.001):
      self._put()

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self._stop.set()
    self._thread.result()
    self._client.close()

  def makes_progress(self):
    before = self.num_put
    remote_parts.wait_until(lambda: self.num_put > before + 3)


def _num_threads():
  return psutil.Process().num_threads()


def _connect(stack, port):
  """Connects to a learner; None if that is refused."""
  try:
    return stack.enter_context(
        socket.create_connection(('127.0.0.1', port), timeout=30.))
  except OSError:
    return None


def _is_open(connection):
  if connection is None:
    return False
  connection.setblocking(False)
  try:
    # What gRPC says of itself at first is no end.
    while connection.recv(1024):
      pass
  except BlockingIOError:
    return True
  except OSError:
    pass
  return False


# -- Without the token --------------------------------------------------------


def test_connections_are_bounded_and_a_good_actor_is_not_disturbed(
    monkeypatch, caplog):
  monkeypatch.setattr(server_lib, '_MAX_CONNECTIONS', 20)
  with remote_parts.Learner(security=_SECURITY) as learner:
    with _GoodActor(learner) as actor, contextlib.ExitStack() as stack:
      before = open_files.count()
      idle = [_connect(stack, learner.port) for _ in range(100)]
      # A quarter of the room is for those that have not said who they are.
      remote_parts.wait_until(lambda: sum(map(_is_open, idle)) <= 5)
      actor.makes_progress()
      # Of a connection this process has both ends.
      ours = sum(c is not None for c in idle)
      assert open_files.count() - before - ours < 25
      # So another finds room.
      with _GoodActor(learner) as other:
        other.makes_progress()
      actor.makes_progress()
  assert 'Lost the learner' not in caplog.text


def test_the_limit_of_open_files_bounds_connections(monkeypatch):
  monkeypatch.setattr(open_files, 'limit', lambda: 1024)
  monkeypatch.setattr(open_files, 'count', lambda: 100)
  assert server_lib._max_connections('127.0.0.1:0') == 1024 - 100 - 128
  # At each of two addresses.
  monkeypatch.setattr(
      server_lib.socket, 'getaddrinfo', lambda *unused, **unused_too: [1, 2])
  assert server_lib._max_connections('localhost:0') == (1024 - 228) // 2
  monkeypatch.setattr(open_files, 'limit', lambda: 1 << 30)
  assert server_lib._max_connections('localhost:0') == 4096
  monkeypatch.setattr(open_files, 'limit', lambda: 200)
  assert server_lib._max_connections('localhost:0') == 1


def test_a_connection_whose_call_is_refused_is_told_so_and_closed(
    monkeypatch, caplog):
  """gRPC takes it for used, since it makes calls."""
  monkeypatch.setattr(server_lib, '_CHECK_SECONDS', 60.)
  with remote_parts.Learner(security=_SECURITY) as learner:
    with _GoodActor(learner) as actor, contextlib.ExitStack() as stack:
      for _ in range(2):
        callers = [stack.enter_context(raw_http2.Connection(
            learner.port, [('authorization', 'Bearer wrong')]))
                   for _ in range(10)]
        for caller in callers:
          caller.open('Hello')
        for caller in callers:
          remote_parts.wait_until(
              lambda c=caller: c.look(.01) or not c.is_open)
          assert caller.ended
        actor.makes_progress()
  assert 'Lost the learner' not in caplog.text


def test_connections_of_which_no_call_is_let_in_are_closed(monkeypatch):
  """Such as calls that have not even sent their headers."""
  monkeypatch.setattr(server_lib, '_UNKNOWN_SECONDS', .2)
  with remote_parts.Learner(security=_SECURITY) as learner:
    with _GoodActor(learner) as actor, contextlib.ExitStack() as stack:
      started = time.monotonic()
      silent = stack.enter_context(raw_http2.Connection(learner.port))
      remote_parts.wait_until(lambda: silent.look(.01) or not silent.is_open)
      assert time.monotonic() - started > .1
      time.sleep(.3)
      actor.makes_progress()


def test_connections_that_never_speak_are_closed(monkeypatch):
  monkeypatch.setattr(channels, '_HANDSHAKE_MS', 200)
  # What else would close them does not while they are waited for.
  monkeypatch.setattr(channels, '_KEEPALIVE_MS', 600_000)
  monkeypatch.setattr(server_lib, '_UNKNOWN_SECONDS', 600.)
  with remote_parts.Learner(security=_SECURITY) as learner:
    with contextlib.ExitStack() as stack:
      started = time.monotonic()
      idle = [_connect(stack, learner.port) for _ in range(5)]
      assert all(idle)
      remote_parts.wait_until(lambda: not any(map(_is_open, idle)), 10.)
      assert time.monotonic() - started >= .18


# -- With the token -----------------------------------------------------------


def test_an_actor_job_has_so_many_environments_and_no_more():
  with remote_parts.Learner() as learner:
    with remote_parts.Raw(learner.port) as raw:
      code, details = raw.unary(
          'Hello', remote_parts.hello_message(levels=['easy'] * 4097))
      assert code == grpc.StatusCode.FAILED_PRECONDITION
      assert '--envs_per_actor' in details and '4096' in details
      assert raw.hello(levels=['easy'] * 4096)


@pytest.mark.parametrize('acts, num_bytes', [(False, 0), (True, 4 * 500)])
def test_a_session_keeps_little_of_its_levels(acts, num_bytes):
  options = dict(make_actor=lambda levels: None) if acts else {}
  with remote_parts.Learner(**options) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello(levels=['easy', 'hard'] * 250)
      levels = learner.service._methods.sessions.find(session).about.levels
      assert levels.nbytes == num_bytes and levels.tolist() == (
          [0, 1] * 250 if acts else [])


def test_sessions_are_bounded_and_expire(monkeypatch):
  # Longer than it takes a busy machine to say hello so often.
  monkeypatch.setattr(sessions_lib, '_EXPIRY_SECONDS', 600.)
  with remote_parts.Learner() as learner:
    sessions = learner.service._methods.sessions
    with remote_parts.Raw(learner.port) as raw:
      for _ in range(20):
        raw.hello()
      with _GoodActor(learner, remote_parts.NO_SECURITY):
        assert len(sessions._sessions) == 21
        monkeypatch.setattr(sessions_lib, '_EXPIRY_SECONDS', 2.)
        remote_parts.wait_until(lambda: len(sessions._sessions) == 1)
    remote_parts.wait_until(lambda: not sessions._sessions)
    monkeypatch.setattr(sessions_lib, '_EXPIRY_SECONDS', 600.)
    # So many that none of the oldest is known.
    monkeypatch.setattr(sessions, '_capacity', 5)
    with remote_parts.Raw(learner.port) as raw:
      first = raw.hello()
      for _ in range(10):
        raw.hello()
      assert len(sessions._sessions) == 5
      assert raw.get_weights(first, -1)[0] == grpc.StatusCode.NOT_FOUND


def test_an_unroll_of_an_expired_session_is_taken_once(monkeypatch):
  monkeypatch.setattr(sessions_lib, '_EXPIRY_SECONDS', 600.)
  with remote_parts.Learner() as learner:
    sessions = learner.service._methods.sessions
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      message = remote_parts.put_message(session, 1)
      assert raw.unary('PutUnroll', message)[0] == _OK
      monkeypatch.setattr(sessions_lib, '_EXPIRY_SECONDS', .1)
      remote_parts.wait_until(lambda: not sessions._sessions)
      monkeypatch.setattr(sessions_lib, '_EXPIRY_SECONDS', 600.)
      # The answer was lost; so the actor comes back, with all that it has.
      assert raw.unary('PutUnroll', message)[0] == grpc.StatusCode.NOT_FOUND
      assert raw.hello(run=sessions.run, session=session) == session
      assert raw.unary('PutUnroll', message)[0] == _OK
      assert len(learner.queue) == 1


def _open_calls(stack, learner, count, method='PutUnroll', per_connection=30,
                session=None):
  """Opens calls that send nothing; returns the connections."""
  connections = []
  metadata = ((channels.SESSION_KEY, str(session)),) if session else ()
  for start in range(0, count, per_connection):
    connection = stack.enter_context(
        raw_http2.Connection(learner.port, _METADATA))
    connections.append(connection)
    for _ in range(min(per_connection, count - start)):
      connection.open(method, metadata)
  return connections


def _session(learner):
  with remote_parts.Raw(learner.port, _METADATA) as raw:
    return raw.hello()


@pytest.mark.parametrize('method', remote_parts.METHODS)
def test_open_calls_take_no_threads(method, monkeypatch):
  monkeypatch.setattr(calls_lib, '_MAX_STREAMS_PER_SESSION', 1000)
  with remote_parts.Learner(
      security=_SECURITY, make_actor=lambda levels: None) as learner:
    calls = learner.service._server.calls
    with _GoodActor(learner) as actor, contextlib.ExitStack() as stack:
      session = _session(learner)
      before = _num_threads()
      _open_calls(stack, learner, 300, method, session=session)
      remote_parts.wait_until(lambda: len(calls) >= 300)
      actor.makes_progress()
      assert _num_threads() - before < _MAX_THREADS
    remote_parts.wait_until(lambda: not len(calls))


def test_actors_that_wait_for_room_take_no_threads():
  with remote_parts.Learner(capacity=1, security=_SECURITY) as learner:
    with contextlib.ExitStack() as stack:
      with remote_parts.Raw(learner.port, _METADATA) as raw:
        sessions = [raw.hello() for _ in range(100)]
      before = _num_threads()
      connections = []
      for session in sessions:
        connection = stack.enter_context(
            raw_http2.Connection(learner.port, _METADATA))
        connection.send(connection.open('PutUnroll'),
                        remote_parts.put_message(session, 1))
        connections.append(connection)
      remote_parts.wait_until(
          lambda: len(learner.service._server.calls) == 100 and
          len(learner.service._server.calls.silent) == 1)
      assert _num_threads() - before < _MAX_THREADS
      learner.drain(100)
      for connection in connections:
        remote_parts.wait_until(
            lambda c=connection: c.look(.01) or c.answers)


def test_threads_that_acted_return(monkeypatch):
  barrier = threading.Barrier(60)

  class Slow:
    def act(self, ids, *unused_args):
      barrier.wait(30.)
      return ids, np.zeros_like(ids)

  with remote_parts.Learner(make_actor=lambda levels: Slow(),
                            max_environments=4) as learner:
    threads = learner.service._server.threads
    monkeypatch.setattr(thread_pool, '_IDLE_SECONDS', .2)
    steps = test_service._steps(num_environments=1)
    with contextlib.ExitStack() as stack:
      with remote_parts.Raw(learner.port) as raw:
        connections = []
        for _ in range(60):
          connection = stack.enter_context(
              raw_http2.Connection(learner.port))
          connection.send(connection.open('Act', (
              (channels.SESSION_KEY, str(raw.hello())),)), steps)
          connections.append(connection)
      for connection in connections:
        remote_parts.wait_until(
            lambda c=connection: c.look(.01) or c.answers)
      # The streams are still there.
      remote_parts.wait_until(lambda: not len(threads))
      assert len(learner.service._server.calls) == 60


@pytest.mark.parametrize('method', remote_parts.METHODS)
def test_open_calls_starve_nobody(method, monkeypatch, caplog):
  """Those that are silent give way."""
  monkeypatch.setattr(calls_lib, '_MAX_CALLS', 50)
  monkeypatch.setattr(calls_lib, '_PATIENCE_SECONDS', .05)
  with remote_parts.Learner(
      security=_SECURITY, make_actor=lambda levels: None) as learner:
    calls = learner.service._server.calls
    with contextlib.ExitStack() as stack:
      sessions = [_session(learner) for _ in range(4)]
      connections = _open_calls(
          stack, learner, 50, method, session=sessions[0])
      remote_parts.wait_until(
          lambda: len(calls) >= (32 if method == 'Act' else 50))
      time.sleep(.06)
      with _GoodActor(learner) as actor:
        for session in sessions[1:]:
          connections += _open_calls(
              stack, learner, 50, method, session=session)
          actor.makes_progress()
          assert len(calls) <= 50
      def num_ended():
        for connection in connections:
          connection.look()
        return sum(len(connection.ended) for connection in connections)
      remote_parts.wait_until(lambda: num_ended() >= 150)
  assert 'Traceback' not in caplog.text


@pytest.mark.parametrize('inference, method', [
    ('actor', 'PutUnroll'), ('learner', 'PutUnroll'), ('learner', 'Act')])
def test_bytes_under_way_are_bounded(inference, method, monkeypatch):
  """Parts of large messages, and answers that nobody reads."""
  largest, options = 4 << 20, {}
  if inference == 'learner':
    options = dict(make_actor=lambda levels: None, max_environments=300_000)
    largest = protocol.StepsLayouts(
        remote_parts.SPEC, options['max_environments'],
        remote_parts.NUM_ACTIONS).max_bytes
    assert largest > 8 << 20
  room = 19 * (largest + (4 << 20)) // 2
  monkeypatch.setattr(server_lib, '_max_bytes', lambda share: room)
  monkeypatch.setattr(calls_lib, '_PATIENCE_SECONDS', .05)
  large = protocol.weights_layout({'w': np.zeros([1 << 20], np.float32)})
  with remote_parts.Learner(
      security=_SECURITY, weights_layout=large, **options) as learner:
    learner.service.update({'w': np.zeros([1 << 20], np.float32)}, 1)
    calls = learner.service._server.calls
    with contextlib.ExitStack() as stack:
      connections = _open_calls(
          stack, learner, 9, method, session=_session(learner))
      for connection in connections:
        for call in range(1, 19, 2):
          connection.send(call, bytes(30000), length=largest - (1 << 20))
      remote_parts.wait_until(lambda: len(calls) == 9)
      time.sleep(.1)
      with remote_parts.Raw(learner.port, _METADATA) as raw:
        session = raw.hello()  # For which one had to go.
        remote_parts.wait_until(lambda: len(calls) == 8)
        unread = stack.enter_context(raw_http2.Connection(
            learner.port, _METADATA, reads=False))
        for _ in range(10):
          unread.send(unread.open('GetWeights'),
                      struct.pack('<Qq', session, -1), is_last=True)
          time.sleep(.06)
          assert calls._num_bytes <= room
        # And so had the connection that did not read.
        remote_parts.wait_until(
            lambda: unread.look(.01) or not unread.is_open)
        code, answer = raw.get_weights(session, -1)
        assert code == _OK and len(answer) == large.num_bytes


def test_silent_streams_end_and_a_good_actor_opens_another(monkeypatch, caplog):
  monkeypatch.setattr(calls_lib, '_SILENT_STREAM_SECONDS', .2)
  with remote_parts.Learner() as learner:
    with remote_parts.client_of(learner) as client:
      version = client.get_weights(-1)[1]
      for i in range(3):
        client.put_unrolls([remote_parts.make_unroll(i, version)])
        remote_parts.wait_until(lambda: not len(learner.service._server.calls))
    taken = learner.take(3)
    assert not len(learner.queue)
  for i, unroll in enumerate(taken):
    assert remote_parts.same(unroll, remote_parts.make_unroll(i))
  assert 'nothing was heard for 0 s' in caplog.text


def test_a_stream_for_each_of_many_breakdowns(monkeypatch):
  """The oldest makes way, so that a good actor is never kept out."""
  monkeypatch.setattr(calls_lib, '_MAX_STREAMS_PER_SESSION', 4)
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      raw.unary('PutUnroll', remote_parts.put_message(session, 1))
      waiting = []
      for i in range(10):
        waiting.append(
            raw.future('PutUnroll', remote_parts.put_message(session, 2)))
        # One after the other, as they arrive.
        remote_parts.wait_until(
            lambda: len(learner.service._server.calls) == min(i + 1, 4) and
            not any(call.is_active() for call in waiting[:max(i - 3, 0)]))
      learner.drain(2)
      assert waiting[-1].result() == b''
      assert [call.code() for call in waiting[:6]] == (
          [grpc.StatusCode.UNAVAILABLE] * 6)
      assert all(call.code() == _OK for call in waiting[6:])
      assert not len(learner.queue)


def test_streams_of_a_connection_are_bounded():
  with remote_parts.Learner(security=_SECURITY) as learner:
    with contextlib.ExitStack() as stack:
      _open_calls(stack, learner, 200, per_connection=200)
      remote_parts.wait_until(lambda: len(learner.service._server.calls) == 32)
      time.sleep(.1)
      assert len(learner.service._server.calls) == 32


def test_who_finds_no_room_is_told_to_come_again(monkeypatch):
  monkeypatch.setattr(calls_lib, '_MAX_CALLS', 1)
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      raw.unary('PutUnroll', remote_parts.put_message(session, 1))
      waiting = raw.future('PutUnroll', remote_parts.put_message(session, 2))
      remote_parts.wait_until(
          lambda: len(learner.service._server.calls) == 1 and
          not learner.service._server.calls.silent)
      time.sleep(.1)
      code, details = raw.get_weights(session, -1)
      assert code == grpc.StatusCode.UNAVAILABLE
      assert 'no room' in details
      with remote_parts.client_of(learner) as client:
        asking = remote_parts.Thread(client.get_weights, -1)
        time.sleep(.2)
        learner.drain(2)
        assert waiting.result() == b''
        assert asking.result()[1] % 2**48 == 0


def test_all_sessions_at_work_leave_no_room_for_another(monkeypatch, caplog):
  with remote_parts.Learner(capacity=1) as learner:
    monkeypatch.setattr(learner.service._methods.sessions, '_capacity', 1)
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      raw.unary('PutUnroll', remote_parts.put_message(session, 1))
      waiting = raw.future('PutUnroll', remote_parts.put_message(session, 2))
      calls = learner.service._server.calls
      remote_parts.wait_until(lambda: len(calls) == 1 and not calls.silent)
      with remote_parts.client_of(learner) as client:
        asking = remote_parts.Thread(client.get_weights, -1)
        remote_parts.wait_until(
            lambda: 'as many actor jobs as it can serve' in caplog.text)
        learner.drain(2)
        assert waiting.result() == b''
        assert asking.result()
