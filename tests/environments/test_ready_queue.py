"""The order in which environments are handed out."""

import numpy as np

from scalable_agent.environments.pools import ready_queue


def _queue(*chunks):
  queue = ready_queue.ReadyQueue()
  for time, ids in enumerate(chunks):
    queue.add(time, np.array(ids, np.int32))
  return queue


def test_what_was_first_comes_first():
  queue = _queue([3, 1], [4], [0, 2])
  taken = queue.take(4)
  assert (taken.tolist(), taken.dtype) == ([3, 1, 4, 0], np.int32)
  assert (len(queue), queue.since) == (1, 2)
  queue.add(9, np.array([3], np.int32))
  assert queue.take(9).tolist() == [2, 3]
  assert not queue


def test_what_is_taken_is_the_callers():
  ids = np.array([3, 1], np.int32)
  queue = ready_queue.ReadyQueue()
  queue.add(0, ids)
  queue.take(1)[:] = 7
  assert ids.tolist() == [3, 1] and queue.take(1).tolist() == [1]


def test_some_may_be_removed():
  queue = _queue([3, 1], [4], [0, 2])
  queue.remove(np.array([3, 4, 2, 6]))
  assert (len(queue), queue.since) == (2, 0)
  queue.remove(np.array([1]))
  assert (len(queue), queue.since) == (1, 2)
  assert queue.take(5).tolist() == [0]
