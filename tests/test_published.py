"""What waits for an update, and the gradients that updates are made of."""

import queue as queue_lib
import threading

import pytest

from scalable_agent import published
from scalable_agent import staging

# An end to waits that should be short; the machine may be busy.
_LONG = 30.

pytestmark = pytest.mark.usefixtures('bounded')


def test_updates_wake_those_that_wait_for_them():
  updates = published.Published(None)
  # Of a run that was resumed: where acting begins. With a lag that is set, some
  # updates bring no newer weights.
  updates.publish({}, 5)
  passed = queue_lib.Queue()

  def wait(count):
    try:
      updates.wait(count)
      passed.put(count)
    except staging.Closed:
      passed.put('closed')

  threads = [threading.Thread(target=wait, args=(n,)) for n in (0, 2, 2, 3)]
  for thread in threads:
    thread.start()
  assert passed.get(timeout=_LONG) == 0
  updates.publish({}, 5)
  with pytest.raises(queue_lib.Empty):
    passed.get(timeout=.2)
  updates.publish({'w': 1}, 6)
  assert updates.newest() == ({'w': 1}, 6)
  assert [passed.get(timeout=_LONG) for _ in range(2)] == [2, 2]
  updates.close()
  assert passed.get(timeout=_LONG) == 'closed'
  for thread in threads:
    thread.join(_LONG)
  with pytest.raises(staging.Closed):
    updates.wait(0)


class _Worker:
  """Puts some gradients, one after the other, in a thread."""

  def __init__(self, updates, gradients):
    self.results = queue_lib.Queue()
    self._thread = threading.Thread(
        target=self._run, args=(updates, gradients), daemon=True)
    self._thread.start()

  def _run(self, updates, gradients):
    try:
      for gradient in gradients:
        self.results.put(updates.put(gradient))
    except staging.Closed:
      self.results.put('closed')

  def result(self):
    return self.results.get(timeout=_LONG)

  def waits(self):
    with pytest.raises(queue_lib.Empty):
      self.results.get(timeout=.1)
    return True


def test_a_gradient_is_put_once_its_update_is_made():
  queue = staging.TrajectoryQueue(4)
  updates = published.Published(queue.put)
  worker = _Worker(updates, ['a', 'b'])
  assert queue.get_many(1) == ['a']
  updates.publish({}, 0)  # The first weights, which are from no update.
  assert worker.waits()
  updates.publish({}, 1)
  assert worker.result()
  assert queue.get_many(1) == ['b']
  assert worker.waits()
  updates.publish({}, 2)
  assert worker.result()


def test_without_waiting_no_gradient_is_put():
  queue = staging.TrajectoryQueue(1)
  updates = published.Published(queue.put)
  updates.publish({}, 0)
  assert not updates.put('a', False)
  assert not len(queue)
  worker = _Worker(updates, ['b'])
  assert queue.get_many(1) == ['b']
  updates.publish({}, 1)
  assert worker.result()


def test_updates_are_made_in_the_order_of_the_gradients():
  """Each of many workers is told of its own, and none of another's."""
  queue = staging.TrajectoryQueue(1)
  updates = published.Published(queue.put)
  updates.publish({}, 0)
  workers = [_Worker(updates, [(i, j) for j in range(20)]) for i in range(5)]
  for _ in range(5 * 20):
    (gradient,) = queue.get_many(1)
    worker = workers[gradient[0]]
    assert worker.results.empty()
    updates.publish({}, 0)
    assert worker.result()
  assert all(worker.results.empty() for worker in workers)


def test_close_wakes_those_that_have_put_and_those_that_have_not():
  """The queue is closed before, as it is where a run ends."""
  queue = staging.TrajectoryQueue(1)
  updates = published.Published(queue.put)
  updates.publish({}, 0)
  workers = [_Worker(updates, [i]) for i in range(4)]
  assert all(worker.waits() for worker in workers)
  assert len(queue) == 1
  queue.close()
  updates.close()
  assert [worker.result() for worker in workers] == ['closed'] * 4
