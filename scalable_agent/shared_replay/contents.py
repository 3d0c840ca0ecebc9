"""Keeps the last unrolls as they were sent, of all agents together."""

import itertools
import random
import sys

from scalable_agent import trajectories
from scalable_agent.remote import wire
from scalable_agent.replay import episode_index
from scalable_agent.replay import ring as ring_lib
from scalable_agent.shared_replay import protocol


class Contents:
  """The last unrolls of all agents; for one thread.

  It keeps the messages themselves, which are joined as they are to be sent.
  """

  def __init__(self, layout, capacity, max_bytes, seed, unroll_length=0):
    """Initializes an empty buffer.

    Args:
      layout: The `wire.Layout` of unrolls.
      capacity: Unrolls to keep, an int.
      max_bytes: Memory that they may take; fewer are kept if they take more.
      seed: Of the draws, an int.
      unroll_length: T, if episodes are to be drawn; 0 if not.
    """
    self._layout = layout
    self._ring = ring_lib.Ring(capacity, max_bytes)
    self._capacity = capacity
    self._random = random.Random(seed)
    self._index = (
        episode_index.EpisodeIndex(unroll_length) if unroll_length else None)

  @property
  def has_episodes(self):
    """Whether episodes are to be drawn."""
    return self._index is not None

  @property
  def state(self):
    """A `protocol.State`."""
    ring = self._ring
    return protocol.State(
        ring.numbers.stop, len(ring.numbers), ring.num_bytes)

  @property
  def lacks_memory(self):
    """Whether it keeps less than its capacity, because more would not fit."""
    numbers = self._ring.numbers
    return len(numbers) < min(numbers.stop, self._capacity)

  def insert(self, message, agent):
    """Puts in an unroll, in the place of the oldest.

    Args:
      message: Bytes, checked by the layout.
      agent: The number of the agent that acted.
    """
    number = self._ring.numbers.stop
    kept = bytearray(message)
    self._layout.overwrite(kept, dict(session=agent, sequence=number + 1))
    removed = self._ring.append(kept, sys.getsizeof(kept))
    if self.has_episodes:
      unroll = self._layout.decode(message)
      self._index.add(
          number, trajectories.ActorOutput(
              None, (), unroll.env_outputs, unroll.agent_outputs, None,
              stream=self._stream_of(kept)),
          self._ring.numbers.start, list(map(self._stream_of, removed)))

  def _stream_of(self, kept):
    """Returns the agent of a message, and its environment, a pair."""
    return tuple(int(self._layout.peek(kept, name))
                 for name in ('session', 'stream'))

  def draw(self, count, max_bytes):
    """Draws messages uniformly and independently; some have to be kept.

    Args:
      count: How many at the most.
      max_bytes: Of their lengths together. The first is returned even if it is
        longer.

    Returns:
      A list of one or more.
    """
    return self._take(
        (self._random.choice(self._ring.numbers) for _ in range(count)),
        max_bytes)

  def draw_episode(self):
    """Draws an `episode_index.EpisodeSpan` uniformly; None if there is none."""
    episodes = self._index.episodes
    return self._random.choice(episodes) if episodes else None

  def fetch(self, numbers, max_bytes):
    """Returns messages by number, up to the first that is gone.

    Args:
      numbers: A list of ints.
      max_bytes: As for `draw`.
    """
    return self._take(
        itertools.takewhile(self._ring.numbers.__contains__, numbers),
        max_bytes)

  def _take(self, numbers, max_bytes):
    messages, num_bytes = [], 0
    for number in numbers:
      messages.append(self._ring.read(number))
      num_bytes += wire.aligned(len(messages[-1]))
      # The next one may be as long.
      if num_bytes + wire.aligned(self._layout.num_bytes) > max_bytes:
        break
    return messages

  def take_gauges(self):
    """Returns a dict of values to log, see `ring.Ring`."""
    return self._ring.take_gauges()
