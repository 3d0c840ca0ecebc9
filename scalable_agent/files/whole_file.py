"""Writes files so that a reader finds the old content or all of the new.

Several processes may write or check a file at a time: the last one has it.
"""

import contextlib
import glob
import json
import os
import secrets


@contextlib.contextmanager
def replacing(path):
  """Replaces a file, or makes it, by what a `with` block writes.

  Args:
    path: The file.

  Yields:
    Where the block writes, in the same directory. It is removed if the block
    raises.

  Raises:
    OSError: The file cannot be replaced; it stays as it was.
  """
  temporary = temporary_name(path)
  try:
    yield temporary
    os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(OSError):
      os.remove(temporary)
    raise


def write(path, content):
  """Replaces a file, or makes it; the content is on the disk afterwards.

  Args:
    path: The file.
    content: Bytes.

  Raises:
    OSError: It cannot be written, and an old file stays as it was. Or it is
      written and not yet safe: after a power failure the old one may be back.
  """
  write_lines(path, [content])


def write_json(path, content):
  """As `write`, of what JSON can hold, indented."""
  write(path, (json.dumps(content, indent=2) + '\n').encode())


def read_json(path):
  """Returns the JSON object in a file, a dict.

  Raises:
    OSError: It cannot be read.
    ValueError: It holds none; the message is one line.
  """
  try:
    with open(path, encoding='utf-8') as f:
      found = json.load(f)
  except RecursionError as e:
    raise ValueError(str(e)) from e
  if not isinstance(found, dict):
    raise ValueError('it holds no JSON object')
  return found


def write_lines(path, lines):
  """As `write`, of an iterable of bytes, which have their line ends."""
  with replacing(path) as temporary, open(temporary, 'wb') as f:
    f.writelines(lines)
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
  """Raises OSError if `write` could not write now. Call before long work."""
  temporary = temporary_name(path)
  with open(temporary, 'wb'):
    pass
  os.remove(temporary)


def remove_leftovers(path):
  """Removes what processes left that were killed while they wrote `path`.

  Call while no other process writes it.
  """
  for temporary in glob.glob(f'{glob.escape(path)}.*.tmp'):
    os.remove(temporary)


def temporary_name(path):
  """Returns where to write what becomes `path`; no two calls agree."""
  return f'{path}.{secrets.token_hex(4)}.tmp'
