"""Experience replay (paper, section 5.2.2 and Table D.3).

    TrajectoryQueue -> ReplayedQueue -> StagingArea
                         |      ^
                       extend sample
                         v      |
                          buffer

A share of every batch is drawn from a buffer of unrolls, the new ones among
them. V-trace corrects for the policies that they were generated with.
"""

import threading

from absl import logging
import numpy as np

from scalable_agent import trajectories
from scalable_agent.replay import finite

# After so many batches in a row without a replayed unroll, a warning says so.
_MANY_BATCHES = 1000


class ReplayedQueue:
  """A source whose batches mix new unrolls with earlier ones.

  One thread at a time may call `get`.
  """

  def __init__(self, source, buffer, num_replayed, train_on_new=True,
               publish=lambda unused_weights: None):
    """Initializes the source.

    Args:
      source: Where new unrolls come from, such as a `TrajectoryQueue`.
      buffer: Has the methods of a `buffer.Buffer`, such as a `Replayer`; others
        may use it too.
      num_replayed: How many of those that `get` returns are replayed.
      train_on_new: Whether the new ones are in the batch. If not, all of it is
        replayed.
      publish: What gives the newest weights to the buffer, if it needs them: a
        function of a dict of name to tensor.
    """
    self._source = source
    self._buffer = buffer
    self._num_replayed = num_replayed
    self._train_on_new = train_on_new
    self._publish = publish
    self._filter = finite.FiniteFilter()
    self._num_batches_without = 0
    self._has_warned = False
    self._lock = threading.Lock()  # Guards what follows.
    self._reset_counts()

  def _reset_counts(self):
    self._num_unrolls = self._num_drawn = 0

  def get(self, count):
    """Returns new unrolls, the oldest first, and after them replayed ones.

    What is new may be drawn too; at first there is nothing else. While the
    buffer has nothing to draw, all are new. Unrolls with values that are not
    finite are only ever new.

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
    self._count(count, len(drawn))
    if not drawn:
      while len(new) < count:
        new += self._take(min(num_new, count - len(new)))
      return trajectories.new_batch(new)
    batch = trajectories.new_batch(in_batch + drawn)
    batch.is_replayed[len(in_batch):] = True
    kept = [] if self._train_on_new else new
    return batch._replace(kept_versions=np.array(
        [unroll.policy_version for unroll in kept], np.int64))

  def _count(self, num_unrolls, num_drawn):
    """Takes note of a batch; warns, once, if replay has had no part in many."""
    with self._lock:
      self._num_unrolls += num_unrolls
      self._num_drawn += num_drawn
    if num_drawn:
      self._num_batches_without = 0
      return
    self._num_batches_without += 1
    if self._num_batches_without >= _MANY_BATCHES and not self._has_warned:
      self._has_warned = True
      logging.warning(
          'Of the last %d batches nothing was replayed, since there was nothing '
          'to draw: all unrolls were new. Unrolls with values that are not '
          'finite are not replayed. With --replay_state=recomputed only whole '
          'episodes are. If they are longer than the buffer, raise '
          '--replay_capacity; where replay is not shared, '
          '--replay_state=stored does without whole episodes.',
          _MANY_BATCHES)

  def _take(self, count):
    """Takes new unrolls, and puts those that are finite into the buffer."""
    unrolls = self._source.get(count).unrolls
    self._buffer.extend(list(filter(self._filter.passes, unrolls)))
    return unrolls

  def publish(self, weights):
    """Takes the newest weights, a dict of name to tensor."""
    self._publish(weights)

  def update(self, keys, priorities):
    """Does nothing: draws are uniform."""

  def filling(self):
    """Returns None: while the buffer is empty, batches are new unrolls."""

  def take_gauges(self):
    """Returns a dict of values to log, since the last call.

    They are those of the source and the buffer, and `replayed_share`, the share
    of the unrolls in batches that were replayed.
    """
    with self._lock:
      share = self._num_drawn / max(self._num_unrolls, 1)
      self._reset_counts()
    return dict(self._source.take_gauges(), **self._buffer.take_gauges(),
                replayed_share=share)

  def close(self):
    """Closes the source and the buffer, for whoever waits for either."""
    self._source.close()
    self._buffer.close()
