"""Sends messages over a stream, and receives the answer to each."""

import queue as queue_lib
import threading

import grpc


class Broken(Exception):
  """A stream ended before its time; another may be opened."""


class Stream:
  """Messages and their answers, in order, for one thread."""

  def __init__(self, call, on_answer, on_end):
    """Initializes the stream.

    Args:
      call: A function of an iterator of messages that returns gRPC's call.
      on_answer: A function to call after each answer.
      on_end: A function of gRPC's call that says, or raises, what its end
        means.
    """
    self._requests = queue_lib.SimpleQueue()
    self._on_answer = on_answer
    self._on_end = on_end
    self._answers = call(iter(self._requests.get, None))

  def exchange(self, message):
    """Sends a message, bytes, and returns its answer; raises as `receive`."""
    self.send(message)
    return self.receive()

  def send(self, message):
    """Sends a message, bytes, without waiting."""
    self._requests.put(message)

  def receive(self):
    """Returns the answer to the oldest message that has none.

    Raises:
      Broken: There will be no answer, nor one to later messages.
      Exception: What `on_end` raised.
    """
    try:
      answer = next(self._answers)
    except (grpc.RpcError, StopIteration) as e:
      self.close()
      self._on_end(self._answers)
      raise Broken() from e
    self._on_answer()
    return answer

  def close(self):
    """Says that there will be no more messages."""
    self._requests.put(None)


class Caller:
  """Exchanges messages over a stream, and over another where it breaks.

  For several threads, which take turns.
  """

  def __init__(self, connect, open_stream):
    """Initializes the caller; the first call opens the stream.

    Args:
      connect: A function that returns what is known of the learner, the same
        object until it has been connected to again.
      open_stream: A function of that, which returns a `Stream` to it.
    """
    self._connect = connect
    self._open_stream = open_stream
    self._lock = threading.Lock()
    self._learner = None
    self._stream = None

  def call(self, make_message):
    """Sends a message until it is answered.

    Args:
      make_message: A function of what `connect` returned.

    Returns:
      A pair of the answer and what `connect` returned.

    Raises:
      Exception: What connecting raises, or the end of a stream besides
        `Broken`.
    """
    with self._lock:
      while True:
        learner = self._connect()
        if self._stream is None or learner is not self._learner:
          if self._stream:
            self._stream.close()
          self._stream = self._open_stream(learner)
          self._learner = learner
        try:
          return self._stream.exchange(make_message(learner)), learner
        except Broken:
          self._stream = None
