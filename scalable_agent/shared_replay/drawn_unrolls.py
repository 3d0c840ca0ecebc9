"""Draws unrolls from the replay that agents share."""

import contextlib

from scalable_agent.remote import stream as stream_lib
from scalable_agent.shared_replay import protocol


class DrawnUnrolls:
  """In place of a `buffer.Buffer`; for the threads of an `AgentLink`.

  Its `extend`, `waits`, `is_held`, `take_gauges` and `close` are those of the
  link.
  """

  def __init__(self, link):
    """Initializes it with an `agent_link.AgentLink`."""
    self._link = link
    self.extend, self.waits = link.extend, link.waits
    self.is_held, self.close = link.is_held, link.close
    self.take_gauges = link.take_gauges

  def sample(self, count):
    """Draws `ActorOutput`s uniformly and independently.

    Args:
      count: How many, an int.

    Returns:
      A list; an empty one while the replay job has no unrolls, as after it was
      restarted.

    Raises:
      link.Refused, link.Closed.
    """
    with self._link.waiting():
      drawn = self._draw(count)
      if len(drawn) < count:
        # Unrolls under way may be the first, or may have to be sent again.
        self._link.flush()
        drawn += self._draw(count - len(drawn))
    return drawn if len(drawn) == count else []

  def _draw(self, count):
    """Returns `count` unrolls; fewer if the replay job says it has none."""
    drawn = []
    while len(drawn) < count:
      # If the stream breaks, those that have come are kept.
      with contextlib.suppress(stream_lib.Broken):
        self.request(count - len(drawn))
        while len(drawn) < count:
          some = self._link.receive_unrolls('Draw')
          if not some:
            return drawn
          if len(some) > count - len(drawn):
            raise self._link.bad(
                f'{len(some)} unrolls, expected {count - len(drawn)} or fewer')
          drawn += some
    return drawn

  def request(self, count):
    """Asks for unrolls, which `receive` then returns as they were sent."""
    self._link.send(
        'Draw', lambda session: [protocol.encode_draw(session, count)])

  def receive(self):
    """Returns the next unrolls as they were sent, a view.

    Raises:
      stream.Broken: There will be no more of what was asked for.
      link.Refused, link.Closed.
    """
    return self._link.receive('Draw')
