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
    OSError: It cannot be written; an old file stays as it was.
  """
  temporary = f'{path}{_TEMPORARY}'
  with replacing(path, temporary), open(temporary, 'wb') as f:
    f.write(content)
    f.flush()
    os.fsync(f.fileno())


def check(path):
  """Raises OSError if `write` could not write now: before what takes long."""
  temporary = f'{path}{_TEMPORARY}'
  with open(temporary, 'wb'):
    pass
  os.remove(temporary)


def remove_leftover(path):
  """Removes what a process left that was killed while it wrote `path`."""
  if os.path.exists(f'{path}{_TEMPORARY}'):
    os.remove(f'{path}{_TEMPORARY}')
