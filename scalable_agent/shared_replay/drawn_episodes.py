"""Draws whole episodes from the replay that agents share."""

import contextlib

from scalable_agent.remote import stream as stream_lib
from scalable_agent.replay import episode_buffer
from scalable_agent.replay import packed_unrolls
from scalable_agent.shared_replay import protocol


class DrawnEpisodes:
  """In place of an `episode_buffer.EpisodeBuffer`; else as `DrawnUnrolls`."""

  def __init__(self, link, unroll_length):
    """Initializes it with an `agent_link.AgentLink` and T, of unrolls."""
    self._link = link
    self._unroll_length = unroll_length
    self.extend, self.waits = link.extend, link.waits
    self.is_held, self.close = link.is_held, link.close
    self.take_gauges = link.take_gauges

  def draw(self, count):
    """Draws `DrawnEpisode`s uniformly and independently.

    Args:
      count: How many, an int.

    Returns:
      A list, of fewer if no episode is whole any more.

    Raises:
      link.Refused, link.Closed.
    """
    drawn = []
    with self._link.waiting(' for an episode'):
      while len(drawn) < count:
        with contextlib.suppress(stream_lib.Broken):
          wanted = count - len(drawn)
          found = self._find(wanted)
          fetched = self._fetch([numbers for _, _, numbers in found])
          # If some of an episode are gone meanwhile, another is drawn.
          drawn += [
              episode_buffer.DrawnEpisode(unrolls, offset, num_steps)
              for (offset, num_steps, _), unrolls in zip(found, fetched)
              if unrolls is not None]
          if len(found) < wanted:
            break
    return drawn

  def _find(self, count):
    """Draws offset, steps and numbers of episodes; fewer if there are none."""
    # All are asked for before the first is waited for.
    self._link.send('Episode', lambda session: [
        protocol.encode_session(session)] * count)
    read = lambda answer: protocol.decode_episode(answer, self._unroll_length)
    found = [self._link.read(read, self._link.receive('Episode'))
             for _ in range(count)]
    return [episode for episode in found if episode]

  def _fetch(self, episodes):
    """Fetches unrolls by number.

    Args:
      episodes: A list of lists of numbers.

    Returns:
      For each a list of packed unrolls; None if one of them is gone.
    """
    most = protocol.MAX_FETCHED
    messages = [[numbers[start:start + most]
                 for start in range(0, len(numbers), most)]
                for numbers in episodes]
    self._link.send('Fetch', lambda session: [
        protocol.encode_fetch(session, part)
        for parts in messages for part in parts])
    return [self._receive(list(map(len, parts))) for parts in messages]

  def _receive(self, lengths):
    """Receives the unrolls of one episode.

    Args:
      lengths: How many unrolls each message asked for, a list.

    Returns:
      A list of packed unrolls; None if one of them is gone.
    """
    found, is_whole = [], True
    for left in lengths:
      while left:
        some = self._link.receive_unrolls('Fetch')
        if not some:
          is_whole = False
          break
        left -= len(some)
        if left < 0:
          raise self._link.bad(f'{-left} unrolls more than were asked for')
        found += map(packed_unrolls.pack, some)
    return found if is_whole else None
