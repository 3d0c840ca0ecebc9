"""The actor job's end of a stream for inference at the learner."""

import queue as queue_lib

import grpc


class Broken(Exception):
  """A stream ended before its time; another may be opened."""


class Stream:
  """Sends steps and gets actions in turn, for one thread.

  The learner forgets what a stream has shown it when the stream ends.
  """

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
    """Sends a message, bytes, and returns the answer to it.

    Raises:
      Broken: There will be no answer, nor one to later messages.
      Exception: What `on_end` raised.
    """
    self._requests.put(message)
    try:
      answer = next(self._answers)
    except (grpc.RpcError, StopIteration) as e:
      self._requests.put(None)
      self._on_end(self._answers)
      raise Broken() from e
    self._on_answer()
    return answer
