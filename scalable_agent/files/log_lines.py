"""Reads lines of `metrics.jsonl` and `episodes.csv`, of which some are damaged.

A line is damaged if a run was killed while it wrote it, or if the disk lost a
part of the file. What reads the logs leaves such lines out.
"""

import collections
import csv
import json

import numpy as np

_MAX_FRAMES = 2**63
# Returns are float32.
_MAX_RETURN = float(np.finfo(np.float32).max)

EpisodeLine = collections.namedtuple(
    'EpisodeLine', 'frames level episode_return episode_frames')
EPISODE_HEADER = ','.join(EpisodeLine._fields)
EpisodeLine.__doc__ = """A line of `episodes.csv`: int, string, float and int.

The fields are the columns, in their order.
"""


def is_frames(value):
  """Whether a value can be a number of environment frames."""
  return (isinstance(value, int) and not isinstance(value, bool) and
          0 <= value < _MAX_FRAMES)


def parse_metrics(line):
  """Reads a line of `metrics.jsonl`.

  Args:
    line: Bytes, with or without the newline.

  Returns:
    A dict whose `frames` is an int; None if the line is damaged.
  """
  try:
    metrics = json.loads(line.decode())
  except (ValueError, RecursionError):
    return None
  if not isinstance(metrics, dict) or not is_frames(metrics.get('frames')):
    return None
  return metrics


def parse_episode(line):
  """Reads a line of `episodes.csv`.

  Args:
    line: Bytes, with or without the newline.

  Returns:
    An `EpisodeLine`; None if the line is damaged, or is the header.
  """
  try:
    (row,) = csv.reader([line.decode()])
    frames, level, episode_return, episode_frames = row
    episode = EpisodeLine(int(frames), level, float(episode_return),
                          int(episode_frames))
  except (ValueError, csv.Error):
    return None
  if not is_frames(episode.frames) or not level or not level.isprintable():
    return None
  return episode


def parse_finite_episode(line):
  """As `parse_episode`, but None also if the return is not a finite float32."""
  episode = parse_episode(line)
  if episode is None or not abs(episode.episode_return) <= _MAX_RETURN:
    return None
  return episode


def progress_of_metrics(line):
  """Returns how far the run was at a line of `metrics.jsonl`.

  Args:
    line: Bytes, with or without the newline.

  Returns:
    A pair of environment frames and updates, the latter 0 if the line does not
    say; None if it is damaged.
  """
  metrics = parse_metrics(line)
  if metrics is None:
    return None
  steps = metrics.get('learner_steps')
  return metrics['frames'], steps if is_frames(steps) else 0


def frames_of_episode(line):
  """Returns the frames of a line of `episodes.csv`, None if it is damaged."""
  episode = parse_episode(line)
  return episode and episode.frames
