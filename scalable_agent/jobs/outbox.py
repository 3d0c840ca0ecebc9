"""Where unrolls of an actor job wait until the learner has taken them."""

import threading

from scalable_agent import staging


class Outbox:
  """Holds unrolls from when they are finished until the learner has them.

  It is bounded. Otherwise the slower the learner is, the more unrolls wait for
  it, and the older they are when it trains on them.
  """

  def __init__(self, capacity):
    """Initializes the outbox.

    Args:
      capacity: How many unrolls may wait or be under way, an int from 1.
    """
    self._capacity = capacity
    self._waiting = []
    self._num_under_way = 0
    self._closed = False
    self._changed = threading.Condition()

  def put(self, unroll):
    """Adds an unroll, waiting for room.

    Raises:
      staging.Closed: The outbox is closed, or was while waiting.
    """
    with self._changed:
      self._wait_for(lambda: (
          len(self._waiting) + self._num_under_way < self._capacity))
      self._waiting.append(unroll)
      self._changed.notify_all()

  def send(self, put_unrolls):
    """Sends what is put, in order, until the outbox is closed; for one thread.

    Args:
      put_unrolls: `client.LearnerClient.put_unrolls`.

    Raises:
      staging.Closed, and what `put_unrolls` raises.
    """
    while True:
      with self._changed:
        self._wait_for(lambda: self._waiting)
        unrolls, self._waiting = self._waiting, []
        self._num_under_way += len(unrolls)
      # While the learner takes these, the next are encoded, if there are any.
      put_unrolls(unrolls, wait=False)
      if not self._note_under_way(len(unrolls)):
        put_unrolls([])
        self._note_under_way(0)

  def _note_under_way(self, count):
    """Notes how many may be under way; returns how many wait."""
    with self._changed:
      self._num_under_way = count
      self._changed.notify_all()
      return len(self._waiting)

  def _wait_for(self, condition):
    self._changed.wait_for(lambda: self._closed or condition())
    if self._closed:
      raise staging.Closed('The outbox is closed.')

  def close(self):
    """Wakes all that wait."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()
