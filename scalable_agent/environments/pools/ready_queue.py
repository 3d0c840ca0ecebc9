"""Keeps the environments of a pool that are ready, in order."""

import collections

import numpy as np


class ReadyQueue:
  """The ids of environments whose outputs wait to be handed out."""

  def __init__(self):
    self._chunks = collections.deque()  # Of (time, ids).
    self._size = 0

  def __len__(self):
    return self._size

  @property
  def since(self):
    """The time that was given with the first of them."""
    return self._chunks[0][0]

  def add(self, time, ids):
    """Adds environments.

    Args:
      time: When they became ready.
      ids: int32 [K], not empty.
    """
    self._chunks.append((time, ids))
    self._size += len(ids)

  def take(self, maximum):
    """Removes what has been ready the longest.

    Args:
      maximum: How many to remove at the most.

    Returns:
      Their ids, int32 [K]. The caller owns them.
    """
    taken, room = [], maximum
    while self._chunks and room:
      time, ids = self._chunks.popleft()
      if len(ids) > room:
        self._chunks.appendleft((time, ids[room:]))
        ids = ids[:room]
      taken.append(ids)
      room -= len(ids)
    ids = np.concatenate(taken)
    self._size -= len(ids)
    return ids

  def remove(self, ids):
    """Removes those of some environments, int [K], that are in it."""
    left = [(time, chunk[~np.isin(chunk, ids)]) for time, chunk in self._chunks]
    self._chunks = collections.deque(
        (time, chunk) for time, chunk in left if len(chunk))
    self._size = sum(len(chunk) for _, chunk in self._chunks)
