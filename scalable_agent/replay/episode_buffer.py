"""Keeps the last unrolls, and finds the whole episodes in them.

    unrolls of an environment      |0       |1       |2       |3       |
    an episode                          <--------------->
    what is cut out of it               |--------|--------|--------|

The last unroll that is cut out of an episode goes on in the next one.
"""

import bisect
import collections
import random
import threading

import numpy as np
import tree

from scalable_agent.replay import packed_unrolls
from scalable_agent.replay import ring as ring_lib

# In this order, the oldest are the first.
_Episode = collections.namedtuple('_Episode', 'numbers offset num_steps')

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
    self._unroll_length = unroll_length
    self._random = random.Random(seed)
    self._lock = threading.Lock()
    self._streams = {}
    self._episodes = []

  def extend(self, unrolls):
    """Puts in `ActorOutput`s, a list, each with its `stream`."""
    for unroll in unrolls:
      # Nobody wants the core state.
      packed = packed_unrolls.pack(unroll._replace(agent_state=()))
      with self._lock:
        removed = self._ring.append(packed)
        oldest = self._ring.numbers.start
        if removed and self._streams[removed.stream].numbers[-1] < oldest:
          del self._streams[removed.stream]
        del self._episodes[:bisect.bisect_left(self._episodes, ((oldest,),))]
        for episode in self._follow(unroll).take_whole(oldest):
          bisect.insort(self._episodes, episode)

  def _follow(self, unroll):
    """Adds the newest unroll to the `_Stream` of its environment."""
    stream = self._streams.get(unroll.stream)
    if stream is None or not stream.goes_on_with(unroll):
      stream = self._streams[unroll.stream] = _Stream(self._unroll_length)
    stream.add(self._ring.numbers[-1], unroll)
    return stream

  def draw(self):
    """Draws a `DrawnEpisode` uniformly; None if no episode is whole yet."""
    with self._lock:
      if not self._episodes:
        return None
      episode = self._random.choice(self._episodes)
      return DrawnEpisode([self._ring.draw(n) for n in episode.numbers],
                          episode.offset, episode.num_steps)

  def take_gauges(self):
    """Returns a dict of values to log, see `ring.Ring`."""
    with self._lock:
      return self._ring.take_gauges()


class _Stream:
  """Unrolls of an environment without a gap.

  Entries are counted from the first entry of the first unroll; the last entry
  of an unroll is the first of the next.

  Attributes:
    numbers: A list of the unrolls' numbers.
  """

  def __init__(self, unroll_length):
    self.numbers = []
    self._unroll_length = unroll_length
    # The first entry of the unrolls in `numbers`, and the last.
    self._first = self._last = 0
    # Pairs: where an episode begins, and where the next does.
    self._ended = collections.deque()
    # Where the episode begins that goes on, None if that was not seen.
    self._begun = None
    self._last_entry = []

  def goes_on_with(self, unroll):
    """Whether an unroll begins with the last entry of the one before."""
    return [a.tobytes() for a in _entry(unroll, 0)] == self._last_entry

  def add(self, number, unroll):
    """Adds an unroll that goes on with the others."""
    # Entry 0 was seen before, unless it is the first of all.
    begins = np.flatnonzero(unroll.env_outputs.done)
    for entry in begins[begins > 0] if self.numbers else begins:
      if self._begun is not None:
        self._ended.append((self._begun, self._last + entry))
      self._begun = self._last + entry
    self.numbers.append(number)
    self._last += self._unroll_length
    self._last_entry = [a.tobytes() for a in _entry(unroll, -1)]

  def take_whole(self, oldest):
    """Returns the `_Episode`s that can be cut to the end since the last call.

    Args:
      oldest: The number of the oldest unroll that is kept.
    """
    length = self._unroll_length
    while self.numbers[0] < oldest:
      del self.numbers[0]
      self._first += length
    episodes = []
    while self._ended and self._ended[0][1] - 1 + length <= self._last:
      begin, end = self._ended.popleft()
      if begin < self._first:
        continue
      at, offset = divmod(begin - self._first, length)
      last_cut = begin + (end - 1 - begin) // length * length
      last_at = (last_cut + length - 1 - self._first) // length
      episodes.append(_Episode(
          tuple(self.numbers[at:last_at + 1]), int(offset), int(end - begin)))
    return episodes


def _entry(unroll, index):
  """Returns the arrays of an entry, a list."""
  return [a[index] for a in tree.flatten(
      (unroll.env_outputs, unroll.agent_outputs))]
