"""Sends unrolls over a stream, and again over another where it breaks.

It is a stream because each call of its own would cost more than a message.
"""

import collections
import contextlib

from scalable_agent.remote import stream as stream_lib

# Messages under way while the next is encoded.
_MAX_UNDER_WAY = 1


class UnrollSender:
  """Hands over unrolls in order, each of them once; for one thread.

  Attributes:
    num_dropped: The number of unrolls that `encode` has left out.
  """

  def __init__(self, link, method, encode, max_unrolls_per_message):
    """Initializes the sender; the first unroll opens the stream.

    Args:
      link: A `link.Link`.
      method: Name of the method that takes unrolls.
      encode: A function of a `link.Connection`, a list of unrolls, and the
        number of the first of them. It returns a message and how many of them
        are in it, without those that this service cannot use.
      max_unrolls_per_message: An int.
    """
    self._reopened = stream_lib.Reopened(link, method)
    self._encode = encode
    self._most = max_unrolls_per_message
    self._stream = None
    self._sequence = 0
    # Pairs of unrolls and the number of the first, oldest first.
    self._unanswered = collections.deque()
    # How many unrolls of each of these were sent over this stream so far.
    self._sent = collections.deque()
    self.num_dropped = 0

  def put(self, unrolls, wait=True):
    """Sends unrolls, and waits until the service has taken them.

    Args:
      unrolls: A list of `ActorOutput`s.
      wait: Whether to wait for the last message too. The next call does that if
        this one does not.

    Raises:
      Exception: What connecting raises, or the end of a stream besides
        `stream.Broken`.
    """
    for start in range(0, len(unrolls), self._most):
      part = unrolls[start:start + self._most]
      self._unanswered.append((part, self._sequence + 1))
      self._sequence += len(part)
      self._exchange(_MAX_UNDER_WAY)
    if wait:
      self._exchange(0)

  def _exchange(self, num_unanswered):
    """Sends all unrolls, and waits for all but `num_unanswered` answers."""
    while (len(self._sent) < len(self._unanswered) or
           len(self._unanswered) > num_unanswered):
      with contextlib.suppress(stream_lib.Broken):
        self._send()
        if len(self._unanswered) > num_unanswered:
          self._stream.receive()
          part, _ = self._unanswered.popleft()
          self.num_dropped += len(part) - self._sent.popleft()

  def _send(self):
    """Sends what was not sent over the present stream."""
    stream, connection = self._reopened.get()
    if stream is not self._stream:
      self._stream = stream
      self._sent.clear()
    while len(self._sent) < len(self._unanswered):
      part, first = self._unanswered[len(self._sent)]
      message, count = self._encode(connection, part, first)
      if count:
        stream.send(message)
        self._sent.append(count)
      else:
        del self._unanswered[len(self._sent)]
        self.num_dropped += len(part)
