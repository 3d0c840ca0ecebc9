"""The newest weights, and how many updates there were, for actor threads."""

import threading

from scalable_agent import staging


class Published:
  """Keeps the newest weights, and counts how often there were newer ones."""

  def __init__(self):
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

  def close(self):
    """Wakes all that wait."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()
