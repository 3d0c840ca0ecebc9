"""Says which actor jobs are gone, are back, or have the same task."""

import collections
import time

from absl import logging

# How many jobs a line names.
_MAX_NAMED = 10
# How many tasks that are gone are remembered, to say when they are back.
_MAX_GONE = 4096
# For this long, a job that was killed and started again may have two sessions.
_OVERLAP_SECONDS = 20.
_DOUBLE_SECONDS = 2 * _OVERLAP_SECONDS


class RollCall:
  """Compares the sessions of actor jobs with those of its last call."""

  def __init__(self, sessions, has_pools):
    """Initializes it for nobody.

    Args:
      sessions: A `sessions.Sessions` about `methods.Job`s.
      has_pools: Whether each pool of an actor job has a session of its own, so
        that several have the same task.
    """
    self._sessions = sessions
    self._has_pools = has_pools
    # Tasks that acted at the last call, and those that did before.
    self._acting = set()
    self._gone = set()
    # Maps a task that several sessions have to since when; None once told.
    self._double = {}

  def check(self):
    """Logs what has changed; to be called every second or so."""
    # Who has not started its environments may be silent for minutes.
    sessions = [session for session in self._sessions.recent()
                if session.about.acts]
    acting = {session.about.task for session in sessions}
    lost, back = self._acting - acting, self._gone & acting
    if lost:
      logging.warning(
          'Not heard of for a minute: actor %s. Others heard of: %d.',
          _names(lost), len(acting))
    if back:
      logging.info('Heard of again: actor %s.', _names(back))
    if len(self._gone) < _MAX_GONE:
      self._gone |= lost
    self._gone -= acting
    self._acting = acting
    if not self._has_pools:
      self._check_double(sessions)

  def _check_double(self, sessions):
    now = time.monotonic()
    counts = collections.Counter(
        session.about.task for session in sessions
        if session.was_heard_within(_OVERLAP_SECONDS))
    self._double = {
        task: self._double.get(task, now)
        for task, count in counts.items() if count > 1}
    told = {task for task, since in self._double.items()
            if since is not None and now - since >= _DOUBLE_SECONDS}
    if told:
      logging.warning(
          'Several actors have the same --task: %s. They play the same levels. '
          'Give each another one.', _names(told))
      self._double.update(dict.fromkeys(told))


def _names(tasks):
  """Returns text that names some of a set of tasks."""
  first = ', '.join(map(str, sorted(tasks)[:_MAX_NAMED]))
  more = len(tasks) - _MAX_NAMED
  return f'{first} and {more} more' if more > 0 else first
