"""Bounds the calls under way at a service: their number, and their memory.

A call whose peer is silent may be ended to make room for another. So nobody
keeps others out by opening many calls and leaving them.
"""

import asyncio
import collections
import contextlib
import json
import time
import urllib.parse

import grpc

# A call that waits takes memory, and no thread.
_MAX_CALLS = 4096
_MAX_STREAMS_PER_SESSION = 32
# How long a peer may be silent before its call may have to make room.
_PATIENCE_SECONDS = 1.
_SILENT_STREAM_SECONDS = 600.
_SILENT_CALL_SECONDS = 60.
# A call that was ended, and is not over after this time, has a peer that does
# not read.
_END_SECONDS = 5.


class Rejected(Exception):
  """A call is not served.

  Attributes:
    code: A `grpc.StatusCode`.
    details: Why, a line.
  """

  def __init__(self, code, details):
    super().__init__(details)
    self.code = code
    self.details = details


def bad(details):
  """Returns a `Rejected` for a message that is not what was agreed on."""
  return Rejected(grpc.StatusCode.INVALID_ARGUMENT, details)


def read_json(message):
  """Returns the dict in a message, bytes of JSON; raises `Rejected`."""
  try:
    value = json.loads(message)
    if isinstance(value, dict):
      return value
  except (ValueError, RecursionError):
    pass
  raise bad('expected a JSON object')


def is_int(value, low=0, high=2**64):
  """Whether a value that was read is an int from `low` to `high` - 1."""
  return (isinstance(value, int) and not isinstance(value, bool) and
          low <= value < high)


class Call:
  """A call under way.

  Within a `with` block the service works on it. At other times the service
  waits for the peer to send a message, or to read an answer.
  """

  def __init__(self, calls, context, max_silence):
    self.peer = context.peer()
    self.max_silence = max_silence
    self.num_bytes = 0
    self.session = None
    # Whether gRPC has an answer to send.
    self.is_writing = False
    # Why it is ended, a `Rejected`; None if it is not.
    self.end = None
    self.task = asyncio.current_task()
    self._calls = calls

  @property
  def address(self):
    """The peer's address as people write it: '[::1]:8000'."""
    return urllib.parse.unquote(self.peer).partition(':')[2]

  def __enter__(self):
    self._calls.silent.pop(self, None)

  def __exit__(self, *unused_args):
    if not self.end:
      self._calls.silent[self] = time.monotonic()

  @contextlib.contextmanager
  def writes(self, num_bytes):
    """Within the block gRPC has an answer of `num_bytes` to send.

    Raises:
      Rejected: There is no room for it, or the call was ended meanwhile.
    """
    self._calls.add_bytes(self, num_bytes)
    self.is_writing = True
    try:
      yield
    finally:
      self.is_writing = False
      self._calls.add_bytes(self, -num_bytes)
    if self.end:
      raise self.end

  def cancel(self, end):
    """Ends it with a `Rejected`, once gRPC has sent what it has to send."""
    self.end = end
    # gRPC sends no status while it sends an answer.
    if not self.is_writing:
      self.task.cancel()


class Calls:
  """The calls under way; for one thread.

  Attributes:
    max_bytes: How much memory all of them together may hold.
    silent: Maps a `Call` to the time since which its peer has been silent, the
      longest first.
  """

  def __init__(self, max_bytes, close_connection, owner):
    """Initializes an empty collection.

    Args:
      max_bytes: See above.
      close_connection: A function that takes gRPC's name of a peer, and closes
        its connection.
      owner: Whose service it is, for the details of a `Rejected`.
    """
    self._owner = owner
    self.max_bytes = max_bytes
    self._close_connection = close_connection
    self._num_bytes = 0
    self._all = set()
    self.silent = collections.OrderedDict()
    # Maps each `Call` that was ended, and is not over, to when it was ended.
    self._ended = collections.OrderedDict()

  def __len__(self):
    """The number of calls, without those that were ended."""
    return len(self._all)

  def begin(self, context, num_bytes, lasts):
    """Returns a new `Call`, which lasts until gRPC is done with it.

    Args:
      context: gRPC's, of the present task.
      num_bytes: How much memory it may hold.
      lasts: Whether there may be long pauses between its messages.

    Raises:
      Rejected: There is no room for it.
    """
    call = Call(self, context,
                _SILENT_STREAM_SECONDS if lasts else _SILENT_CALL_SECONDS)
    self._make_room(1, num_bytes)
    self._all.add(call)
    call.num_bytes = num_bytes
    self._num_bytes += num_bytes
    self.silent[call] = time.monotonic()
    call.task.add_done_callback(lambda unused_task: self._is_over(call))
    return call

  def add_bytes(self, call, num_bytes):
    """Notes that a call may hold `num_bytes` more.

    Raises:
      Rejected: There is no room for them.
    """
    needed = call.num_bytes + num_bytes
    if needed > self.max_bytes:
      raise Rejected(
          grpc.StatusCode.FAILED_PRECONDITION,
          f'it needs {needed / 1e9:.3g} GB of memory, and {self._owner} has '
          f'{self.max_bytes / 1e9:.3g} GB for all calls')
    self._make_room(0, num_bytes)
    call.num_bytes += num_bytes
    if call in self._all:
      self._num_bytes += num_bytes

  def _make_room(self, num_calls, num_bytes):
    """Ends silent calls, the longest silent first, as far as it has to.

    Raises:
      Rejected: Even without them there would be no room. None was ended.
    """
    calls_over = len(self._all) + num_calls - _MAX_CALLS
    bytes_over = self._num_bytes + num_bytes - self.max_bytes
    patient_until = time.monotonic() - _PATIENCE_SECONDS
    to_end = []
    for call, since in self.silent.items():
      if calls_over <= 0 >= bytes_over or since > patient_until:
        break
      to_end.append(call)
      calls_over -= 1
      bytes_over -= call.num_bytes
    if calls_over > 0 or bytes_over > 0:
      raise Rejected(grpc.StatusCode.UNAVAILABLE,
                     f'{self._owner} has no room for another call beside '
                     f'{len(self._all)}, which may hold '
                     f'{self._num_bytes / 1e9:.3g} GB')
    for call in to_end:
      self._end(call, f'{self._owner} needs the room for others')

  def join(self, call, session):
    """Notes that a call is a stream of a `sessions.Session`."""
    if call.session is session:
      return
    self._leave(call)
    if len(session.streams) >= _MAX_STREAMS_PER_SESSION:
      # A job whose connection broke opens new streams, and leaves the oldest.
      self._end(next(iter(session.streams)), 'there is a newer stream')
    session.streams[call] = None
    call.session = session

  def _leave(self, call):
    if call.session:
      call.session.streams.pop(call, None)

  def check(self):
    """Ends the calls whose peer was silent for too long."""
    now = time.monotonic()
    for call, since in list(self.silent.items()):
      if now - since > call.max_silence:
        self._end(call, f'nothing was heard for {call.max_silence:.0f} s')
    for call, since in list(self._ended.items()):
      if now - since > _END_SECONDS:
        self._ended[call] = now
        self._close_connection(call.peer)

  def end_all(self, end):
    """Ends the calls that wait for their peer, with a `Rejected`."""
    for call in list(self.silent):
      call.cancel(end)

  def _end(self, call, why):
    self._forget(call)
    self._ended[call] = time.monotonic()
    if call.is_writing:
      # gRPC drops an answer that nobody reads only with the connection.
      self._close_connection(call.peer)
    else:
      call.cancel(Rejected(grpc.StatusCode.UNAVAILABLE, why))

  def _forget(self, call):
    self._leave(call)
    self.silent.pop(call, None)
    if call in self._all:
      self._all.remove(call)
      self._num_bytes -= call.num_bytes

  def _is_over(self, call):
    self._forget(call)
    self._ended.pop(call, None)
