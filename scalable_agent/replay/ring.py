"""Keeps the last unrolls, and counts what is drawn of them."""

import math
import time


class Ring:
  """The last unrolls by number, from 0; for one thread at a time.

  Attributes:
    numbers: A range, the numbers of those that are kept.
    num_bytes: How much memory these take.
  """

  def __init__(self, capacity, max_bytes=math.inf):
    """Initializes an empty ring.

    Args:
      capacity: Unrolls to keep, an int.
      max_bytes: What they may take; then fewer are kept, but always the last.
    """
    self._capacity = capacity
    self._max_bytes = max_bytes
    # Pairs of an unroll and its bytes. Number i is at i modulo capacity; None
    # where there is none any more.
    self._items = []
    self.numbers = range(0)
    self.num_bytes = 0
    self._reset_draws()

  def _reset_draws(self):
    self._since = time.monotonic()
    self._num_drawn = self._drawn_bytes = self._sum_of_ages = 0

  def append(self, unroll, num_bytes):
    """Adds an unroll, in the place of the oldest.

    Args:
      unroll: Anything but None.
      num_bytes: How much memory it takes.

    Returns:
      A list of the unrolls that had to make room, the oldest first.
    """
    first, number = self.numbers.start, self.numbers.stop
    removed = []
    while first < number and (
        number - first >= self._capacity or
        self.num_bytes + num_bytes > self._max_bytes):
      place = first % self._capacity
      old, old_bytes = self._items[place]
      self._items[place] = None
      self.num_bytes -= old_bytes
      removed.append(old)
      first += 1
    if number < self._capacity:
      self._items.append(None)
    self._items[number % self._capacity] = unroll, num_bytes
    self.num_bytes += num_bytes
    self.numbers = range(first, number + 1)
    return removed

  def read(self, number):
    """Returns the unroll of one of `numbers`, and counts it as drawn."""
    unroll, num_bytes = self._items[number % self._capacity]
    self._num_drawn += 1
    self._drawn_bytes += num_bytes
    self._sum_of_ages += self.numbers[-1] - number
    return unroll

  def take_gauges(self):
    """Returns a dict of values to log, of draws those since the last call."""
    gauges = dict(
        replay_unrolls=len(self.numbers),
        replay_mb=self.num_bytes / 1e6,
        replay_mb_per_second=self._drawn_bytes / 1e6 / max(
            time.monotonic() - self._since, 1e-9),
        replay_age_mean=self._sum_of_ages / max(self._num_drawn, 1))
    self._reset_draws()
    return gauges
