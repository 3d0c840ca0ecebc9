"""Experience replay (paper, section 5.2.2 and Table D.3).

    TrajectoryQueue -> ReplayedQueue -> StagingArea
                         |      ^
                       extend sample
                         v      |
                          buffer

A share of every batch is drawn from a buffer of the unrolls that were trained
on. V-trace corrects for the policies that they were generated with.
"""

import numpy as np

from scalable_agent import trajectories


class ReplayedQueue:
  """A source whose batches mix new unrolls with earlier ones.

  One thread at a time may call `get`.
  """

  def __init__(self, source, buffer, num_replayed, train_on_new=True):
    """Initializes the source.

    Args:
      source: Where new unrolls come from, such as a `TrajectoryQueue`.
      buffer: Has the methods of a `buffer.Buffer`; others may use it too.
      num_replayed: How many of those that `get` returns are replayed.
      train_on_new: Whether the new ones are in the batch. If not, all of it is
        replayed.
    """
    self._source = source
    self._buffer = buffer
    self._num_replayed = num_replayed
    self._train_on_new = train_on_new

  def get(self, count):
    """Returns new unrolls, the oldest first, and after them replayed ones.

    What is new may be drawn too; at first there is nothing else. While the
    buffer has nothing to draw, all are new.

    Args:
      count: How many in all, an int larger than `num_replayed`.

    Returns:
      A `Batch` with a list of `count` unrolls.

    Raises:
      Closed: The source is closed, or was while waiting.
    """
    num_new = count - self._num_replayed
    new = self._take(num_new)
    in_batch = new if self._train_on_new else []
    drawn = self._buffer.sample(count - len(in_batch))
    if not drawn:
      while len(new) < count:
        new += self._take(min(num_new, count - len(new)))
      return trajectories.new_batch(new)
    batch = trajectories.new_batch(in_batch + drawn)
    batch.is_replayed[len(in_batch):] = True
    kept = [] if self._train_on_new else new
    return batch._replace(kept_versions=np.array(
        [unroll.policy_version for unroll in kept], np.int64))

  def _take(self, count):
    """Takes new unrolls, which the buffer then has too."""
    unrolls = self._source.get(count).unrolls
    self._buffer.extend(unrolls)
    return unrolls

  def publish(self, weights):
    """Gives the buffer the newest weights, which a `Replayer` needs."""
    self._buffer.publish(weights)

  def take_gauges(self):
    """Returns a dict of values to log, see the buffer."""
    return self._buffer.take_gauges()

  def close(self):
    """Closes the source and the buffer, for whoever waits for either."""
    self._source.close()
    self._buffer.close()
