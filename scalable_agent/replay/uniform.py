"""Experience replay (paper, section 5.2.2 and Table D.3).

    TrajectoryQueue -> UniformReplay -> StagingArea

A share of every batch is drawn uniformly from the last unrolls that were
trained on, which are removed first in, first out. V-trace corrects for the
policies that they were generated with.
"""

import collections
import random

from scalable_agent import trajectories


class UniformReplay:
  """A source whose batches mix new unrolls with earlier ones.

  One thread at a time may call `get`.
  """

  def __init__(self, source, capacity, num_replayed, seed):
    """Initializes the source with an empty buffer.

    Args:
      source: Where new unrolls come from, such as a `TrajectoryQueue`.
      capacity: Unrolls to keep, an int. Each keeps its arrays in memory.
      num_replayed: How many of those that `get` returns are replayed.
      seed: Of what is drawn, an int.
    """
    self._source = source
    self._num_replayed = num_replayed
    self._buffer = collections.deque(maxlen=capacity)
    self._random = random.Random(seed)

  def get(self, count):
    """Returns new unrolls, the oldest first, and after them replayed ones.

    What is new may be drawn too. At first there is nothing else.

    Args:
      count: How many in all, an int larger than `num_replayed`.

    Returns:
      A `Batch` with a list of `count` unrolls.

    Raises:
      Closed: The source is closed, or was while waiting.
    """
    new = self._source.get(count - self._num_replayed).unrolls
    self._buffer.extend(new)
    batch = trajectories.new_batch(
        new + self._random.choices(self._buffer, k=self._num_replayed))
    batch.is_replayed[len(new):] = True
    return batch

  def close(self):
    """Closes the source."""
    self._source.close()
