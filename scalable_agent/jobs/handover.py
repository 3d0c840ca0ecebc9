"""Hands over gradients of A3C workers, one update at a time."""

import threading

from scalable_agent import staging


class Handover:
  """Puts unrolls with gradients into a queue, for a thread that must not wait.

  A worker is answered when the update of its gradient is made. So the weights
  that it fetches next are from that update or a later one.
  """

  def __init__(self, put_unroll):
    """Initializes with a function such as `TrajectoryQueue.put`."""
    self._put_unroll = put_unroll
    self._under_way = None
    self._num_put = 0
    # The first weights are from no update.
    self._num_updates = -1
    self._on_update = None
    self._closed = False
    self._lock = threading.Lock()

  def put(self, unroll, on_done):
    """Puts an unroll, unless an earlier call has put it.

    Args:
      unroll: An `ActorOutput`. No other may be put before this returns True.
      on_done: A function to call when it should be put again.

    Returns:
      Whether its update is made.

    Raises:
      staging.Closed: The queue is closed, and there will be no more updates.
    """
    if unroll is not self._under_way:
      if not self._put_unroll(unroll, on_done):
        return False
      self._under_way = unroll
      self._num_put += 1
    with self._lock:
      if self._num_updates >= self._num_put:
        self._under_way = None
        return True
      if self._closed:
        raise staging.Closed('There will be no more updates.')
      self._on_update = on_done
      return False

  def published(self):
    """Notes that weights are published: the first, or those of an update."""
    with self._lock:
      self._num_updates += 1
    self._wake()

  def close(self):
    """Wakes whoever waits for an update."""
    with self._lock:
      self._closed = True
    self._wake()

  def _wake(self):
    with self._lock:
      on_update, self._on_update = self._on_update, None
    if on_update:
      on_update()
