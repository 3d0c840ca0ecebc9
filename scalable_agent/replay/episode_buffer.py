"""Keeps the last unrolls, and draws whole episodes from them."""

import collections
import random
import threading

from scalable_agent.replay import episode_index
from scalable_agent.replay import packed_unrolls
from scalable_agent.replay import ring as ring_lib

DrawnEpisode = collections.namedtuple(
    'DrawnEpisode', 'unrolls offset num_steps')
DrawnEpisode.__doc__ = """An episode of one environment.

  unrolls: A list of the packed unrolls that it is in, each of which begins with
    the last entry of the one before.
  offset: The entry of the first of them with which it begins.
  num_steps: Its length, an int.
"""


class EpisodeBuffer:
  """The last unrolls that were put in; for several threads."""

  def __init__(self, capacity, unroll_length, seed):
    """Initializes an empty buffer.

    Args:
      capacity: Unrolls to keep, an int. An episode is gone as soon as one of
        its unrolls is.
      unroll_length: T, of unrolls that are put in and of those to be cut out.
      seed: Of what is drawn, an int.
    """
    self._ring = ring_lib.Ring(capacity)
    self._index = episode_index.EpisodeIndex(unroll_length)
    self._random = random.Random(seed)
    self._lock = threading.Lock()

  def extend(self, unrolls):
    """Puts in `ActorOutput`s, a list, each with its `stream`."""
    for unroll in unrolls:
      # Core states are computed anew, see `replayer`.
      packed = packed_unrolls.pack(unroll._replace(agent_state=()))
      with self._lock:
        removed = self._ring.append(packed, packed_unrolls.size(packed))
        self._index.add(self._ring.numbers[-1], unroll,
                        self._ring.numbers.start,
                        [old.stream for old in removed])

  def draw(self, count):
    """Draws `DrawnEpisode`s uniformly and independently.

    Args:
      count: How many, an int.

    Returns:
      A list; an empty one if no episode is whole yet.
    """
    with self._lock:
      if not self._index.episodes:
        return []
      return [
          DrawnEpisode([self._ring.read(n) for n in episode.numbers],
                       episode.offset, episode.num_steps)
          for episode in self._random.choices(self._index.episodes, k=count)]

  def take_gauges(self):
    """Returns a dict of values to log, see `ring.Ring`."""
    with self._lock:
      return self._ring.take_gauges()

  def close(self):
    """There is nothing to close."""
