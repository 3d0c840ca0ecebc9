"""Locks files, so that no two processes work in one directory.

A lock ends with its process, however that ends. On a network file system it
holds between machines if the file system passes on `flock`, as NFS does unless
it is mounted with `nolock` or `local_lock`.
"""

import contextlib
import errno
import fcntl
import os
import time

from absl import logging

# Errors of file systems that have no locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
# `is_held` takes the lock too, for much less than this.
_TRIES, _SECONDS_BETWEEN = 4, .02


class Held(RuntimeError):
  """Another process holds the lock.

  Attributes:
    holder: What that process wrote into the file, '' if nothing.
  """

  def __init__(self, holder):
    super().__init__(f'The lock is held: {holder}')
    self.holder = holder


def acquire(path, holder=''):
  """Locks a file, which is made if need be.

  Where the file system has no locks, a warning says so, and nothing is locked.

  Args:
    path: The file.
    holder: A line to write into it for those who ask who holds it.

  Returns:
    A file descriptor. The lock ends when it is closed here and in all processes
    that have inherited it.

  Raises:
    Held: Another process holds it.
    OSError: The file cannot be opened or locked.
  """
  while True:
    descriptor = _open(path, os.O_CREAT)
    try:
      _flock(descriptor, path)
      if _is_at(descriptor, path):
        # The lock holds even if its holder cannot be written, as on a full
        # disk.
        with contextlib.suppress(OSError):
          os.ftruncate(descriptor, 0)
          os.pwrite(descriptor, holder.encode(), 0)
        return descriptor
      # Its holder has just removed the file, and another may be there already.
      os.close(descriptor)
    except BlockingIOError as e:
      found = os.pread(descriptor, 1000, 0).decode(errors='replace').strip()
      os.close(descriptor)
      raise Held(found) from e
    except BaseException:
      os.close(descriptor)
      raise


def _flock(descriptor, path):
  for tries_left in reversed(range(_TRIES)):
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      if not tries_left:
        raise
      time.sleep(_SECONDS_BETWEEN)
      continue
    except OSError as e:
      if e.errno not in _NO_LOCKS:
        raise
      logging.warning(
          '%s cannot be locked (%s). Make sure that no other process works in '
          'this directory.', path, e.strerror)
    return


def _open(path, flags=0):
  try:
    return os.open(path, os.O_RDWR | flags, 0o666)
  except PermissionError:
    # Another user's file can be locked, though not written.
    with contextlib.suppress(FileNotFoundError):
      return os.open(path, os.O_RDONLY)
    raise


def _is_at(descriptor, path):
  """Returns whether an open file is still the one of that name.

  Who opens a file and then locks it may lock one that its holder has removed.
  """
  try:
    return os.path.samestat(os.fstat(descriptor), os.stat(path))
  except FileNotFoundError:
    return False


def release(path, descriptor):
  """Removes a file that `acquire` has locked, and ends the lock.

  If somebody has removed it before, another process may hold another file of
  that name, which is left alone.
  """
  with contextlib.suppress(OSError):
    if _is_at(descriptor, path):
      os.remove(path)
  os.close(descriptor)


def is_held(path):
  """Returns whether any process holds a file's lock; False if there is none."""
  try:
    descriptor = _open(path)
  except OSError:
    return False
  try:
    # Several may ask at a time.
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return False
  except BlockingIOError:
    return True
  except OSError:
    return False
  finally:
    os.close(descriptor)
