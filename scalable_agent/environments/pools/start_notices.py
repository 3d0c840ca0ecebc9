"""Says now and then which environments of a pool have not started yet."""

import time

from absl import logging

_SECONDS = 10.  # From one line to the next.


class StartNotices:
  """The lines of one pool."""

  def __init__(self, num_environments):
    """Begins to count the time; nothing is said at once."""
    self._num_environments = num_environments
    self._next = time.monotonic() + _SECONDS

  def show(self, num_late, name, timeout):
    """Says what is waited for, if it is time to.

    Args:
      num_late: How many have not started, an int.
      name: A function that returns their names, a string.
      timeout: Seconds that the caller means to wait.

    Returns:
      Seconds to wait, so that the next line comes in time.
    """
    left = self._next - time.monotonic()
    if left <= 0:
      left = _SECONDS
      self._next = time.monotonic() + left
      logging.info('%d of %d environments have started, waiting for %s',
                   self._num_environments - num_late, self._num_environments,
                   name())
    return min(timeout, left)
