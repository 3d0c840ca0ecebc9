"""Tests of `outbox`, with a learner that takes unrolls when a test says so."""

import threading

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scalable_agent import staging
from scalable_agent.jobs import outbox as outbox_lib
from scalable_agent.process import threads
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')


class _Learner:
  """Takes messages in order; as of a `LearnerClient`, one may be under way."""

  def __init__(self):
    self.taken = []
    self.sent = []
    self._room = threading.Semaphore(0)
    self._closed = False

  def take(self, count=1):
    self._room.release(count)

  def close(self):
    self._closed = True
    self._room.release(1000)

  def put_unrolls(self, unrolls, wait=True):
    self.sent += unrolls
    under_way = len(unrolls)
    while len(self.taken) < len(self.sent) - (0 if wait else under_way):
      self._room.acquire()
      if self._closed:
        raise staging.Closed()
      self.taken.append(self.sent[len(self.taken)])


def _start(capacity):
  """Returns an outbox, a `_Learner`, and the thread that sends to it."""
  outbox, learner = outbox_lib.Outbox(capacity), _Learner()
  return outbox, learner, threads.CheckedThreads(
      [outbox], lambda outbox: outbox.send(learner.put_unrolls))


@pytest.fixture
def sending():
  """Sends what is put to a `_Learner`: (capacity) -> an outbox, the learner."""
  ends = []

  def make(capacity):
    outbox, learner, sender = _start(capacity)
    ends.append((learner, sender))
    return outbox, learner

  yield make
  for learner, sender in ends:
    learner.close()
    sender.close()
    sender.check()


def _put_until_blocked(outbox, count):
  """Puts unrolls in a thread; returns it, and a list that grows."""
  put = []

  def run():
    try:
      for i in range(count):
        outbox.put(i)
        put.append(i)
    except staging.Closed:
      put.append('closed')

  thread = threading.Thread(target=run)
  thread.start()
  return thread, put


@pytest.mark.parametrize('capacity', [1, 2, 5])
def test_no_more_are_finished_than_it_holds(sending, capacity):
  """However many of them are in messages that the learner has not taken."""
  outbox, learner = sending(capacity)
  thread, put = _put_until_blocked(outbox, 20)
  for num_taken in range(20 - capacity):
    remote_parts.wait_until(lambda: len(put) >= len(learner.taken) + 1)
    thread.join(.02)
    assert len(put) <= num_taken + capacity
    learner.take()
  learner.take(20)
  thread.join()
  remote_parts.wait_until(lambda: len(learner.taken) == 20)
  assert learner.taken == list(range(20))


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=4))
def test_all_arrive_in_order_from_several_threads(capacity, sizes):
  outbox, learner, sender = _start(capacity)
  learner.take(100)
  actors = [threading.Thread(target=lambda k=k, size=size: [
      outbox.put((k, i)) for i in range(size)])
            for k, size in enumerate(sizes)]
  for actor in actors:
    actor.start()
  for actor in actors:
    actor.join()
  remote_parts.wait_until(lambda: len(learner.taken) == sum(sizes))
  sender.close()
  sender.check()
  for k, size in enumerate(sizes):
    assert [i for j, i in learner.taken if j == k] == list(range(size))


def test_close_wakes_actors_that_wait_for_room(sending):
  outbox, _ = sending(2)
  thread, put = _put_until_blocked(outbox, 9)
  remote_parts.wait_until(lambda: len(put) == 2)
  outbox.close()
  thread.join()
  assert put == [0, 1, 'closed']
  with pytest.raises(staging.Closed):
    outbox.put(0)
