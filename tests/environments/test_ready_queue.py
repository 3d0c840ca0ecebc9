"""The order in which environments are handed out."""

from scalable_agent.environments.pools import ready_queue


def _queue(*chunks):
  queue = ready_queue.ReadyQueue()
  for time, ids in enumerate(chunks):
    queue.add(time, ids)
  return queue


def test_what_was_first_comes_first():
  queue = _queue([3, 1], [4], [0, 2])
  assert queue.take(4) == [3, 1, 4, 0]
  assert (len(queue), queue.since) == (1, 2)
  queue.add(9, [3])
  assert queue.take(9) == [2, 3]
  assert not queue


def test_some_may_be_removed():
  queue = _queue([3, 1], [4], [0, 2])
  queue.remove({3, 4, 2, 6})
  assert (len(queue), queue.since) == (2, 0)
  queue.remove(range(1, 2))
  assert (len(queue), queue.since) == (1, 2)
  assert queue.take(5) == [0]
