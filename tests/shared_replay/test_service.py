"""What a replay job makes of messages, good and bad, and of those without key.
"""

import json
import struct

import grpc
import numpy as np
import pytest

from scalable_agent.remote import link as link_lib
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import server as server_lib
from scalable_agent.remote import wire
from scalable_agent.shared_replay import methods as methods_lib
from scalable_agent.shared_replay import protocol
from scalable_agent.unroll_messages import call_sizes
from tests.remote import authorities
from tests.remote import remote_parts
from tests.shared_replay import replay_parts

pytestmark = pytest.mark.usefixtures('bounded')

_TOKEN = security_lib.Security(token=b'correct-horse-battery')
_OK = grpc.StatusCode.OK
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_NOT_FOUND = grpc.StatusCode.NOT_FOUND


@pytest.fixture(name='job', scope='module')
def _job():
  with replay_parts.Job(capacity=50) as job:
    yield job


@pytest.fixture(name='raw', scope='module')
def _raw(job):
  with replay_parts.Raw(job.port) as raw:
    yield raw


# -- Without the key ----------------------------------------------------------


@pytest.mark.parametrize('metadata', [
    (), ((security_lib.TOKEN_KEY, 'Bearer wrong-horse-battery'),)])
@pytest.mark.parametrize('episodes', [False, True])
def test_without_the_key_nothing_is_read_or_written(metadata, episodes):
  with replay_parts.Job(security=_TOKEN, episodes=episodes) as job:
    with replay_parts.client_of(job, security=_TOKEN) as good:
      replay_parts.insert(good, [replay_parts.make_unroll(1)])
      session = good._link._link.session
      methods = (replay_parts.EPISODE_METHODS if episodes else
                 replay_parts.METHODS)
      messages = dict(
          Hello=replay_parts.hello_message(),
          Insert=replay_parts.insert_message(session, 9),
          Draw=protocol.encode_draw(session, 1),
          Episode=protocol.encode_session(session),
          Fetch=protocol.encode_fetch(session, [0]))
      for method in methods:
        with replay_parts.Raw(job.port, metadata) as raw:
          code, details = raw.answers(method, messages[method])
          assert code == grpc.StatusCode.UNAUTHENTICATED, method
          assert '--auth_token_file' in details
      assert job.num_inserted == 1
      # What was refused is good otherwise.
      with replay_parts.Raw(
          job.port, security_lib.metadata(_TOKEN)) as raw:
        for method in methods:
          assert raw.answers(method, messages[method])[0] == _OK, method
      assert job.num_inserted == 2


def test_tls_admits_those_whose_certificate_it_trusts():
  ours, theirs = authorities.Authority('ours'), authorities.Authority('theirs')
  replay = authorities.security_of(ours, 'replay', ours.pem)
  with replay_parts.Job(security=replay) as job:
    learner = authorities.security_of(ours, 'learner', ours.pem)
    with replay_parts.client_of(job, security=learner) as client:
      replay_parts.insert(client, [replay_parts.make_unroll(1)])
      assert list(map(replay_parts.seed_of, client.sample(1))) == [1]
    # Another's authority, another's certificate, none, and no TLS at all.
    for stranger in (authorities.security_of(ours, 'learner', theirs.pem),
                     authorities.security_of(theirs, 'learner', ours.pem),
                     authorities.security_of(None, '', ours.pem),
                     remote_parts.NO_SECURITY):
      with replay_parts.client_of(job, security=stranger) as client:
        thread = remote_parts.Thread(
            replay_parts.insert, client, [replay_parts.make_unroll(2)])
        thread.join(.5)
        client.close()
        with pytest.raises((link_lib.Refused, link_lib.Closed)):
          thread.result()
    assert job.num_inserted == 1


# -- Messages -----------------------------------------------------------------


def test_hello_answers_who_one_is(raw):
  answers = [json.loads(raw.answers(
      'Hello', replay_parts.hello_message(agent=name))[1][0])
             for name in ('x', 'y', 'x')]
  assert len({a['session'] for a in answers}) == 3
  assert answers[0]['agent'] == answers[2]['agent'] != answers[1]['agent']
  assert answers[0]['levels'] == remote_parts.LEVELS
  code, again = raw.answers('Hello', replay_parts.hello_message(
      agent='x', run=answers[0]['run'], session=answers[0]['session']))
  assert code == _OK and json.loads(again[0]) == answers[0]


@pytest.mark.parametrize('changes', [
    dict(name=None), dict(name=3), dict(name='x' * 501), dict(agent=None),
    dict(agent=3), dict(agent='x' * 501), dict(batch_size=0),
    dict(batch_size='3'), dict(batch_size=True), dict(batch_size=1 << 21)])
def test_a_bad_hello_is_refused(raw, changes):
  code, details = raw.answers('Hello', replay_parts.hello_message(**changes))
  assert code == _INVALID
  assert 'expected an agent, a name and the size' in details


@pytest.mark.parametrize('agreement, what', [
    (None, 'says nothing'), ([], 'says nothing'),
    ({}, f'the version of the protocol is {protocol.VERSION} at the replay job, '
     'null at the')])
def test_who_does_not_agree_is_refused(raw, agreement, what):
  code, details = raw.answers(
      'Hello', replay_parts.hello_message(agreement=agreement))
  assert code == grpc.StatusCode.FAILED_PRECONDITION and what in details


def test_every_unroll_is_inserted_once(job, raw):
  session = raw.hello()
  put = lambda *sequences: raw.answers('Insert', wire.join(
      replay_parts.insert_message(session, s, s) for s in sequences))
  before = job.num_inserted
  for sequences, expected in (((1, 2), 2), ((1, 2), 2), ((2, 3, 5), 4),
                              ((4,), 4), ((6,), 5)):
    assert put(*sequences) == (_OK, [b''])
    assert job.num_inserted - before == expected


@pytest.mark.parametrize('changes, what', [
    (dict(level=np.int32(2)), 'level has values outside'),
    (dict(policy_version=np.int64(-1)), 'policy_version'),
    (dict(sequence=np.int64(0)), 'sequence')])
def test_bad_unrolls_are_refused(job, raw, changes, what):
  session, before = raw.hello(), job.num_inserted
  good = replay_parts.insert_message(session, 1)
  bad = replay_parts.insert_message(
      session, **dict(dict(sequence=2), **changes))
  code, details = raw.answers('Insert', wire.join([good, bad]))
  assert code == _INVALID and what in details
  # All of them or none.
  assert job.num_inserted == before


def test_unrolls_of_several_are_refused(job, raw):
  a, b = raw.hello(), raw.hello()
  before = job.num_inserted
  for messages, what in (
      ([(a, 1), (b, 2)], 'not of one session'),
      ([(a, 2), (a, 1)], 'not in order'), ([(a, 2), (a, 2)], 'not in order')):
    code, details = raw.answers('Insert', wire.join(
        replay_parts.insert_message(*m) for m in messages))
    assert code == _INVALID and what in details
  assert job.num_inserted == before


def test_who_has_not_said_hello_is_told(job, raw):
  before = job.num_inserted
  assert raw.answers('Insert', replay_parts.insert_message(77, 1))[0] == (
      _NOT_FOUND)
  assert raw.answers('Draw', protocol.encode_draw(77, 1))[0] == _NOT_FOUND
  assert job.num_inserted == before


@pytest.mark.parametrize('message', [
    b'', b'x' * 15, b'x' * 17, struct.pack('<QQ', 1, 0),
    struct.pack('<QQ', 1, 1 << 63), struct.pack('<QQ', 1, (1 << 16) + 1)])
def test_bad_draws_are_refused(raw, message):
  assert raw.answers('Draw', message)[0] == _INVALID


def test_messages_of_episodes_are_no_methods_of_unrolls(raw):
  session = raw.hello()
  for method in 'Episode', 'Fetch':
    assert raw.answers(method, protocol.encode_session(session))[0] == (
        grpc.StatusCode.UNIMPLEMENTED)


def test_what_is_gone_is_not_fetched():
  with replay_parts.Job(capacity=3, episodes=True) as job:
    with replay_parts.Raw(job.port) as raw:
      session = raw.hello()
      for sequence in range(1, 6):
        raw.answers('Insert', replay_parts.insert_message(
            session, sequence, sequence))
      layout = replay_parts.layout()
      for numbers, expected in (
          ([2, 3, 4], [3, 4, 5]), ([4, 1, 3], [5]), ([0], []),
          ([-1], []), ([5], []), ([1 << 62], [])):
        code, answers = raw.answers(
            'Fetch', protocol.encode_fetch(session, numbers))
        assert code == _OK
        found = []
        for answer in answers:
          state, rest = protocol.split(answer)
          assert state.num_inserted == 5 and state.num_kept == 3
          if len(rest):
            found += [int(u.policy_version)
                      for u in wire.decode_all(layout, rest)]
        assert found == expected
        # The last message says that the rest is gone.
        assert (len(rest) == 0) == (len(expected) < len(numbers))
      for message in (b'', b'x' * 8, b'x' * 12, b'x' * 8 * ((1 << 16) + 2)):
        assert raw.answers('Fetch', message)[0] == _INVALID


# -- Bounds -------------------------------------------------------------------


def test_who_does_not_read_its_answers_holds_little(monkeypatch):
  """Whatever it has asked for: what is sent is drawn when there is room."""
  monkeypatch.setattr(call_sizes, 'MAX_CALL_BYTES', 1 << 16)
  with replay_parts.Job(capacity=50) as job:
    with replay_parts.Raw(job.port) as raw:
      session = raw.hello()
      for sequence in range(1, 51):
        raw.answers('Insert', replay_parts.insert_message(session, sequence))
      calls = job.service._server.calls
      largest = []
      begin = calls.add_bytes
      monkeypatch.setattr(calls, 'add_bytes', lambda call, num_bytes: (
          largest.append(num_bytes), begin(call, num_bytes))[1])
      stream = raw.stream('Draw', [
          protocol.encode_draw(session, 1 << 16)] * 20)
      next(stream)
      remote_parts.wait_until(lambda: calls.silent, 20.)
      assert len(calls) == 1
      assert max(largest) < (1 << 16) + replay_parts.layout().num_bytes
      # Others are served meanwhile.
      other = raw.hello(agent='other')
      assert raw.answers('Draw', protocol.encode_draw(other, 5))[0] == _OK
      stream.cancel()


def test_agents_that_are_forgotten_get_another_number(monkeypatch):
  monkeypatch.setattr(methods_lib, '_MAX_AGENTS', 2)
  with replay_parts.Job() as job, replay_parts.Raw(job.port) as raw:
    agents = []
    for name in ('a', 'b', 'a', 'c', 'a', 'b'):
      _, answer = raw.answers('Hello', replay_parts.hello_message(agent=name))
      agents.append(json.loads(answer[0])['agent'])
    assert agents[0] == agents[2] == agents[4]
    assert len(set(agents)) == 4
    assert len(job.methods._agents) == 2


def test_an_address_that_is_taken_is_refused(job):
  with pytest.raises(server_lib.ServiceError, match='The replay job cannot'):
    replay_parts.Job(port=job.port)
