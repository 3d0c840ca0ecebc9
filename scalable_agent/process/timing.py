"""Measures where the time goes: seconds per stage of a loop, or per call."""

import contextlib
import threading
import time


class StageTimes:
  """Adds up wall time by stage. Stages may be timed by several threads."""

  def __init__(self, annotate=contextlib.nullcontext):
    """Initializes the times.

    Args:
      annotate: A function of a stage's name that returns a context manager, in
        which the stage's block then runs.
    """
    self._annotate = annotate
    self._seconds = {}
    self._lock = threading.Lock()

  @contextlib.contextmanager
  def stage(self, name):
    """Adds the time spent in the `with` block to stage `name`."""
    start = time.perf_counter()
    try:
      with self._annotate(name):
        yield
    finally:
      elapsed = time.perf_counter() - start
      with self._lock:
        self._seconds[name] = self._seconds.get(name, 0.) + elapsed

  def take(self):
    """Returns seconds by stage since the last take."""
    with self._lock:
      seconds, self._seconds = self._seconds, {}
    return seconds


class MeanTime:
  """The mean wall time of something that several threads do."""

  def __init__(self):
    self._seconds = 0.
    self._count = 0
    self._lock = threading.Lock()

  @contextlib.contextmanager
  def measure(self):
    """Counts the `with` block in, unless it raises."""
    start = time.perf_counter()
    yield
    elapsed = time.perf_counter() - start
    with self._lock:
      self._seconds += elapsed
      self._count += 1

  def take(self):
    """Returns the mean in seconds since the last take, NaN of nothing."""
    with self._lock:
      seconds, self._seconds = self._seconds, 0.
      count, self._count = self._count, 0
    return seconds / count if count else float('nan')
