"""The newest weights, and how many updates there were, for actors."""

import threading

from scalable_agent import staging


class Published:
  """Keeps the newest weights, and counts updates for those who wait for one.
  """

  def __init__(self, put_unroll):
    """Initializes with a function that takes an `ActorOutput`, and may block.
    """
    self._put_unroll = put_unroll
    self._num_put = 0
    self._order = threading.Lock()
    self._newest = None
    # The first weights are from no update of this run.
    self._num_updates = -1
    self._closed = False
    self._changed = threading.Condition()

  def publish(self, weights, version):
    """Takes note of weights, a dict of name to tensor, and their version."""
    with self._changed:
      self._newest = weights, version
      self._num_updates += 1
      self._changed.notify_all()

  def newest(self):
    """Returns a pair of the newest weights and their version.

    Before the first `publish` it is None.
    """
    return self._newest

  def wait(self, num_updates):
    """Waits until there was a `publish` after so many updates.

    Raises:
      staging.Closed: `close` was called.
    """
    with self._changed:
      self._changed.wait_for(
          lambda: self._closed or self._num_updates >= num_updates)
      if self._closed:
        raise staging.Closed('There will be no more updates.')

  def put(self, unroll, wait=True):
    """Puts an unroll with its gradient, and waits until its update is made.

    So the weights that its worker fetches next are from that update or a later
    one.

    Args:
      unroll: An `ActorOutput`.
      wait: Whether to do so. Nothing is put without waiting, since no update is
        made at once.

    Returns:
      Whether it was put, which is `wait`.

    Raises:
      staging.Closed: The queue is closed, or `close` was called.
    """
    if wait:
      with self._order:  # Updates are made in the order of the unrolls.
        self._put_unroll(unroll)
        self._num_put += 1
        number = self._num_put
      self.wait(number)
    return wait

  def close(self):
    """Wakes all that wait."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()
