"""Sends messages over a stream, and receives the answer to each."""

import queue as queue_lib

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
