"""Keeps what a service knows of each job that calls it: its session."""

import collections
import json
import secrets
import threading
import time

import grpc

from scalable_agent.remote import calls as calls_lib

_MAX_SESSIONS = 4096
# Sessions that ended, and whose sequence numbers are kept.
_MAX_PAST = 65536
_RECENT_SECONDS = 60.
_EXPIRY_SECONDS = 600.


class Session:
  """A process that calls the service; a `with` block is one of its calls.

  Attributes:
    about: What the service knows of who said hello.
    sequence: Number of the last unroll that was taken, 0 for none.
    episode_sequence: Number of the last report of episodes, likewise.
    streams: A dict with its streams, oldest first, as keys.
  """

  __slots__ = ('about', 'sequence', 'episode_sequence', 'streams', '_calls',
               '_seen')

  def __init__(self, about, sequence=0, episode_sequence=0):
    self.about = about
    self.sequence = sequence
    self.episode_sequence = episode_sequence
    self.streams = {}
    self._calls = 0
    self._seen = time.monotonic()

  def __enter__(self):
    self._calls += 1
    return self

  def __exit__(self, *unused_args):
    self._calls -= 1
    self._seen = time.monotonic()

  @property
  def has_call(self):
    """Whether it has a call, such as one that waits."""
    return self._calls > 0

  def was_heard_within(self, seconds):
    """Whether it has a call, or had one within the last `seconds`."""
    return self.has_call or time.monotonic() - self._seen < seconds


class Sessions:
  """The sessions of one life of a service, by number; for several threads.

  Attributes:
    run: Names this life of the service, a string.
  """

  def __init__(self, owner, callers, capacity=_MAX_SESSIONS):
    """Initializes an empty collection.

    Args:
      owner: Whose service it is, for the details of a `calls.Rejected`.
      callers: What the jobs that call it are called, likewise.
      capacity: How many sessions there may be. Another one then takes the place
        of the one that is unused for longest.
    """
    self.run = secrets.token_hex(8)
    self._full = f'{owner} has as many {callers} as it can serve'
    self._capacity = capacity
    self._sessions = collections.OrderedDict()
    # Maps the number of a session that ended to its sequence numbers, so that
    # nothing is taken twice from a job that comes back.
    self._past = collections.OrderedDict()
    self._lock = threading.Lock()

  def number_in(self, hello):
    """Returns the number of the session that a Hello names.

    Args:
      hello: The dict that was sent.

    Returns:
      None if it names no session, or one of another life of the service.
    """
    number = hello.get('session')
    is_ours = hello.get('run') == self.run and calls_lib.is_int(number)
    return number if is_ours else None

  def welcome(self, hello, about, **facts):
    """Finds the session again that a Hello names, or else makes one.

    Args:
      hello: The dict that was sent.
      about: For a session that is made or revived.
      **facts: What the answer says besides the session.

    Returns:
      A pair of the answer, bytes, and whether the session is new.

    Raises:
      calls.Rejected: There are too many, and all have calls.
    """
    number = self.number_in(hello)
    is_new = not self.find_again(number, about)
    if is_new:
      number = self.add(about)
      if number is None:
        raise calls_lib.Rejected(grpc.StatusCode.UNAVAILABLE, self._full)
    answer = dict(facts, run=self.run, session=number)
    return json.dumps(answer).encode(), is_new

  def add(self, about):
    """Makes a session; returns its number, which nobody can guess.

    Returns None if there are too many, and all have calls.
    """
    with self._lock:
      if len(self._sessions) >= self._capacity and not self._end_oldest():
        return None
      number = secrets.randbits(63)
      self._sessions[number] = Session(about)
    return number

  def find_again(self, number, about):
    """Revives a session if it has ended; returns whether it is there now.

    A session from which nothing was taken is not revived.

    Args:
      number: As `add` returned it, or None.
      about: For a session that is revived.
    """
    if self.find(number):
      return True
    with self._lock:
      past = self._past.get(number)
      if past is None or (
          len(self._sessions) >= self._capacity and not self._end_oldest()):
        return False
      # The session that made way may have pushed it out.
      self._past.pop(number, None)
      self._sessions[number] = Session(about, *past)
    return True

  def find(self, number):
    """Returns the `Session` of a number, None if there is none."""
    with self._lock:
      session = self._sessions.get(number)
      if session:
        self._sessions.move_to_end(number)
      return session

  def _end_oldest(self):
    for number, session in self._sessions.items():
      if not session.has_call:
        self._end(number)
        return True
    return False

  def _end(self, number):
    session = self._sessions.pop(number)
    if session.sequence or session.episode_sequence:
      self._past[number] = session.sequence, session.episode_sequence
      if len(self._past) > _MAX_PAST:
        self._past.popitem(last=False)

  def expire(self):
    """Ends the sessions that were not heard of for ten minutes."""
    with self._lock:
      for number in [
          number for number, session in self._sessions.items()
          if not session.was_heard_within(_EXPIRY_SECONDS)]:
        self._end(number)

  def recent(self):
    """Returns a list of those that were heard of within the last minute."""
    with self._lock:
      sessions = list(self._sessions.values())
    return [session for session in sessions
            if session.was_heard_within(_RECENT_SECONDS)]
