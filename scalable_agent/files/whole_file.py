"""Writes files so that a reader finds the old content or all of the new."""

import contextlib
import os

_TEMPORARY = '.tmp'


@contextlib.contextmanager
def replacing(path, temporary):
  """Replaces a file, or makes it, by what a `with` block writes.

  Args:
    path: The file.
    temporary: Where the block writes, in the same directory. It is removed if
      the block raises.

  Raises:
    OSError: The file cannot be replaced; it stays as it was.
  """
  try:
    yield
    os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(OSError):
      os.remove(temporary)
    raise


def write(path, content):
  """Replaces a file, or makes it; the content is on the disk afterwards.

  One process at a time may write a file.

  Args:
    path: The file.
    content: Bytes.

  Raises:
    OSError: It cannot be written, and an old file stays as it was; or it is
      written, and the disk may lose it for the old one.
  """
  temporary = f'{path}{_TEMPORARY}'
  with replacing(path, temporary), open(temporary, 'wb') as f:
    f.write(content)
    f.flush()
    os.fsync(f.fileno())
  sync(os.path.dirname(path) or '.')


def sync(path):
  """Waits until the disk has a file, or the names in a directory."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def check(path):
  """Raises OSError if `write` could not write now: before what takes long.

  Several processes may ask at a time.
  """
  temporary = f'{path}{_TEMPORARY}'
  with open(temporary, 'wb'):
    pass
  with contextlib.suppress(FileNotFoundError):  # Another has removed it.
    os.remove(temporary)


def remove_leftover(path):
  """Removes what a process left that was killed while it wrote `path`."""
  if os.path.exists(f'{path}{_TEMPORARY}'):
    os.remove(f'{path}{_TEMPORARY}')
