"""Whole episodes of all agents, replayed with each learner's own weights."""

import collections
import contextlib
import time

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent.environments import ArraySpec
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import server as server_lib
from scalable_agent.remote import wire
from scalable_agent.replay import replayer as replayer_lib
from scalable_agent.shared_replay import protocol
from scalable_agent.suites import Facts
from scalable_agent.unroll_messages import call_sizes
from tests.remote import remote_parts
from tests.replay import episodes
from tests.replay import test_replayer
from tests.shared_replay import replay_parts

pytestmark = pytest.mark.usefixtures('bounded')

_T = test_replayer._T
_OPTIONS = dict(
    facts=Facts(2, (ArraySpec((episodes.SIZE,), np.dtype(np.float32)),)),
    unroll_length=_T, replay_state='recomputed')


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .05)
  monkeypatch.setattr(server_lib, '_CLOSE_GRACE_SECONDS', .1)
  monkeypatch.setattr(remote_parts, 'LEVELS', [f'level_{i}' for i in range(6)])


def _job(**options):
  return replay_parts.Job(episodes=True, **dict(_OPTIONS, **options))


def _client(job, name):
  return replay_parts.client_of(job, name, episodes=True, **_OPTIONS)


def _unroll(play, k):
  """The k-th of a play whose actions there are two of."""
  unroll = play.unroll(k, _T)
  outputs = unroll.agent_outputs
  return unroll._replace(agent_outputs=outputs._replace(
      action=outputs.action % 2))


def _insert(client, plays, num_unrolls):
  replay_parts.insert(client, [
      _unroll(play, k) for k in range(num_unrolls) for play in plays])


def test_states_are_recomputed_along_the_episodes_of_all():
  """They count the steps since the episode began, whoever has acted it."""
  # Those of an actor job are named by two numbers.
  plays = [episodes.Play(name, 30 * _T + 1, seed=0) for name in range(4)]
  with _job() as job, _client(job, 'a') as a, _client(job, 'b') as b:
    _insert(a, plays[:2], 30)
    _insert(b, plays[2:], 30)
    replayer = replayer_lib.Replayer(a, test_replayer._CountingAgent(), _T)
    replayer.publish(dict(one=tf.constant(1.)))
    seen = collections.Counter()
    for _ in range(20):
      for unroll in replayer.sample(8):
        name, entry = episodes.entry_of(unroll)
        (count,) = unroll.agent_state
        done = plays[name].done
        begin = np.flatnonzero(done[:entry])[-1] if count else entry
        assert done[begin] and count == entry - begin
        entries = slice(entry, entry + _T + 1)
        np.testing.assert_array_equal(
            unroll.env_outputs.observation[0], plays[name].observation[entries])
        np.testing.assert_array_equal(
            unroll.agent_outputs.action, plays[name].action[entries] % 2)
        seen[name, bool(count)] += 1
    assert {name for name, _ in seen} == {0, 1, 2, 3}
    assert {late for _, late in seen} == {False, True}
    gauges = replayer.take_gauges()
    assert .2 < gauges['replay_others'] < .8
    assert gauges['replay_unrolls'] == 120


def test_without_a_whole_episode_there_is_nothing():
  play = episodes.Play(0, 101, seed=0, end_probability=0.)
  with _job() as job, _client(job, 'a') as client:
    assert client.draw(3) == []
    assert client.take_gauges()['replay_unrolls'] == 0
    _insert(client, [play], 20)
    assert client.draw(3) == []
    # What is kept is told all the same.
    gauges = client.take_gauges()
    assert gauges['replay_unrolls'] == 20 and gauges['replay_mb'] > 0


def test_a_long_episode_comes_in_several_messages(monkeypatch):
  monkeypatch.setattr(call_sizes, 'MAX_CALL_BYTES', 1)
  play = episodes.Play(0, 201, seed=0, end_probability=0.)
  play.done[[3, 170]] = True
  with _job() as job, _client(job, 'a') as client:
    _insert(client, [play], 40)
    # The two that are whole, each a few times.
    drawn = client.draw(30)
    assert {(episode.offset, episode.num_steps, len(episode.unrolls))
            for episode in drawn} == {(0, 3, 1), (3, 167, 35)}
    assert len(drawn) == 30
    for episode in drawn:
      assert int(episode.unrolls[-1].policy_version) == len(episode.unrolls) - 1


@pytest.mark.parametrize('num_late', [4, 8])
def test_an_episode_that_has_made_room_meanwhile_is_not_drawn(
    monkeypatch, num_late):
  """Between the answer that says which unrolls it is in and their coming."""
  plays = [episodes.Play(0, 41, seed=0, end_probability=1.),
           episodes.Play(1, 41, seed=0, end_probability=1.)]
  with _job(capacity=8) as job, _client(job, 'a') as a:
    _insert(a, plays[:1], 8)
    fetch, rounds = a._fetch, []

    def late(numbers):
      rounds.append(numbers)
      if len(rounds) == 1:
        with _client(job, 'b') as b:
          _insert(b, plays[1:], num_late)
      return fetch(numbers)

    monkeypatch.setattr(a, '_fetch', late)
    drawn = a.draw(20)
    assert len(drawn) == 20
    # Those alone are drawn anew that are gone.
    first, *others = rounds
    gone = sum(min(numbers) < num_late for numbers in first)
    assert 0 < gone and [len(numbers) for numbers in others] == [gone]
    assert {u.level_name for episode in drawn for u in episode.unrolls} == (
        {'level_1'} if num_late == 8 else {'level_0', 'level_1'})


@pytest.mark.parametrize('restarts', [False, True])
@pytest.mark.parametrize('method', ['Episode', 'Fetch'])
def test_who_draws_goes_on_where_the_connection_breaks(
    monkeypatch, method, restarts):
  """Before it knows which unrolls an episode is in, or before they come."""
  plays = [episodes.Play(name, 41, seed=0, end_probability=1.)
           for name in range(2)]
  with contextlib.ExitStack() as stack:
    job = stack.enter_context(_job())
    proxy = stack.enter_context(remote_parts.Proxy(job.port))
    a = stack.enter_context(_client(proxy, 'a'))
    _insert(a, plays[:1], 8)
    assert len(a.draw(20)) == 20
    send, broken = a._link.send, []

    def break_first(name, make_messages):
      if name == method and not broken:
        broken.append(name)
        if restarts:
          job.close()
          again = stack.enter_context(_job(port=job.port))
          with _client(again, 'b') as b:
            _insert(b, plays[1:], 8)
        else:
          proxy.cut()
      send(name, make_messages)

    monkeypatch.setattr(a._link, 'send', break_first)
    drawn = a.draw(20)
    assert broken and len(drawn) == 20
    # A job that was restarted has lost what it had.
    assert {u.level_name for episode in drawn for u in episode.unrolls} == (
        {'level_1'} if restarts else {'level_0'})


def test_who_draws_waits_for_a_job_that_is_restarted():
  """It has no episode then, and is given new ones."""
  plays = [episodes.Play(name, 41, seed=0, end_probability=1.)
           for name in range(2)]
  with contextlib.ExitStack() as stack:
    with _job() as job:
      client = stack.enter_context(_client(job, 'a'))
      _insert(client, plays[:1], 8)
      assert len(client.draw(3)) == 3
    thread = remote_parts.Thread(client.draw, 3)
    time.sleep(.3)
    assert thread.is_alive()
    stack.enter_context(_job(port=job.port))
    assert thread.result() == []
    _insert(client, plays[1:], 8)
    drawn = client.draw(3)
    assert len(drawn) == 3
    assert {u.level_name for episode in drawn for u in episode.unrolls} == {
        'level_1'}


# -- Refusals -----------------------------------------------------------------


def _encode(*numbers):
  return np.array(numbers, '<i8').tobytes()


@pytest.mark.parametrize('offset, num_steps, numbers', [
    (0, 1, [7]), (0, 5, [7]), (0, 6, [7, 9]), (4, 1, [7, 8]), (4, 5, [7, 8]),
    (1, 6, [7, 8, 9])])
def test_an_episode_has_the_unrolls_that_its_steps_need(
    offset, num_steps, numbers):
  good = offset, num_steps, numbers
  decode = lambda *answer: protocol.decode_episode(_encode(*answer), _T)
  assert decode(offset, num_steps, *numbers) == good
  for other in numbers[1:], [*numbers, 10]:
    with pytest.raises(wire.WireError, match='expected an episode'):
      decode(offset, num_steps, *other)


@pytest.mark.parametrize('answer', [
    _encode(5, 5, 7, 8), _encode(10000, 5, 7, 8), _encode(-1, 5, 7),
    _encode(0, 0), _encode(1, 0, 7), _encode(0, -5, 7), _encode(0, 1 << 62, 7),
    _encode(0), _encode(0, 5, 7) + b'x'])
def test_what_is_no_episode_is_refused(answer):
  with pytest.raises(wire.WireError, match='expected an episode'):
    protocol.decode_episode(answer, _T)


def test_an_episode_that_contradicts_itself_is_refused_in_a_line(monkeypatch):
  """Or no unroll could be cut out of it."""
  monkeypatch.setattr(
      protocol, 'encode_episode', lambda episode: _encode(10000, 5, 0))
  play = episodes.Play(0, 41, seed=0, end_probability=1.)
  with _job() as job, _client(job, 'a') as client:
    _insert(client, [play], 8)
    with pytest.raises(link_lib.Refused) as error:
      client.draw(1)
  assert str(error.value) == (
      f'The replay job at 127.0.0.1:{job.port} sent a message that is not as '
      'agreed on: expected an episode.')


def test_more_unrolls_than_an_episode_has_are_refused(monkeypatch):
  monkeypatch.setattr(protocol, 'encode_fetch',
                      lambda session, numbers, encode=protocol.encode_fetch:
                      encode(session, [*numbers, numbers[-1]]))
  play = episodes.Play(0, 41, seed=0, end_probability=1.)
  with _job() as job, _client(job, 'a') as client:
    _insert(client, [play], 8)
    # Whoever does not see it waits for ever.
    thread = remote_parts.Thread(client.draw, 1)
    with pytest.raises(link_lib.Refused, match=(
        'agreed on: 1 unrolls more than were asked for.$')):
      thread.result()
