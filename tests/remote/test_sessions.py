import json

import grpc
import pytest

from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import sessions as sessions_lib
from tests import clocks


def _make(**options):
  return sessions_lib.Sessions('the job', 'callers', **options)


@pytest.fixture
def clock(monkeypatch):
  return clocks.Clock(monkeypatch, sessions_lib)


def test_numbers_find_their_sessions():
  sessions = _make()
  numbers = [sessions.add([i]) for i in range(20)]
  assert len(set(numbers)) == 20 and min(numbers) > 2**40
  assert [sessions.find(n).about for n in numbers] == [
      [i] for i in range(20)]
  assert sessions.find(min(numbers) - 1) is None


def test_there_are_no_more_than_the_capacity():
  sessions = _make(capacity=3)
  a, b, c = (sessions.add([]) for _ in range(3))
  sessions.find(a)
  d = sessions.add([])
  assert sessions.find(b) is None  # Unused for longest.
  assert all(sessions.find(n) for n in (a, c, d))
  for _ in range(1000):
    sessions.add([])
  assert len(sessions.recent()) == 3


def test_a_session_with_a_call_does_not_make_way():
  sessions = _make(capacity=2)
  a = sessions.add([])
  with sessions.find(a):
    others = [sessions.add([]) for _ in range(5)]
    assert sessions.find(a)
    with sessions.find(others[-1]):
      assert sessions.add([]) is None
      assert not sessions.find_again(others[0], [])
    assert sessions.add([])


def test_who_finds_no_room_is_still_known_when_there_is():
  """Or what it sends again would be taken twice."""
  sessions = _make(capacity=1)
  a = sessions.add([])
  sessions.find(a).sequence = 7
  b = sessions.add([])
  with sessions.find(b):
    assert not sessions.find_again(a, [])
  assert sessions.find_again(a, [])
  assert sessions.find(a).sequence == 7


@pytest.mark.parametrize('sequence, episode_sequence', [
    (7, 3), (7, 0), (0, 3)])
def test_who_comes_back_is_known_by_the_numbers(
    clock, sequence, episode_sequence):
  sessions = _make()
  used, unused = sessions.add([1]), sessions.add([2])
  sessions.find(used).sequence = sequence
  sessions.find(used).episode_sequence = episode_sequence
  clock.now += 601
  sessions.expire()
  assert sessions.find(used) is None and sessions.find(unused) is None
  assert sessions.find_again(used, [4])
  assert not sessions.find_again(unused, [4])
  session = sessions.find(used)
  assert (session.sequence, session.episode_sequence) == (
      sequence, episode_sequence)
  assert session.about == [4]


def test_a_hello_finds_its_session_again():
  sessions = _make(capacity=1)
  answer, is_new = sessions.welcome({}, [1], color='red')
  first = json.loads(answer)
  assert is_new and first['color'] == 'red'
  with sessions.find(first['session']):
    assert sessions.welcome(first, [2], color='red') == (answer, False)
    assert sessions.find(first['session']).about == [1]
    # No other name will do, and there is room for one alone.
    for other in (dict(first, run='another'), dict(first, run=None),
                  dict(first, session=first['session'] ^ 1),
                  dict(first, session=str(first['session'])),
                  dict(first, session=[])):
      with pytest.raises(
          calls_lib.Rejected,
          match='the job has as many callers as it can serve') as e:
        sessions.welcome(other, [2])
      assert e.value.code == grpc.StatusCode.UNAVAILABLE


def test_of_the_past_no_more_is_kept_than_so_much(monkeypatch):
  monkeypatch.setattr(sessions_lib, '_MAX_PAST', 2)
  sessions = _make(capacity=1)
  numbers = []
  for i in range(4):
    numbers.append(sessions.add([]))
    sessions.find(numbers[-1]).sequence = i + 1
  sessions.add([])
  assert not any(sessions.find_again(n, []) for n in numbers[:2])
  assert sessions.find_again(numbers[2], [])
  assert sessions.find(numbers[2]).sequence == 3


def test_what_is_silent_expires(clock):
  sessions = _make()
  silent, calling, heard = (sessions.add([]) for _ in range(3))
  with sessions.find(calling):
    clock.now += 400
    with sessions.find(heard):
      pass
    clock.now += 201
    sessions.expire()
    assert sessions.find(silent) is None
    assert sessions.find(calling) and sessions.find(heard)
    clock.now += 10000
    sessions.expire()
    assert sessions.find(calling) and sessions.find(heard) is None
  clock.now += 599
  sessions.expire()
  assert sessions.find(calling)
  clock.now += 2
  sessions.expire()
  assert sessions.find(calling) is None


def test_recent_ones(clock):
  sessions = _make()
  a, b = sessions.add(['a']), sessions.add(['b'])
  with sessions.find(a):
    clock.now += 61
    assert [s.about for s in sessions.recent()] == [['a']]
  assert len(sessions.recent()) == 1
  with sessions.find(b):
    pass
  clock.now += 59
  assert len(sessions.recent()) == 2
  clock.now += 2
  assert not sessions.recent()
