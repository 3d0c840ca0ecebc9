"""The best checkpoint of a run, apart from the last few; needs no TensorFlow.

The directory `best` in the log directory has one checkpoint, and best.json,
which names it and says what it was the best in. A checkpoint that best.json
does not name is what a killed process has left there.
"""

import collections
import contextlib
import math
import os

from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.files import log_lines
from scalable_agent.files import whole_file
from scalable_agent.process import errors
from scalable_agent.suites import scores as suite_scores

DIRECTORY, _NOTE_FILE = 'best', 'best.json'

Best = collections.namedtuple('Best', 'path frames measure value')
Best.__doc__ = """The best checkpoint.

  path: Without the endings of its files.
  frames: Environment frames that it was trained on.
  measure: What it is the best in, as in `suites.scores.Score`.
  value: What it has reached there, a float.
"""


def exists(logdir):
  """Returns whether a run has kept a best checkpoint, damaged or not."""
  return os.path.exists(os.path.join(logdir, DIRECTORY, _NOTE_FILE))


def read(logdir):
  """Returns the `Best` of a run, None if it has none.

  Raises:
    ValueError: What says which it is is damaged; the message is one line.
    OSError: It cannot be read now.
  """
  directory = os.path.join(logdir, DIRECTORY)
  note = os.path.join(directory, _NOTE_FILE)
  try:
    found = whole_file.read_json(note)
    frames, measure, value = (
        found[name] for name in ('frames', 'measure', 'value'))
    if not (log_lines.is_frames(frames) and isinstance(measure, str) and
            isinstance(value, (int, float)) and math.isfinite(value)):
      raise ValueError('not what a run writes')
  except FileNotFoundError:
    return None
  except (ValueError, KeyError) as e:
    raise ValueError(f'{note} is damaged: {errors.first_line(e)}') from e
  path = checkpoint_files.path_of(directory, frames)
  if path not in checkpoint_files.find(directory):
    raise ValueError(f'{note} names {os.path.basename(path)}, which is gone')
  return Best(path, frames, measure, value)


@contextlib.contextmanager
def committing(logdir, frames, score):
  """Yields the path to write a checkpoint to, and then makes it the best.

  Until it is on the disk, the best is the one before.

  Args:
    logdir: The run's directory.
    frames: Environment frames that the weights were trained on.
    score: A `suites.scores.Score`, which they are the best in.

  Raises:
    OSError: It cannot be written.
  """
  directory = os.path.join(logdir, DIRECTORY)
  os.makedirs(directory, exist_ok=True)
  path = checkpoint_files.path_of(directory, frames)
  with checkpoint_files.committing(path) as temporary:
    yield temporary
  note = dict(checkpoint=os.path.basename(path), frames=frames,
              **score._asdict(), episodes_per_level=suite_scores.WINDOW)
  whole_file.write_json(os.path.join(directory, _NOTE_FILE), note)
  checkpoint_files.remove_others(path)


def clean_up(logdir):
  """Removes what a killed process was writing."""
  directory = os.path.join(logdir, DIRECTORY)
  checkpoint_files.clean_up(directory)
  whole_file.remove_leftovers(os.path.join(directory, _NOTE_FILE))
