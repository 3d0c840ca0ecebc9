"""Measures where the time goes: per stage of a loop, per call, in waiting."""

import contextlib
import functools
import threading
import time

# A thread beats after each sleep of the first. If a sleep took longer than the
# second, the process stood still.
_BEAT_SECONDS, _LONGEST_BEAT_SECONDS = 1., 10.


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


class Heartbeat:
  """Adds up for how long this process was stopped (SIGSTOP), as a job may be.
  """

  def __init__(self):
    self._lock = threading.Lock()
    self._last = time.monotonic()
    self._stood_still = 0.

  def beat(self):
    """Notes a beat, due every `_BEAT_SECONDS`; a long gap was a standstill."""
    with self._lock:
      now = time.monotonic()
      self._stood_still += self._excess(now)
      self._last = now

  def seconds(self):
    """Returns the seconds of all standstills so far."""
    with self._lock:
      # After a standstill, the caller may run before the thread that beats.
      return self._stood_still + self._excess(time.monotonic())

  def _excess(self, now):
    return max(now - self._last - _LONGEST_BEAT_SECONDS, 0.)


@functools.cache
def _heartbeat():
  """Returns the heartbeat of this process."""
  heartbeat = Heartbeat()
  never = threading.Event()

  def beat():
    while not never.wait(_BEAT_SECONDS):
      heartbeat.beat()

  threading.Thread(target=beat, name='heartbeat', daemon=True).start()
  return heartbeat


class Standstill:
  """Tells for how long this process was stopped since the last question."""

  def __init__(self):
    self._heartbeat = _heartbeat()
    self._known = self._heartbeat.seconds()

  def take(self):
    """Returns the seconds since the last call."""
    before, self._known = self._known, self._heartbeat.seconds()
    return self._known - before


class Waited:
  """For how long something is waited for, while this process runs.

  A process that is stopped for an hour (SIGSTOP) does not wait in that hour:
  whoever it waits for may have stood still as well.
  """

  def __init__(self):
    self.reset()

  def reset(self):
    """Begins anew: what was waited for has come."""
    self._since, self._standstill = time.monotonic(), Standstill()

  def seconds(self):
    """Returns the seconds so far."""
    self._since += self._standstill.take()
    return time.monotonic() - self._since
