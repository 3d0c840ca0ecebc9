"""Keeps track of which environments are ready, and which await an action."""

import collections


class Readiness:
  """What the environments of a pool are at, by their ids.

  Each is ready, or awaits an action, or is being stepped or made. Where one is
  made anew, the old one may have been handed out: its action is still to come,
  and not meant for the new one.

  Attributes:
    awaiting: A list that says which were handed out, and await an action.
  """

  def __init__(self, num_environments):
    """Begins with environments that are being made."""
    # A call is mostly about one or two environments. Its process has slept, so
    # that the caches are cold, and Python's lists touch less than NumPy does.
    self.awaiting = [False] * num_environments
    self._num_awaiting = 0
    # Those whose outputs wait to be handed out, the oldest first.
    self._ready = collections.deque()
    # Those that are being made anew.
    self._new = set()
    # New ones for which the old one's action is still to come; and those of
    # them that have their first output.
    self._owing = set()
    self._early = set()

  def all_await(self):
    """Whether all await an action."""
    return self._num_awaiting == len(self.awaiting)

  def is_due(self, minimum):
    """Whether `minimum` are ready, or some are and no other is waited for.

    Those that are being made anew are not waited for.
    """
    num_ready = len(self._ready)
    if num_ready >= minimum:
      return True
    num_absent = sum(not self.awaiting[i] for i in self._new)
    num_known = num_ready + self._num_awaiting + num_absent
    return num_ready > 0 and num_known == len(self.awaiting)

  def hand_out(self, maximum):
    """Returns a list of up to `maximum` that are ready; they await an action.
    """
    ids = [self._ready.popleft() for _ in range(min(maximum, len(self._ready)))]
    for i in ids:
      self.awaiting[i] = True
    self._num_awaiting += len(ids)
    return ids

  def take_actions(self, ids):
    """Takes note of actions for a list of environments that await them.

    Returns:
      A list of those that are to be stepped.
    """
    for i in ids:
      self.awaiting[i] = False
    self._num_awaiting -= len(ids)
    if not self._owing:
      return ids
    self._ready.extend(i for i in ids if i in self._early)
    self._early.difference_update(ids)
    others = [i for i in ids if i not in self._owing]
    self._owing.difference_update(ids)
    return others

  def add(self, ids):
    """Adds a list of environments that have their first or next output."""
    self._new.difference_update(ids)
    if self._owing:
      self._early.update(self._owing.intersection(ids))
      ids = [i for i in ids if i not in self._owing]
    self._ready.extend(ids)

  def make_anew(self, ids):
    """Forgets the outputs of a range of environments, which are made anew."""
    self._new.update(ids)
    self._ready = collections.deque(i for i in self._ready if i not in ids)
    self._owing.update(i for i in ids if self.awaiting[i])
    self._early.difference_update(ids)
