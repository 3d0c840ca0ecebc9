"""Finds the whole episodes in unrolls that come from many environments.

    unrolls of an environment      |0       |1       |2       |3       |
    an episode                          <--------------->
    what is cut out of it               |--------|--------|--------|

The last unroll that is cut out of an episode runs on into the next one: it ends
at that one's first entry, or later.
"""

import bisect
import collections

import numpy as np
import tree

# Sorted as tuples, the oldest come first.
EpisodeSpan = collections.namedtuple('EpisodeSpan', 'numbers offset num_steps')
EpisodeSpan.__doc__ = """Where an episode of one environment is.

  numbers: A tuple of the numbers of the unrolls that it is in, each of which
    begins with the last entry of the one before.
  offset: The entry of the first of them with which it begins.
  num_steps: Its length, an int.
"""


class EpisodeIndex:
  """The episodes that are whole in the last unrolls; for one thread at a time.

  Attributes:
    episodes: A list of `EpisodeSpan`s, the oldest first.
    streams: A dict of the `stream` of unrolls to their `_Stream`.
  """

  def __init__(self, unroll_length):
    """Initializes an empty index with T, the length of unrolls."""
    self._unroll_length = unroll_length
    self.episodes = []
    self.streams = {}

  def add(self, number, unroll, oldest, removed):
    """Takes note of an unroll.

    Args:
      number: Its number, one more than that of the last.
      unroll: An `ActorOutput`.
      oldest: The number of the oldest unroll that is kept now.
      removed: A list of the streams of unrolls that have made room for it.
    """
    for stream in removed:
      if stream in self.streams and self.streams[stream].numbers[-1] < oldest:
        del self.streams[stream]
    del self.episodes[:bisect.bisect_left(self.episodes, ((oldest,),))]
    stream = self.streams.get(unroll.stream)
    if stream is None or not stream.goes_on_with(unroll):
      stream = self.streams[unroll.stream] = _Stream(self._unroll_length)
    stream.add(number, unroll)
    for episode in stream.take_whole(oldest):
      bisect.insort(self.episodes, episode)


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
    # Where the unfinished episode begins, None if that was not seen.
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
    """Returns the episodes that have become whole since the last call.

    An episode is whole once the last unroll can be cut out of it.

    Args:
      oldest: The number of the oldest unroll that is kept.

    Returns:
      A list of `EpisodeSpan`s.
    """
    length = self._unroll_length
    while self.numbers[0] < oldest:
      del self.numbers[0]
      self._first += length
    episodes = []
    while self._ended:
      begin, end = self._ended[0]
      last_cut = begin + (end - 1 - begin) // length * length
      if last_cut + length > self._last:
        break
      self._ended.popleft()
      if begin < self._first:
        continue
      at, offset = divmod(begin - self._first, length)
      last_at = (last_cut + length - 1 - self._first) // length
      episodes.append(EpisodeSpan(
          tuple(self.numbers[at:last_at + 1]), int(offset), int(end - begin)))
    return episodes


def _entry(unroll, index):
  """Returns the arrays of an entry, a list."""
  return [a[index] for a in tree.flatten(
      (unroll.env_outputs, unroll.agent_outputs))]
