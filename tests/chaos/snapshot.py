"""What a log directory holds at a moment, read independently of the program."""

import functools
import os
import re
import tempfile
from typing import Mapping, NamedTuple

METRICS = 'metrics.jsonl'
EPISODES = 'episodes.csv'

_PART = re.compile(r'ckpt-(\d+)\.(index|data-00000-of-00001)$')
_FRAMES = 'num_environment_frames/.ATTRIBUTES/VARIABLE_VALUE'
# What a killed process may leave behind: TensorFlow's directories, and files
# that were to be renamed.
_TEMPORARY = re.compile(r'_temp\b|tmp|tempstate|\.part\b')


class Snapshot(NamedTuple):
  """A log directory.

  Attributes:
    files: A dict of path in the directory to content, bytes. That of an empty
      directory ends in a slash.
    whole: A dict of N to the frames stored in the checkpoint ckpt-N, of those
      whose every value can be read.
  """
  files: Mapping[str, bytes] = {}
  whole: Mapping[int, int] = {}


def numbers(names):
  """Returns N of each ckpt-N of which any file is there, oldest first."""
  matches = filter(None, map(_PART.match, names))
  return sorted({int(match.group(1)) for match in matches})


def pairs(names):
  """Returns N of each ckpt-N with both of its files, oldest first.

  Args:
    names: The names in a log directory, iterable.
  """
  found = {}
  for name in names:
    match = _PART.match(name)
    if match:
      found.setdefault(int(match.group(1)), set()).add(match.group(2))
  return sorted(number for number, parts in found.items() if len(parts) == 2)


def temporaries(names):
  """Returns the names that only a save or write under way may have, a set."""
  return {name for name in names
          if _TEMPORARY.search(name) and not name.startswith('events.out')}


def index_name(number):
  """The name of a checkpoint's file of names and shapes."""
  return f'ckpt-{number}.index'


def data_name(number):
  """The name of a checkpoint's file of values."""
  return f'ckpt-{number}.data-00000-of-00001'


def take(logdir):
  """Reads a log directory that nobody writes to; empty if there is none."""
  files = {}
  for directory, folders, names in os.walk(logdir):
    inside = os.path.relpath(directory, logdir)
    if not folders and not names and inside != '.':
      files[inside + '/'] = b''
    for name in names:
      with open(os.path.join(directory, name), 'rb') as f:
        files[os.path.normpath(os.path.join(inside, name))] = f.read()
  whole = {}
  for number in pairs(files):
    frames = _stored_frames(
        files[index_name(number)], files[data_name(number)])
    if frames is not None:
      whole[number] = frames
  return Snapshot(files, whole)


# Rounds leave most checkpoints of the one before as they are.
@functools.lru_cache(maxsize=64)
def _stored_frames(index, data):
  """Reads all of a checkpoint; None if a value is lost or its sum is wrong."""
  # pylint: disable=g-import-not-at-top
  import tensorflow as tf
  with tempfile.TemporaryDirectory() as directory:
    # A name without the characters that TensorFlow takes for patterns.
    for name, content in ((index_name(0), index), (data_name(0), data)):
      with open(os.path.join(directory, name), 'wb') as f:
        f.write(content)
    try:
      reader = tf.train.load_checkpoint(os.path.join(directory, 'ckpt-0'))
      values = {name: reader.get_tensor(name)
                for name in reader.get_variable_to_shape_map()}
      return int(values[_FRAMES])
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError, KeyError):
      return None
