"""Keeps the environments of a pool that are ready, in order."""

import collections


class ReadyQueue:
  """The ids of environments whose outputs wait to be handed out."""

  def __init__(self):
    self._entries = collections.deque()  # Of (time, id).

  def __len__(self):
    return len(self._entries)

  @property
  def since(self):
    """The time that was given with the first of them."""
    return self._entries[0][0]

  def add(self, time, ids):
    """Adds environments.

    Args:
      time: When they became ready.
      ids: Ints.
    """
    for i in ids:
      self._entries.append((time, i))

  def take(self, maximum):
    """Removes what has been ready the longest.

    Args:
      maximum: How many to remove at the most.

    Returns:
      A list of their ids.
    """
    entries = self._entries
    return [entries.popleft()[1] for _ in range(min(maximum, len(entries)))]

  def remove(self, ids):
    """Removes those of some environments, a collection, that are in it."""
    self._entries = collections.deque(
        entry for entry in self._entries if entry[1] not in ids)
