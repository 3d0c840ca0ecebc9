"""Sends messages over a stream, and receives the answer to each."""

import contextlib
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
      on_end: A function to call with gRPC's call once that has ended. It may
        raise what this means.
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


class Reopened:
  """The stream of a method over the present connection of a link.

  When the stream breaks the connection is lost too. Another stream is then
  opened over the next connection. For one thread.

  Attributes:
    stream: A `Stream`, None before the first.
    connection: The `link.Connection` that the stream is of.
  """

  def __init__(self, link, method):
    """Initializes it; the first `get` opens the stream.

    Args:
      link: A `link.Link`.
      method: The method's name.
    """
    self.stream = None
    self.connection = None
    self._link = link
    self._method = method

  def get(self):
    """Returns a `Stream` to send over, and its `link.Connection`.

    Raises:
      Exception: What `link.Link.connect` raises.
    """
    connection = self._link.connect()
    if connection is not self.connection:
      if self.stream:
        self.stream.close()
      self.stream = self._link.open_stream(self._method, connection)
      self.connection = connection
    return self.stream, connection


class Caller:
  """Exchanges messages over a stream, and over another where it breaks.

  For several threads, which take turns.
  """

  def __init__(self, link, method):
    """Initializes the caller with the arguments of `Reopened`."""
    self._reopened = Reopened(link, method)
    self._lock = threading.Lock()

  def call(self, make_message):
    """Sends a message until it is answered.

    Args:
      make_message: A function of a `link.Connection`.

    Returns:
      A pair of the answer and the connection that it came over.

    Raises:
      Exception: What connecting raises, or the end of a stream besides
        `Broken`.
    """
    with self._lock:
      while True:
        stream, connection = self._reopened.get()
        with contextlib.suppress(Broken):
          return stream.exchange(make_message(connection)), connection
