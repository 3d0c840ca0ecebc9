"""Keeps what a learner knows of each actor job: its session."""

import collections
import secrets
import threading
import time

_MAX_SESSIONS = 65536
_RECENT_SECONDS = 60.


class Session:
  """A life of an actor job; within a `with` block, a call of its.

  Attributes:
    levels: A list of level names, one for each of its environments.
    lock: To hold while `sequence` or `episode_sequence` is compared or set.
    sequence: Number of the last unroll that was taken, 0 for none.
    episode_sequence: Number of the last report of episodes, likewise.
    told: Whether the actor was told that training is done.
  """

  def __init__(self, levels):
    self.levels = levels
    self.lock = threading.Lock()
    self.sequence = 0
    self.episode_sequence = 0
    self.told = False
    self._calls = 0
    self._calls_lock = threading.Lock()
    self._seen = time.monotonic()

  def __enter__(self):
    with self._calls_lock:
      self._calls += 1
    return self

  def __exit__(self, *unused_args):
    with self._calls_lock:
      self._calls -= 1
      self._seen = time.monotonic()

  @property
  def is_recent(self):
    """Whether it has a call, such as one that waits, or had one lately."""
    return self._calls > 0 or time.monotonic() - self._seen < _RECENT_SECONDS


class Sessions:
  """The sessions of one life of a learner, by number; for several threads."""

  def __init__(self, capacity=_MAX_SESSIONS):
    """Initializes an empty collection; `capacity` drops the longest unused."""
    self._capacity = capacity
    self._sessions = collections.OrderedDict()
    self._lock = threading.Lock()

  def add(self, levels):
    """Makes a session; returns its number, which nobody can guess."""
    number = secrets.randbits(63)
    with self._lock:
      self._sessions[number] = Session(levels)
      if len(self._sessions) > self._capacity:
        self._sessions.popitem(last=False)
    return number

  def find(self, number):
    """Returns the `Session` of a number, None if there is none."""
    with self._lock:
      session = self._sessions.get(number)
      if session:
        self._sessions.move_to_end(number)
      return session

  def recent(self):
    """Returns a list of those that were heard of within the last minute."""
    with self._lock:
      sessions = list(self._sessions.values())
    return [session for session in sessions if session.is_recent]
