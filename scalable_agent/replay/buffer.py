"""Keeps the last unrolls in memory, and draws from them.

Draws are uniform (paper, Table D.3), and the oldest unrolls make room for new
ones. Stacks of frames are kept packed.
"""

import random
import threading

from scalable_agent.replay import packed_unrolls
from scalable_agent.replay import ring as ring_lib


class Buffer:
  """The last unrolls that were put in; for several threads."""

  def __init__(self, capacity, seed):
    """Initializes an empty buffer.

    Args:
      capacity: Unrolls to keep, an int.
      seed: Of what is drawn, an int.
    """
    self._ring = ring_lib.Ring(capacity)
    self._random = random.Random(seed)
    self._lock = threading.Lock()

  def extend(self, unrolls):
    """Puts in `ActorOutput`s, a list, in the place of the oldest."""
    for packed in map(packed_unrolls.pack, unrolls):
      with self._lock:
        self._ring.append(packed, packed_unrolls.size(packed))

  def sample(self, count):
    """Draws unrolls uniformly and independently.

    Args:
      count: How many, an int.

    Returns:
      A list; an empty one while the buffer is empty.
    """
    with self._lock:
      if not self._ring.numbers:
        return []
      drawn = [self._ring.read(number) for number in self._random.choices(
          self._ring.numbers, k=count)]
    return list(map(packed_unrolls.unpack, drawn))

  def take_gauges(self):
    """Returns a dict of values to log, see `ring.Ring`."""
    with self._lock:
      return self._ring.take_gauges()

  def close(self):
    """There is nothing to close."""
