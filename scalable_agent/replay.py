"""Experience replay (paper, section 5.2.2 and Table D.3).

    TrajectoryQueue -> ReplayedQueue -> StagingArea

A share of every batch is drawn uniformly from the last unrolls that were
trained on, which are removed first in, first out. V-trace corrects for the
policies that they were generated with.
"""

import collections
import random


class ReplayedQueue:
  """A trajectory queue whose unrolls come mixed with earlier ones.

  One thread at a time may use it.
  """

  def __init__(self, queue, capacity, num_replayed, seed):
    """Initializes the queue with an empty buffer.

    Args:
      queue: The `TrajectoryQueue` with new unrolls.
      capacity: Unrolls to keep, an int. Each keeps its arrays in memory.
      num_replayed: How many of those that `get_many` returns are replayed.
      seed: Of what is drawn, an int.
    """
    self._queue = queue
    self._num_replayed = num_replayed
    self._buffer = collections.deque(maxlen=capacity)
    self._random = random.Random(seed)

  def get_many(self, count):
    """Returns new unrolls, the oldest first, and after them replayed ones.

    What is new may be drawn too; at first, there is nothing else.

    Args:
      count: How many in all, an int larger than `num_replayed`.

    Raises:
      Closed: The queue is closed, or was while waiting.
    """
    new = self._queue.get_many(count - self._num_replayed)
    self._buffer.extend(new)
    return new + self._random.choices(self._buffer, k=self._num_replayed)

  def close(self):
    """Closes the queue."""
    self._queue.close()
