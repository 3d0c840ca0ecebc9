"""Keeps the last unrolls, packed, and counts what is drawn of them."""

import time

from scalable_agent.replay import packed_unrolls


class Ring:
  """The last unrolls by number, from 0; for one thread at a time.

  Attributes:
    numbers: A range, the numbers of those that are kept.
  """

  def __init__(self, capacity):
    """Initializes an empty ring.

    Args:
      capacity: Unrolls to keep, an int.
    """
    self._capacity = capacity
    # Pairs of a packed unroll and its bytes. Number i is at i modulo capacity.
    self._items = []
    self.numbers = range(0)
    self._num_bytes = 0
    self._reset_draws()

  def _reset_draws(self):
    self._since = time.monotonic()
    self._num_drawn = self._drawn_bytes = self._sum_of_ages = 0

  def append(self, packed):
    """Adds an unroll of `packed_unrolls.pack`, in the place of the oldest.

    Returns:
      The unroll whose place it took; None if there was room.
    """
    removed, removed_bytes = None, 0
    number, num_bytes = self.numbers.stop, packed_unrolls.size(packed)
    if number < self._capacity:
      self._items.append((packed, num_bytes))
    else:
      place = number % self._capacity
      removed, removed_bytes = self._items[place]
      self._items[place] = packed, num_bytes
    self._num_bytes += num_bytes - removed_bytes
    self.numbers = range(number + 1 - len(self._items), number + 1)
    return removed

  def draw(self, number):
    """Returns the packed unroll of a number, one of `numbers`."""
    packed, num_bytes = self._items[number % self._capacity]
    self._num_drawn += 1
    self._drawn_bytes += num_bytes
    self._sum_of_ages += self.numbers[-1] - number
    return packed

  def take_gauges(self):
    """Returns a dict of values to log, of draws those since the last call."""
    gauges = dict(
        replay_unrolls=len(self._items),
        replay_mb=self._num_bytes / 1e6,
        replay_mb_per_second=self._drawn_bytes / 1e6 / max(
            time.monotonic() - self._since, 1e-9),
        replay_age_mean=self._sum_of_ages / max(self._num_drawn, 1))
    self._reset_draws()
    return gauges
