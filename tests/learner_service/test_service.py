"""The learner's end, called over real sockets with whatever one may send."""

import errno
import functools
import gc
import json
import logging as python_logging
import socket
import struct
import threading
import time

import grpc
import numpy as np
import pytest

from scalable_agent import published
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.learner_service import roll_call
from scalable_agent.learner_service import service as service_lib
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import server as server_lib
from scalable_agent.remote import sessions as sessions_lib
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import call_sizes
from tests import clocks
from tests import ports
from tests.remote import raw_http2
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')

_OK = grpc.StatusCode.OK
_BAD = grpc.StatusCode.INVALID_ARGUMENT
_CLOSE_SECONDS = 5.


@pytest.fixture
def learner():
  with remote_parts.Learner() as learner:
    yield learner


@pytest.fixture
def raw(learner):
  with remote_parts.Raw(learner.port) as raw:
    yield raw


@pytest.fixture
def clock(monkeypatch):
  """The time that sessions see."""
  return clocks.Clock(monkeypatch, sessions_lib, roll_call)


# -- Unrolls ------------------------------------------------------------------


def test_unrolls_arrive_as_they_were(learner):
  with remote_parts.client_of(learner) as client:
    version = client.get_weights(-1)[1]
    sent = [remote_parts.make_unroll(i, version, level)
            for i, level in enumerate(['easy', 'hard', 'easy'])]
    for unroll in sent:
      client.put_unrolls([unroll])
  for a, b in zip(sent, learner.take(3), strict=True):
    assert remote_parts.same(a, b)
    assert b.policy_version == 0
  assert not remote_parts.same(sent[0], sent[2])


def test_environments_of_all_actors_are_told_apart(learner):
  for _ in range(2):
    with remote_parts.client_of(learner) as client:
      version = client.get_weights(-1)[1]
      for stream in (7, 8, 7):
        client.put_unrolls([
            remote_parts.make_unroll(0, version)._replace(stream=stream)])
  streams = [unroll.stream for unroll in learner.take(6)]
  assert len(set(streams)) == 4
  assert streams[0] == streams[2] and streams[3] == streams[5]


def test_an_actor_that_is_gone_is_said_while_there_is_training(
    clock, monkeypatch, caplog):
  """By what the service does now and then."""
  monkeypatch.setattr(server_lib, '_CHECK_SECONDS', 600.)
  with remote_parts.Learner() as learner:
    methods = learner.service._methods
    with remote_parts.client_of(learner) as client:
      version = client.get_weights(-1)[1]
      client.put_unrolls([remote_parts.make_unroll(0, version)])
      methods.check()
    learner.take(1)
    (session,) = methods.sessions.recent()
    remote_parts.wait_until(lambda: not session.has_call)
    clock.now += 61.
    methods.is_done = True
    methods.check()
    assert 'Not heard of' not in caplog.text
    methods.is_done = False
    methods.check()
    assert 'Not heard of for a minute: actor 0. Others heard of: 0.' in (
        caplog.text)


@pytest.mark.parametrize('count', [0, 1, 2, 8, 9, 20])
@pytest.mark.parametrize('max_call_bytes', [4 << 20, 5000, 1])
def test_several_unrolls_at_once_arrive_in_order(
    learner, monkeypatch, count, max_call_bytes):
  monkeypatch.setattr(call_sizes, 'MAX_CALL_BYTES', max_call_bytes)
  with remote_parts.client_of(learner) as client:
    version = client.get_weights(-1)[1]
    sent = [remote_parts.make_unroll(i, version) for i in range(count)]
    client.put_unrolls(sent)
    client.put_unrolls([remote_parts.make_unroll(99, version)])
  arrived = learner.take(count + 1)
  assert [remote_parts.same(a, b) for a, b in zip(sent, arrived)] == (
      [True] * count)
  assert remote_parts.same(arrived[-1], remote_parts.make_unroll(99))


def test_of_several_that_were_sent_again_each_is_taken_once():
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      both = wire.join([remote_parts.put_message(session, i, i)
                        for i in (1, 2)])
      # One has been taken, the other waits for room, when the call breaks.
      waiting = raw.future('PutUnroll', both)
      remote_parts.wait_until(lambda: len(learner.queue) == 1)
      waiting.cancel()
      again = raw.future('PutUnroll', both)
      for seed, unroll in zip((1, 2), learner.drain(2), strict=True):
        assert remote_parts.same(unroll, remote_parts.make_unroll(seed))
      assert again.result() == b''
      time.sleep(.2)
      assert not len(learner.queue)


def test_one_bad_unroll_of_several_keeps_all_out(learner, raw):
  session, other = raw.hello(), raw.hello()
  good = remote_parts.put_message(session, 1)
  for bad, expected in [
      (remote_parts.put_message(other, 1), 'of one session'),
      (remote_parts.put_message(
          session, 2, policy_version=np.int64(1)), 'policy_version is 1'),
      (remote_parts.put_message(session, 2)[:-8], 'bytes, expected'),
      (remote_parts.put_message(
          session, 2, level=np.int32(2)), 'outside of')]:
    for message in ([good, bad], [bad, good]):
      code, details = raw.unary('PutUnroll', wire.join(message))
      assert code == grpc.StatusCode.INVALID_ARGUMENT
      if message[0] is good:
        assert expected in details
  assert not len(learner.queue)
  assert raw.unary('PutUnroll', good) == (_OK, b'')
  learner.take(1)


def test_a_full_queue_makes_actors_wait():
  with remote_parts.Learner(capacity=2) as learner:
    with remote_parts.client_of(learner) as client:
      version = client.get_weights(-1)[1]
      sent = [remote_parts.make_unroll(i, version) for i in range(6)]
      done = []

      def put():
        for unroll in sent:
          client.put_unrolls([unroll])
          done.append(unroll)

      thread = remote_parts.Thread(put)
      remote_parts.wait_until(lambda: len(done) == 2)
      time.sleep(.5)
      # Two wait in the queue, and one on its way: no more of them anywhere.
      assert len(done) == 2 and thread.is_alive()
      for unroll in sent:
        assert remote_parts.same(learner.drain(1)[0], unroll)
      thread.result()
  assert len(done) == 6


def test_a_sender_that_is_gone_need_not_know_how_its_wait_ended(caplog):
  with remote_parts.Learner(capacity=1) as learner:
    calls = learner.service._server.calls
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
    with raw_http2.Connection(learner.port) as connection:
      connection.send(connection.open('PutUnroll'), wire.join([
          remote_parts.put_message(session, number) for number in (1, 2)]))
      remote_parts.wait_until(
          lambda: len(learner.queue) == 1 and len(calls) == 1)
    remote_parts.wait_until(lambda: not len(calls))
  gc.collect()
  assert 'exception was never retrieved' not in caplog.text


def test_200_actors_wait_at_once():
  with remote_parts.Learner(capacity=1) as learner:
    clients = [remote_parts.make_client(learner.port, task=i)
               for i in range(200)]
    try:
      def put(i):
        clients[i].put_unrolls([remote_parts.make_unroll(
            i, clients[i].get_weights(-1)[1])])

      threads = [remote_parts.Thread(put, i) for i in range(200)]
      remote_parts.wait_until(lambda: learner.service.num_jobs == 200)
      remote_parts.wait_until(
          lambda: sum(not t.is_alive() for t in threads) == 1)
      # Others are served meanwhile.
      with remote_parts.client_of(learner) as other:
        assert other.get_weights(-1)
      arrived = learner.drain(200)
      for thread in threads:
        thread.result()
    finally:
      for client in clients:
        client.close()
  rewards = {unroll.env_outputs.reward.tobytes() for unroll in arrived}
  assert len(rewards) == 200


def test_an_unroll_that_was_sent_again_is_taken_once():
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      put = lambda sequence: raw.unary(
          'PutUnroll', remote_parts.put_message(session, sequence, sequence))
      assert put(1) == (_OK, b'')
      assert put(1) == (_OK, b'')
      # The answer is lost while the unroll waits for room, twice.
      for _ in range(2):
        waiting = raw.future(
            'PutUnroll', remote_parts.put_message(session, 2, 2))
        time.sleep(.3)
        waiting.cancel()
      again = remote_parts.Thread(put, 2)
      assert learner.drain(2)[1].env_outputs.reward[0] == (
          remote_parts.make_unroll(2).env_outputs.reward[0])
      assert again.result() == (_OK, b'')
      assert put(1) == (_OK, b'')
      assert put(3) == (_OK, b'')
      learner.drain(1)
      time.sleep(.2)
      assert not len(learner.queue)


def test_a_gradient_that_was_sent_again_counts_once():
  """However often the answer is lost, before its update is made and after."""
  all_updates = []

  def wrap_put(put):
    all_updates.append(published.Published(put))
    return all_updates[0].put

  with remote_parts.Learner(wrap_put=wrap_put) as learner:
    (updates,) = all_updates
    updates.publish({}, 0)
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      for sequence in 1, 2:
        message = remote_parts.put_message(session, sequence, sequence)
        for _ in range(3):
          waiting = raw.future('PutUnroll', message)
          time.sleep(.2)
          waiting.cancel()
        again = remote_parts.Thread(raw.unary, 'PutUnroll', message)
        (unroll,) = learner.take(1)
        assert remote_parts.same(unroll, remote_parts.make_unroll(sequence))
        time.sleep(.2)
        assert again.is_alive() and not len(learner.queue)
        updates.publish({}, sequence)
        assert again.result() == (_OK, b'')
        assert raw.unary('PutUnroll', message) == (_OK, b'')
        assert not len(learner.queue)


def test_resends_that_nobody_waits_for_end(monkeypatch):
  monkeypatch.setattr(server_lib, '_CHECK_SECONDS', .05)
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      before = threading.active_count()
      raw.unary('PutUnroll', remote_parts.put_message(session, 1))
      calls = [raw.future('PutUnroll', remote_parts.put_message(session, 2))
               for _ in range(20)]
      time.sleep(.3)
      for call in calls:
        call.cancel()
      time.sleep(.5)
      # Threads are kept, so a burst shows whether they are free.
      for _ in range(20):
        assert raw.get_weights(session, -1)[0] == _OK
      calls = [raw.future('PutUnroll', remote_parts.put_message(session, 3))
               for _ in range(20)]
      time.sleep(.3)
      assert threading.active_count() - before < 35
      learner.drain(3)
      for call in calls:
        assert call.result() == b''


# -- Sessions -----------------------------------------------------------------


def test_hello_again_keeps_the_session(learner, raw):
  session = raw.hello()
  again = lambda **changes: json.loads(raw.unary(
      'Hello', remote_parts.hello_message(**changes))[1])['session']
  run = learner.service._methods.sessions.run
  assert again(run=run, session=session) == session
  assert again(run='another', session=session) != session
  assert again(run=run, session=session + 1) not in (session, session + 1)


def test_unknown_sessions_are_told_so(raw):
  code = grpc.StatusCode.NOT_FOUND
  assert raw.get_weights(7, -1)[0] == code
  assert raw.unary('PutUnroll', remote_parts.put_message(7, 1))[0] == code
  assert raw.unary('PutEpisodes', json.dumps(dict(
      session=7, sequence=1, episodes=[])).encode())[0] == code
  assert raw.act(7, [b''])[0] == code


def test_a_forgotten_actor_says_hello_again(monkeypatch):
  class One(sessions_lib.Sessions):
    def __init__(self, owner, callers):
      super().__init__(owner, callers, capacity=1)
  monkeypatch.setattr(sessions_lib, 'Sessions', One)
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .02)
  with remote_parts.Learner() as learner:
    with remote_parts.client_of(learner) as a:
      version = a.get_weights(-1)[1]
      a.put_unrolls([remote_parts.make_unroll(0, version)])
      with remote_parts.client_of(learner) as b:
        b.get_weights(-1)
      a.put_unrolls([remote_parts.make_unroll(1, version)])
      # It is the same learner, whose weights are known.
      assert a.get_weights(version) is None
      assert a.num_dropped == 0
    assert len(learner.take(2)) == 2


def test_pools_of_an_actor_job_count_as_one_job(caplog):
  caplog.set_level(python_logging.INFO)
  with remote_parts.Learner(make_actor=lambda levels: _Echo()) as learner:
    with remote_parts.Raw(learner.port) as raw:
      for task in 0, 0, 5:
        raw.hello(task=task)
      assert learner.service.num_jobs == 2
  assert caplog.text.count('A pool of actor 0 has joined') == 2


def test_presence(clock):
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      assert learner.service.num_jobs == 1
      clock.now += 61.
      assert learner.service.num_jobs == 0
      # Waiting for room is no absence.
      raw.unary('PutUnroll', remote_parts.put_message(session, 1))
      call = raw.future('PutUnroll', remote_parts.put_message(session, 2))
      found = learner.service._methods.sessions.find(session)
      remote_parts.wait_until(lambda: found.has_call)
      clock.now += 61.
      assert learner.service.num_jobs == 1
      learner.drain(2)
      assert call.result() == b''
      assert learner.service.num_jobs == 1
      clock.now += 61.
      assert learner.service.num_jobs == 0


@pytest.mark.parametrize('name, value', [
    ('level_name', 'pong'), ('network', 'shallow'), ('use_lstm', False),
    ('precision', 'bfloat16'), ('width', 3), ('height', 3),
    ('num_action_repeats', 1), ('full_action_set', True), ('unroll_length', 4),
    ('inference', 'learner'), ('architecture', 'a2c_sync_step')])
def test_names_the_setting_that_differs(learner, name, value):
  assert set(remote_parts.SETTINGS) == set(protocol.SHARED_SETTINGS)
  with remote_parts.client_of(learner, **{name: value}) as client:
    with pytest.raises(client_lib.Refused) as e:
      client.get_weights(-1)
  ours = json.dumps(remote_parts.SETTINGS[name])
  assert (f'--{name} is {ours} at the learner, {json.dumps(value)} at the '
          'actor') in str(e.value)
  assert '\n' not in str(e.value)


@pytest.mark.parametrize('changes, expected', [
    (dict(num_actions=5), 'number of actions is 4 at the learner, 5 at'),
    (dict(spec=remote_parts.SPEC[:1]), 'list of observations is'),
    (dict(spec=remote_parts.SPEC[::-1]), 'list of observations is')])
def test_names_the_environment_that_differs(learner, changes, expected):
  with remote_parts.client_of(learner, **changes) as client:
    with pytest.raises(client_lib.Refused, match=expected):
      client.get_weights(-1)


def test_names_the_version_of_the_protocol(learner, monkeypatch):
  monkeypatch.setattr(protocol, 'VERSION', protocol.VERSION + 1)
  with remote_parts.client_of(learner) as client:
    with pytest.raises(client_lib.Refused, match='version of the protocol is'):
      client.get_weights(-1)


def test_names_the_level_that_is_not_trained(learner):
  with remote_parts.client_of(learner, levels=['easy', 'odd\n']) as client:
    with pytest.raises(client_lib.Refused, match='--level_name.*"odd') as e:
      client.get_weights(-1)
  assert '\n' not in str(e.value)


# -- Weights ------------------------------------------------------------------


def test_weights_are_whole():
  """Each message's arrays are of the version that it says."""
  with remote_parts.Learner() as learner:
    stop = threading.Event()

    def read(seen):
      with remote_parts.Raw(learner.port) as raw:
        session = raw.hello()
        layout = remote_parts.weights_layout()
        version = -1
        while not stop.is_set():
          code, message = raw.get_weights(session, version)
          assert code == _OK
          if message:
            new = layout.decode(message)
            assert new.version > version
            for array in new.weights.values():
              assert (array == new.version).all()
            version = int(new.version)
            seen.add(version)

    seen_by = [set() for _ in range(4)]
    threads = [remote_parts.Thread(read, seen) for seen in seen_by]

    def is_through(version):
      return all(version in seen for seen in seen_by) or not all(
          thread.is_alive() for thread in threads)

    for version in range(1, 300):
      learner.service.update(remote_parts.weights_of(version), version)
      if version in (1, 100, 200, 250, 299):
        remote_parts.wait_until(functools.partial(is_through, version))
      else:
        time.sleep(.002)
    stop.set()
    for thread, seen in zip(threads, seen_by):
      thread.result()
      assert len(seen) > 3 and 299 in seen


def test_one_encoding_per_version():
  class Counting(wire.Layout):
    def __init__(self):
      inner = remote_parts.weights_of(0)
      super().__init__(protocol.WeightsMessage(np.int64(0), inner))
      self.versions = []
    def encode(self, nest):
      self.versions.append(int(nest.version))
      time.sleep(.05)
      return super().encode(nest)

  layout = Counting()
  with remote_parts.Learner(weights_layout=layout) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      for version in range(3):
        learner.service.update(remote_parts.weights_of(version), version)
        threads = [remote_parts.Thread(raw.get_weights, session, version - 1)
                   for _ in range(8)]
        assert len({t.result() for t in threads}) == 1
        assert raw.get_weights(session, version) == (_OK, b'')
      # What nobody asks for is not encoded.
      for version in range(3, 9):
        learner.service.update(remote_parts.weights_of(version), version)
      raw.get_weights(session, 2)
  assert layout.versions == [0, 1, 2, 8]


# -- Episodes -----------------------------------------------------------------


def test_episodes_arrive_once(learner, raw):
  session = raw.hello()
  report = lambda sequence, episodes: raw.unary('PutEpisodes', json.dumps(dict(
      session=session, sequence=sequence, episodes=episodes)).encode())
  for sequence in (1, 1, 2, 1):
    assert report(sequence, [['easy', sequence + .5, 7]]) == (_OK, b'')
  assert report(3, []) == (_OK, b'')
  assert learner.episodes == [('easy', 1.5, 7), ('easy', 2.5, 7)]
  for episode in (['none', 1., 7], ['easy', 1, 7], ['easy', 1., -1],
                  ['easy', 1., 2**63], ['easy', 1., True], ['easy', 1.],
                  ['easy', 1., 7, 7], [{}, 1., 7], 'abc', None, 3):
    assert report(4, [episode])[0] == _BAD
  assert report(4, [['easy', 1., 7]] * 4097)[0] == _BAD
  assert len(learner.episodes) == 2


# -- The end ------------------------------------------------------------------


def test_everybody_hears_that_training_is_done():
  learner = remote_parts.Learner(capacity=1)
  clients = [remote_parts.make_client(learner.port, i) for i in range(4)]
  versions = [client.get_weights(-1)[1] for client in clients]
  put = lambda i: clients[i].put_unrolls([
      remote_parts.make_unroll(i, versions[i])])
  put(0)
  threads = [remote_parts.Thread(put, i) for i in range(2)]
  time.sleep(.2)
  learner.service.finish()
  learner.queue.close()
  closing = remote_parts.Thread(learner.service.close, 600.)
  for thread in threads:  # They were waiting for room.
    with pytest.raises(client_lib.TrainingDone):
      thread.result()
  with pytest.raises(client_lib.TrainingDone):
    clients[2].get_weights(-1)
  time.sleep(.3)
  assert closing.is_alive()  # One does not know yet.
  with pytest.raises(client_lib.TrainingDone):
    clients[3].put_episodes([])
  # In a minute, nobody would be waited for.
  closing.result(30.)
  for client in clients:
    client.close()


def test_who_joins_at_the_end_hears_it_too(learner):
  learner.service.finish()
  with remote_parts.client_of(learner) as client:
    with pytest.raises(client_lib.TrainingDone):
      client.get_weights(-1)


def test_every_method_says_that_training_is_done(learner, raw):
  session = raw.hello()
  learner.service.finish()
  done = grpc.StatusCode.OUT_OF_RANGE
  assert raw.unary('Hello', remote_parts.hello_message())[0] == done
  assert raw.get_weights(session, -1)[0] == done
  assert raw.unary(
      'PutUnroll', remote_parts.put_message(session, 1))[0] == done
  assert raw.unary('PutEpisodes', json.dumps(dict(
      session=session, sequence=1, episodes=[])).encode())[0] == done
  assert raw.act(session, [b''])[0] == done


def test_close_does_not_wait_for_the_dead():
  learner = remote_parts.Learner()
  with remote_parts.Raw(learner.port) as raw:
    raw.hello()
  learner.service.finish()
  learner.queue.close()
  started = time.monotonic()
  learner.service.close(timeout=1.)
  assert 1. <= time.monotonic() - started < 1. + _CLOSE_SECONDS


def test_close_wakes_everyone():
  learner = remote_parts.Learner(
      capacity=1, make_actor=lambda levels: _Echo(), max_environments=2)
  with remote_parts.Raw(learner.port) as raw:
    session = raw.hello()
    raw.unary('PutUnroll', remote_parts.put_message(session, 1))
    waiting = [raw.future('PutUnroll', remote_parts.put_message(session, 2))
               for _ in range(3)]
    never = threading.Event()
    def silent():
      never.wait(60.)
      yield b''
    stream = remote_parts.Thread(raw.act, session, silent())
    time.sleep(.3)
    started = time.monotonic()
    learner.close()
    assert time.monotonic() - started < _CLOSE_SECONDS
    for call in waiting:
      with pytest.raises(grpc.RpcError) as e:
        call.result()
      assert e.value.code() == grpc.StatusCode.UNAVAILABLE
    assert stream.result()[0] in (grpc.StatusCode.UNAVAILABLE,
                                  grpc.StatusCode.CANCELLED)
    never.set()


def test_a_port_in_use_is_said(learner):
  with pytest.raises(service_lib.ServiceError,
                     match=f'127.0.0.1:{learner.port}'):
    remote_parts.Learner(port=learner.port)


@pytest.mark.parametrize('family, number', [
    (socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')])
def test_half_of_a_name_is_not_left_to_another_program(family, number):
  """Which would get the callers of localhost, and their token."""
  try:
    other = socket.create_server((number, 0), family=family)
  except OSError:
    pytest.skip(f'This machine has no {number}.')
  with other:
    port = other.getsockname()[1]
    with pytest.raises(service_lib.ServiceError,
                       match=f'localhost:{port}: Address already in use'):
      remote_parts.Learner(port=port, host='localhost')


@pytest.mark.parametrize('number', ['::', '::1'])
@pytest.mark.parametrize('host', ['0.0.0.0', '[::]'])
def test_half_of_all_addresses_is_not_left_to_another_program(number, host):
  """gRPC would be content with those of IPv4."""
  try:
    other = socket.create_server((number, 0), family=socket.AF_INET6)
  except OSError:
    pytest.skip(f'This machine has no {number}.')
  with other:
    port = other.getsockname()[1]
    with pytest.raises(service_lib.ServiceError, match='already in use'):
      remote_parts.Learner(port=port, host=host, security=security_lib.Security(
          token=b'0123456789abcdef'))


def test_an_address_of_another_machine_is_said():
  with pytest.raises(service_lib.ServiceError, match='of this machine'):
    remote_parts.Learner(port=ports.free_port(), host='192.0.2.1')


def test_a_port_that_others_may_not_have_is_said(monkeypatch):
  def bind(unused_socket, unused_place):
    raise PermissionError(errno.EACCES, 'Permission denied')
  monkeypatch.setattr(socket.socket, 'bind', bind, raising=False)
  with pytest.raises(service_lib.ServiceError,
                     match='127.0.0.1:443: Permission denied'):
    remote_parts.Learner(port=443)


def test_messages_that_memory_cannot_hold_are_refused_at_the_start(monkeypatch):
  """Or each call would be told to try again."""
  monkeypatch.setattr(server_lib.machine_memory, 'total_bytes', lambda: 1 << 22)
  with pytest.raises(service_lib.ServiceError, match='0.00.* GB of memory'):
    remote_parts.Learner()


# -- Hostile messages ---------------------------------------------------------


class _Echo:
  """Acts as an `actor.Actor` would, without a policy."""

  def act(self, ids, *unused_args):
    return ids, np.full_like(ids, 3)


def _steps(ids=(0,), num_environments=2, **changes):
  rng = np.random.default_rng(0)
  layout = protocol.StepsLayouts(
      remote_parts.SPEC, num_environments, remote_parts.NUM_ACTIONS)
  steps = protocol.StepsMessage(
      np.array(ids, np.int32), remote_parts.make_step_output(rng, len(ids)),
      is_first=np.zeros(len(ids), bool), is_last=np.zeros(len(ids), bool))
  return layout.of_size(len(ids))[0].encode(steps._replace(**changes))


@pytest.mark.parametrize('method', remote_parts.METHODS)
@pytest.mark.parametrize('message', [
    b'', b'\0', b'\xff' * 40, b'{}', b'[]', b'null', b'[' * 50000,
    b'{"a":' * 50000, b'1' * 9999, b'\xff\xfe', b'{"session": 1e999}',
    b'{"session": [], "run": []}', b'{"levels": ["\\ud800"]}',
    struct.pack('<Q', 2**64 - 1) + b'x' * 99, bytes(1000)])
def test_garbage_gets_an_error(method, message, caplog):
  with remote_parts.Learner(make_actor=lambda levels: _Echo()) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      if method == 'Act':
        code, details = raw.act(session, [_steps(num_environments=1), message])
      else:
        code, details = raw.unary(method, message)
      precondition = grpc.StatusCode.FAILED_PRECONDITION
      assert code in (_BAD, precondition) or (
          method == 'GetWeights' and len(message) == 16), details
      assert details.isascii() and len(details) < 1000
      assert raw.get_weights(session, -1)[0] == _OK
    assert not len(learner.queue) and not learner.episodes
  assert 'Traceback' not in caplog.text


@pytest.mark.parametrize('changes', [
    dict(task=-1), dict(task='0'), dict(task=None), dict(task=True),
    dict(levels=[]), dict(levels='easy'), dict(levels=[1]), dict(levels=None),
    dict(levels=['\ud800']), dict(levels=['easy'] * 70000),
    dict(agreement=None), dict(agreement=[]), dict(agreement={}),
    dict(agreement=dict(remote_parts.make_agreement(), width=[[[]]])),
    dict(agreement=dict(remote_parts.make_agreement(), width='x' * 9999))])
def test_bad_hellos(learner, raw, changes):
  code, details = raw.unary('Hello', remote_parts.hello_message(**changes))
  assert code in (_BAD, grpc.StatusCode.FAILED_PRECONDITION)
  assert details.isascii() and '\n' not in details and len(details) < 500
  assert learner.service.num_jobs == 0


@pytest.mark.parametrize('session', [
    None, 'x', '', '-1', '1' * 5000, '1.0', ' 1', '0x1'])
def test_bad_sessions_of_streams(session, learner, raw):
  code, _ = raw.act(session, [])
  assert code == _BAD


@pytest.mark.parametrize('message, what', [
    (_steps(ids=(0, 0)), 'twice'),
    (_steps(ids=(2,), num_environments=3), 'ids'),
    (_steps(ids=(-1 % 2**31,), num_environments=2**31), 'ids'),
    (_steps(ids=(0, 1, 2), num_environments=3), '1 to 2'),
    (_steps()[:-1], 'bytes'),
    (_steps() + bytes(1), 'bytes')])
def test_bad_steps(message, what):
  with remote_parts.Learner(
      make_actor=lambda levels: _Echo(), max_environments=2) as learner:
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello(levels=['easy', 'hard'])
      code, details = raw.act(session, [_steps(), message])
      assert code == _BAD and what in details
      code, answers = raw.act(session, [_steps(ids=(1, 0))])
      assert code == _OK and len(answers) == 1


def test_only_so_many_environments_are_acted_for():
  with remote_parts.Learner(
      make_actor=lambda levels: _Echo(), max_environments=2) as learner:
    link = remote_parts.make_link(learner.port, levels=['easy'] * 3)
    with pytest.raises(
        client_lib.Refused, match='--num_pools: a pool of 3 .* learner, 2'):
      link.open_stream('Act')
    link.close()


def test_nobody_is_acted_for_unless_asked(raw):
  code, details = raw.act(raw.hello(), [b''])
  assert code == grpc.StatusCode.FAILED_PRECONDITION
  assert '--inference' in details


def test_versions_of_the_future_are_refused(learner, raw):
  session = raw.hello()
  code, details = raw.unary('PutUnroll', remote_parts.put_message(
      session, 1, policy_version=np.int64(1)))
  assert code == _BAD and 'policy_version' in details
  learner.service.update(remote_parts.weights_of(1), 1)
  assert raw.unary('PutUnroll', remote_parts.put_message(
      session, 1, policy_version=np.int64(1)))[0] == _OK


def test_unknown_methods(raw):
  code, _ = raw.unary('Nothing', b'')
  assert code == grpc.StatusCode.UNIMPLEMENTED


def test_oversized_messages(learner, raw):
  session = raw.hello()
  for method in ('Hello', 'PutUnroll', 'PutEpisodes', 'GetWeights'):
    code, _ = raw.unary(method, bytes(1 << 23))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
  assert raw.get_weights(session, -1)[0] == _OK


def test_compressed_messages_are_refused(learner):
  """Or a megabyte would unfold to a gigabyte, before its length is known."""
  message = remote_parts.hello_message() + b' ' * 100000
  with remote_parts.Raw(learner.port) as raw:
    assert raw.unary('Hello', message)[0] == _OK
  with remote_parts.Raw(
      learner.port, compression=grpc.Compression.Gzip) as raw:
    assert raw.unary('Hello', message)[0] == grpc.StatusCode.UNIMPLEMENTED
    assert raw.unary('PutUnroll', bytes(1 << 21))[0] == (
        grpc.StatusCode.UNIMPLEMENTED)


def test_a_good_actor_is_unaffected_by_a_bad_one(learner):
  stop = threading.Event()

  def attack():
    rng = np.random.default_rng(0)
    with remote_parts.Raw(learner.port) as raw:
      session = raw.hello()
      good = remote_parts.put_message(session, 1)
      while not stop.is_set():
        bad = bytearray(good)
        bad[rng.integers(len(bad) // 3)] ^= 255
        raw.unary('PutUnroll', bytes(bad[:rng.integers(1, len(bad))]))
        raw.act(session, [bytes(bad)])
        raw.unary('Hello', bytes(bad))

  attackers = [remote_parts.Thread(attack) for _ in range(2)]
  with remote_parts.client_of(learner) as client:
    version = client.get_weights(-1)[1]
    sent = [remote_parts.make_unroll(i, version) for i in range(100)]
    for unroll in sent:
      client.put_unrolls([unroll])
  stop.set()
  for attacker in attackers:
    attacker.result()
  for a, b in zip(sent, learner.take(100), strict=True):
    assert remote_parts.same(a, b)
  assert not len(learner.queue)
