"""Finds, commits and removes checkpoints by their files; needs no TensorFlow.

The checkpoint after F environment frames is ckpt-F.index, and ckpt-F.data-...
beside it. It is written in a directory of its own, ckpt-F_temp. When it is
whole and on the disk, its files are moved out, the index last. So a process
that is killed at any time, or a move that fails, leaves whole checkpoints, and
at most a directory that the next process, or save, finishes or removes.

The file `checkpoint`, in which TensorFlow notes the newest, is for others that
look for it. Nothing here depends on it.
"""

import contextlib
import hashlib
import os
import re
import shutil

from scalable_agent.files import whole_file

NOTE_FILE = 'checkpoint'
_ENDING = r'\.(?:index|data-[0-9]+-of-[0-9]+)'
_FILE = re.compile(r'ckpt-([0-9]+)' + _ENDING)
_TEMPORARY = re.compile(r'ckpt-([0-9]+)_temp')
_SET_ASIDE = 'damaged-'


def _list(logdir):
  try:
    return os.listdir(logdir)
  except (FileNotFoundError, NotADirectoryError):
    return []


def _matches(logdir):
  """Returns the matches of the names of all checkpoints' files."""
  return filter(None, map(_FILE.fullmatch, _list(logdir)))


def path_of(logdir, frames):
  """Returns the checkpoint's path without the endings of its files."""
  return os.path.join(logdir, f'ckpt-{frames}')


def find(logdir):
  """Returns the paths of all checkpoints, whole or not, oldest first.

  Args:
    logdir: The directory; it need not exist.
  """
  frames = {int(match.group(1)) for match in _matches(logdir)}
  return [path_of(logdir, number) for number in sorted(frames)]


def newest_frames(logdir):
  """Returns the environment frames of the newest checkpoint, 0 for none."""
  return max((int(match.group(1)) for match in _matches(logdir)
              if match.group().endswith('.index')), default=0)


def _files(path):
  """Returns the names of a checkpoint's files, the index first."""
  # Also of one that a user has renamed.
  file_of = re.compile(re.escape(os.path.basename(path)) + _ENDING)
  return sorted(
      filter(file_of.fullmatch, _list(os.path.dirname(path) or os.curdir)),
      key=lambda found: not found.endswith('.index'))


def fingerprint(path):
  """Returns 16 hex digits that tell a checkpoint apart, whole or not.

  The index has a checksum of each tensor, so nothing else is read.

  Args:
    path: Its path without the endings of files.

  Raises:
    OSError: It cannot be read, or is removed meanwhile.
  """
  digest = hashlib.sha256()
  for name in _files(path):
    file = os.path.join(os.path.dirname(path), name)
    digest.update(f'{name} {os.path.getsize(file)} '.encode())
    if name.endswith('.index'):
      with open(file, 'rb') as f:
        digest.update(f.read())
  return digest.hexdigest()[:16]


@contextlib.contextmanager
def committing(path):
  """Yields the path to write a checkpoint to, and then moves it to `path`.

  Raises:
    OSError: It cannot be moved. A checkpoint that was at `path` is still there,
      unless some files were moved already: then neither is whole until the next
      call with `path`, or `clean_up`, has moved the others.
  """
  _finish_or_remove(path)
  directory = _temporary_directory(path)
  os.mkdir(directory)
  temporary = os.path.join(directory, os.path.basename(path))
  try:
    yield temporary
    for name in _files(temporary):
      whole_file.sync(os.path.join(directory, name))
    _move_out(temporary)
    whole_file.sync(os.path.dirname(path) or '.')
  finally:
    if not _is_half_moved(temporary):
      _remove_directory(temporary)


def _temporary_directory(path):
  return f'{path}_temp'


def _is_half_moved(temporary):
  """Whether data files have been moved out, and the index has not.

  TensorFlow makes the index when all data files have their names. Each of these
  names ends in how many there are.
  """
  found = _files(temporary)
  if f'{os.path.basename(temporary)}.index' not in found:
    return False
  _, *data = found
  return not data or len(data) < int(data[0].rpartition('-')[2])


def _move_out(temporary):
  directory = os.path.dirname(temporary)
  for found in reversed(_files(temporary)):
    os.replace(os.path.join(directory, found),
               os.path.join(os.path.dirname(directory), found))


def _remove_directory(temporary):
  with contextlib.suppress(OSError):
    # The index first: with the data gone, it would pass for half moved.
    if os.path.exists(f'{temporary}.index'):
      os.remove(f'{temporary}.index')
    shutil.rmtree(os.path.dirname(temporary), ignore_errors=True)


def _finish_or_remove(path):
  """Does so with what was left when `path` was written the last time."""
  temporary = os.path.join(_temporary_directory(path), os.path.basename(path))
  if _is_half_moved(temporary):
    _move_out(temporary)
  _remove_directory(temporary)


def clean_up(logdir):
  """Finishes or removes what killed processes, or failed moves, have left.

  Call while no other process saves here.

  Raises:
    OSError: Files cannot be moved.
  """
  for match in filter(None, map(_TEMPORARY.fullmatch, _list(logdir))):
    _finish_or_remove(path_of(logdir, match.group(1)))


def keep_newest(logdir, count):
  """Removes all checkpoints but the newest `count`, and notes these.

  Raises:
    OSError: They cannot be removed, or noted.
  """
  paths = find(logdir)
  names = [os.path.basename(path) for path in paths[-count:]]
  if not names:
    return
  # TensorFlow's own format. Noted before the others go, for who reads it.
  whole_file.write(os.path.join(logdir, NOTE_FILE), ''.join([
      f'model_checkpoint_path: "{names[-1]}"\n',
      *(f'all_model_checkpoint_paths: "{name}"\n' for name in names)]).encode())
  for path in paths[:-count]:
    _remove(path)


def remove_others(path):
  """Removes all checkpoints but one from its directory.

  Raises:
    OSError: They cannot be removed.
  """
  for other in find(os.path.dirname(path)):
    if other != path:
      _remove(other)


def _remove(path):
  # The index first: what is left is not taken for a whole checkpoint.
  for name in _files(path):
    os.remove(os.path.join(os.path.dirname(path), name))


def copy(path, directory):
  """Copies a checkpoint's files into a directory, the index last.

  Raises:
    FileNotFoundError: There is no such checkpoint, or its run removes it.
    OSError: It cannot be copied.
  """
  names = _files(path)
  if f'{os.path.basename(path)}.index' not in names:
    raise FileNotFoundError(f'{path} is no checkpoint.')
  for name in reversed(names):
    copied = os.path.join(directory, name)
    shutil.copyfile(os.path.join(os.path.dirname(path), name), copied)
    whole_file.sync(copied)
  whole_file.sync(directory)


def set_aside(path):
  """Renames a checkpoint's files, so that nobody takes it for a good one."""
  directory = os.path.dirname(path)
  for name in _files(path):
    os.replace(os.path.join(directory, name),
               os.path.join(directory, _SET_ASIDE + name))
