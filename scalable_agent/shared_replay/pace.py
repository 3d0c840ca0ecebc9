"""Keeps agents that share replay at the same speed.

The paper's agents "run concurrently at identical speed" (LASER, section 5.1).
So whoever has inserted more than the slowest waits, but for a lead of two
batches. Only those count that are there: what has died, or is silent for long,
holds nobody up. Whoever comes, or comes back, begins where the slowest is.
"""

# Batches that an agent may be ahead of the slowest.
LEAD_BATCHES = 2


class Member:
  """A learner, as the pace sees it.

  Attributes:
    name: What to call it.
    agent: The number of its agent.
    lead: Unrolls that it may be ahead of the slowest.
    position: Unrolls that it has inserted, from where it began.
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


class Pace:
  """Says who has to wait; for one thread."""

  def __init__(self):
    """Initializes the pace of nobody."""
    self._running = set()

  def __len__(self):
    """How many count."""
    return len(self._running)

  def advance(self, member, count):
    """Takes note that a `Member` has inserted so many unrolls."""
    if member not in self._running:
      slowest = self.slowest()
      if slowest:
        member.position = slowest.position
      self._running.add(member)
    member.position += count

  def keep(self, members):
    """From now on, only those of these count that did; a collection.

    Returns:
      A list of those that do not any more.
    """
    gone = self._running.difference(members)
    self._running -= gone
    return list(gone)

  def slowest(self):
    """Returns the `Member` that has inserted least, None if nobody counts."""
    return min(self._running, key=lambda m: m.position, default=None)

  def may_go_on(self, member):
    """Whether a `Member` is not too far ahead."""
    slowest = self.slowest()
    return (slowest is None or
            member.position - slowest.position <= member.lead)
