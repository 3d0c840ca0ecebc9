"""What a learner says of actor jobs that go, come back, or are there twice."""

import numpy as np
import pytest

from scalable_agent.learner_service import methods
from scalable_agent.learner_service import roll_call
from scalable_agent.remote import sessions as sessions_lib
from tests import clocks


@pytest.fixture
def clock(monkeypatch):
  return clocks.Clock(monkeypatch, roll_call, sessions_lib)


def _join(sessions, task, acts=True):
  job = methods.Job(task, np.array([], np.int32))
  job.acts = acts
  return sessions.find(sessions.add(job))


def _after(clock, call, seconds, *heard):
  """Lets time pass, in which some sessions are heard of every second."""
  for _ in range(int(seconds)):
    clock.now += 1.
    for session in heard:
      with session:
        pass
    call.check()


def test_an_actor_that_is_gone_or_back_is_said_once(clock, caplog):
  caplog.set_level('INFO')
  sessions = sessions_lib.Sessions('it', 'jobs')
  call = roll_call.RollCall(sessions, has_pools=False)
  one, two = (_join(sessions, task) for task in (1, 2))
  _after(clock, call, 50, one)
  assert not caplog.messages
  _after(clock, call, 50, one)
  assert caplog.messages == [
      'Not heard of for a minute: actor 2. Others heard of: 1.']
  _after(clock, call, 5, one, two)
  assert caplog.messages[1:] == ['Heard of again: actor 2.']
  # So it is by another session.
  _after(clock, call, 100, one)
  three = _join(sessions, 2)
  _after(clock, call, 100, one, three)
  assert caplog.messages[3:] == ['Heard of again: actor 2.']


def test_an_actor_whose_environments_start_may_be_silent(clock, caplog):
  sessions = sessions_lib.Sessions('it', 'jobs')
  call = roll_call.RollCall(sessions, has_pools=False)
  _join(sessions, 1, acts=False)
  _after(clock, call, 200)
  assert not caplog.messages


def test_an_actor_that_waits_in_a_call_is_there(clock, caplog):
  sessions = sessions_lib.Sessions('it', 'jobs')
  call = roll_call.RollCall(sessions, has_pools=False)
  with _join(sessions, 1):
    _after(clock, call, 200)
  assert not caplog.messages


def test_many_are_not_all_named(clock, caplog):
  sessions = sessions_lib.Sessions('it', 'jobs')
  call = roll_call.RollCall(sessions, has_pools=False)
  for task in range(12):
    _join(sessions, task)
  _after(clock, call, 100)
  (message,) = caplog.messages
  assert message.endswith(
      '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more. Others heard of: 0.')


@pytest.mark.parametrize('has_pools', [False, True])
def test_two_actors_with_one_task_are_said_once(clock, caplog, has_pools):
  sessions = sessions_lib.Sessions('it', 'jobs')
  call = roll_call.RollCall(sessions, has_pools)
  both = _join(sessions, 7), _join(sessions, 7)
  _after(clock, call, 100, *both, _join(sessions, 8))
  assert caplog.text.count('have the same --task: 7. ') == (
      0 if has_pools else 1)


def test_an_actor_that_was_started_again_is_no_second_one(clock, caplog):
  sessions = sessions_lib.Sessions('it', 'jobs')
  call = roll_call.RollCall(sessions, has_pools=False)
  killed = _join(sessions, 7)
  _after(clock, call, 10, killed)
  again = _join(sessions, 7)
  _after(clock, call, 200, again)
  assert not caplog.messages
