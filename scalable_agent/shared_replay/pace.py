"""Keeps agents that share replay at the same speed.

The paper's agents "run concurrently at identical speed" (LASER, section 5.1).
So whoever has inserted more than the slowest waits, but for a lead of two
batches. Only those count that are there: what has died, or has inserted nothing
for long, holds nobody up. Whoever comes begins where the slowest is. So does
whoever comes back, unless it was ahead of that: then it stays where it was. If
it is known how many agents there will be, all of them begin at the start: until
the last has come, nobody gets further from there than its lead.
"""

import math

# Batches that an agent may be ahead of the slowest.
LEAD_BATCHES = 2


class Member:
  """A learner, as the pace sees it.

  Attributes:
    name: What to call it.
    agent: The number of its agent.
    lead: Unrolls that it may be ahead of the slowest.
    position: Unrolls that it has inserted, from where it began.
    inserted_time: When it last did, or was let go on, by `time.monotonic`.
    linked_time: When it last had a connection, likewise.
  """

  def __init__(self, name, agent, batch_size):
    """Initializes a member that has not begun.

    Args:
      name: See the class.
      agent: See the class.
      batch_size: New unrolls in each of its batches.
    """
    self.name = name
    self.agent = agent
    self.lead = LEAD_BATCHES * batch_size
    self.position = 0
    self.inserted_time = -math.inf
    self.linked_time = -math.inf


class Pace:
  """Says who has to wait; for one thread."""

  def __init__(self, num_agents=0):
    """Initializes the pace of nobody.

    Args:
      num_agents: Agents that will come; 0 if nobody knows.
    """
    self._running = set()
    # Where the slowest was, if nobody counts now.
    self._last = 0
    self._num_agents = num_agents
    self._begun = set()  # Numbers of agents.

  def __len__(self):
    """How many count."""
    return len(self._running)

  @property
  def num_awaited(self):
    """Agents that are still to begin, and hold up those that have."""
    return max(self._num_agents - len(self._begun), 0)

  def await_no_more(self):
    """From now on, nobody waits for agents that have not begun."""
    self._num_agents = 0

  def advance(self, member, count):
    """Takes note that a `Member` has inserted so many unrolls."""
    if member not in self._running:
      # While others are awaited, it begins where they will: at 0.
      if not self.num_awaited:
        slowest = self.slowest()
        member.position = max(
            member.position, slowest.position if slowest else self._last)
      self._running.add(member)
      self._begun.add(member.agent)
    member.position += count

  def keep(self, members):
    """Stops counting members that are not in `members`; returns those, a list.
    """
    slowest = self.slowest()
    if slowest:
      self._last = slowest.position
    gone = self._running.difference(members)
    self._running -= gone
    return list(gone)

  def slowest(self):
    """Returns the `Member` that has inserted least, None if nobody counts."""
    return min(self._running, key=lambda m: m.position, default=None)

  def may_go_on(self, member):
    """Whether a `Member` is not too far ahead."""
    slowest = self.slowest()
    if slowest is None:
      return True
    last = 0 if self.num_awaited else slowest.position
    return member.position - last <= member.lead
