"""Reads the logs of a log directory, whatever is in them."""

import csv
import json

from tests.chaos import snapshot

HEADER = b'frames,level,episode_return,episode_frames'


def lines(content):
  """Returns the lines of a file that have an end, and what follows them."""
  *found, rest = content.split(b'\n')
  return found, rest


def metrics(snap):
  """Yields the lines of metrics.jsonl and their dicts, None if unreadable."""
  for line in lines(snap.files.get(snapshot.METRICS, b''))[0]:
    try:
      entry = json.loads(line)
      yield line, entry if isinstance(entry['frames'], int) else None
    except (ValueError, KeyError, TypeError):
      yield line, None


def episodes(snap):
  """Yields the rows of episodes.csv and their frames, None if unreadable."""
  for line in lines(snap.files.get(snapshot.EPISODES, b''))[0][1:]:
    try:
      # A level's name may have commas in it, and then is in quotes.
      frames, _, episode_return, episode_frames = next(
          csv.reader([line.decode()]))
      float(episode_return), int(episode_frames)
      yield line, int(frames)
    except (ValueError, StopIteration, csv.Error):
      yield line, None


def has_any(snap):
  """Whether anything was logged."""
  return any(True for _ in metrics(snap)) or any(True for _ in episodes(snap))


def last_frames(snap):
  """Frames of the last line of metrics.jsonl, 0 if there is none."""
  return max((entry['frames'] for _, entry in metrics(snap) if entry),
             default=0)
