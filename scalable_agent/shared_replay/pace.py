"""Keeps agents that share replay at the same speed.

The paper's agents "run concurrently at identical speed" (LASER, section 5.1).
So an agent that is more than two batches ahead of the slowest has to wait. An
agent that has died, or has inserted nothing for long, does not count, and holds
nobody up. One that comes begins at the position of the slowest. One that comes
back, even as another process, begins there too; if it was further ahead, it
keeps its position.

If the number of agents is known, all of them begin at position 0. Until the
last has come, one that has inserted more than two batches waits.
"""

import math

# Batches that an agent may be ahead of the slowest.
LEAD_BATCHES = 2


class Member:
  """An agent, as the pace sees it.

  Attributes:
    name: What to call it.
    number: Of the agent.
    lead: Unrolls that it may be ahead of the slowest.
    position: Unrolls that it has inserted, from where it began.
    inserted_time: When it last inserted, or was let go on, by `time.monotonic`.
    linked_time: When it last had a connection, likewise.
  """

  def __init__(self, number):
    """Initializes a member that has not begun; `join` comes next."""
    self.number = number
    self.position = 0
    self.inserted_time = -math.inf
    self.linked_time = -math.inf

  def join(self, name, batch_size):
    """Notes the process that trains the agent from now on.

    Args:
      name: See the class.
      batch_size: New unrolls in each of its batches.
    """
    self.name = name
    self.lead = LEAD_BATCHES * batch_size


class Pace:
  """Says who has to wait; for one thread."""

  def __init__(self, num_agents=0):
    """Initializes the pace of nobody.

    Args:
      num_agents: Agents that will come; 0 if that is unknown.
    """
    self._running = set()
    # The last known position of the slowest, for when nobody counts.
    self._last = 0
    self._num_agents = num_agents
    self._begun = set()

  def __len__(self):
    """The number of members that count."""
    return len(self._running)

  @property
  def num_awaited(self):
    """Agents that are still to begin, and hold up those that have."""
    return max(self._num_agents - len(self._begun), 0)

  def await_no_more(self):
    """From now on, nobody waits for agents that have not begun."""
    self._num_agents = 0

  def advance(self, member, count):
    """Notes that a `Member` has inserted `count` unrolls."""
    if member not in self._running:
      # While others are awaited, it begins at 0, as they will.
      if not self.num_awaited:
        slowest = self.slowest()
        member.position = max(
            member.position, slowest.position if slowest else self._last)
      self._running.add(member)
      self._begun.add(member)
    member.position += count

  def keep(self, members):
    """Stops counting all members but `members`; returns a list of the others.
    """
    slowest = self.slowest()
    if slowest:
      self._last = slowest.position
    gone = self._running.difference(members)
    self._running -= gone
    return list(gone)

  def slowest(self):
    """Returns the `Member` with the lowest position, None if nobody counts."""
    return min(self._running, key=lambda m: m.position, default=None)

  def may_go_on(self, member):
    """Whether a `Member` is not too far ahead."""
    slowest = self.slowest()
    if slowest is None:
      return True
    last = 0 if self.num_awaited else slowest.position
    return member.position - last <= member.lead
