"""Sees to it that this process can open the files that it has to."""

import contextlib
import os
import resource

_UNLIMITED = 1 << 30


def limit():
  """Returns how many files this process may have open, an int."""
  soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
  return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_limit():
  """Raises the soft limit of open files to the hard one."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if soft != hard:
    # Some systems let nobody have what they state as the hard limit.
    with contextlib.suppress(ValueError, OSError):
      resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def count():
  """Returns how many files this process has open, an int.

  Raises:
    OSError: There is no descriptor left to find out.
  """
  return len(os.listdir('/proc/self/fd')) - 1  # Without the one to list them.


class Reserve:
  """Descriptors that are kept open, to be given up where files have to open.

  Connections that others make may use up all descriptors of a process. What
  must not fail then, such as saving a checkpoint, gives up a reserve for as
  long as it takes. For one thread.
  """

  def __init__(self, size):
    """Takes `size` descriptors, or half of those that there are."""
    self._size = size
    self._descriptors = []
    self._take(0)

  def __len__(self):
    """How many descriptors it has."""
    return len(self._descriptors)

  def _take(self, had):
    with contextlib.suppress(OSError):
      while len(self._descriptors) < 2 * self._size:
        self._descriptors.append(os.open(os.devnull, os.O_RDONLY))
    # Others have to open files too, but may not take what it had.
    size = min(self._size, max(had, len(self) // 2))
    while len(self) > size:
      os.close(self._descriptors.pop())

  def _give_up(self):
    while self._descriptors:
      os.close(self._descriptors.pop())

  @contextlib.contextmanager
  def released(self):
    """Gives up the descriptors for the `with` block, and takes them back.

    It tries again after the next block for those that it cannot have then.
    """
    had = len(self)
    self._give_up()
    try:
      yield
    finally:
      self._take(had)

  def close(self):
    """Gives up the descriptors for good."""
    self._size = 0
    self._give_up()
