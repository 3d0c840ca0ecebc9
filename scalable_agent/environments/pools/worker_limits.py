"""Limits how long a worker may take to answer, and how often one may be lost.
"""

import collections
import time

from scalable_agent.process import timing

# How often a worker may be replaced within the window.
_MAXIMUM_LOSSES = 5
_LOSS_WINDOW_SECONDS = 3600.
# A limit may be infinite, which no system call takes.
_LONGEST_WAIT_SECONDS = 60.


class WorkerLimits:
  """The limits of the workers of one pool."""

  def __init__(self, step_timeout_seconds, start_timeout_seconds):
    """Begins to count the time; see `ProcessPool` for the arguments."""
    self._step_timeout = step_timeout_seconds
    self._start_timeout = start_timeout_seconds
    self._loss_times = collections.defaultdict(collections.deque)
    self._standstill = timing.Standstill()
    # Nothing is stuck before that time of the monotonic clock.
    self._next_check = time.monotonic() + min(
        step_timeout_seconds, start_timeout_seconds)

  def seconds_left(self, workers):
    """Returns for how long to wait for messages; 0 if `find_stuck` is due.

    Args:
      workers: A list of `WorkerProcess`. If this process was stopped, they may
        have been as well, and so their time limits are postponed.
    """
    standstill = self._standstill.take()
    if standstill:
      self._next_check += standstill
      for worker in workers:
        worker.owes_since += standstill
    left = self._next_check - time.monotonic()
    return max(0., min(left, _LONGEST_WAIT_SECONDS))

  def find_stuck(self, workers):
    """Returns those of a list of workers that owe an answer for too long."""
    now = time.monotonic()
    self._next_check = now + self._step_timeout
    stuck = []
    for worker in workers:
      if not worker.num_owed:
        continue
      due = worker.owes_since + self.timeout_of(worker)[0]
      if due > now:
        self._next_check = min(self._next_check, due)
      else:
        stuck.append(worker)
    return stuck

  def timeout_of(self, worker):
    """Returns the time limit of an answer in seconds, and the flag it is from.
    """
    if worker.has_begun or worker.is_successor:
      return self._step_timeout, '--environment_timeout_secs'
    return self._start_timeout, '--environment_start_timeout_secs'

  def note_loss(self, worker):
    """Takes note that a worker is lost.

    Args:
      worker: The worker; losses of its predecessors count as well.

    Returns:
      None, or if there are too many a text, as '6 losses within 5 s'.
    """
    now = time.monotonic()
    times = self._loss_times[worker.ids]
    while times and times[0] < now - _LOSS_WINDOW_SECONDS:
      times.popleft()
    if len(times) >= _MAXIMUM_LOSSES:
      return f'{len(times) + 1} losses within {now - times[0]:g} s'
    times.append(now)
    return None
