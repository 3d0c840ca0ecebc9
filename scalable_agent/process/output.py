"""Prints on standard output, and goes on where that fails."""

import contextlib
import os
import sys


@contextlib.contextmanager
def whatever_happens():
  """Goes on where the disk below the output is full, or its reader is gone."""
  try:
    yield
  except BrokenPipeError:
    # Python would fail once more at its end, with what it could not write.
    with contextlib.suppress(OSError):
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  except OSError:
    pass


def say(line):
  """Prints a line at once."""
  with whatever_happens():
    print(line, flush=True)
