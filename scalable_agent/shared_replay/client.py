"""A learner's way to replay that it shares with others."""

import collections
import threading
import time

import numpy as np

from scalable_agent import trajectories
from scalable_agent.learner_service import protocol as learner_protocol
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import unroll_sender
from scalable_agent.remote import wire
from scalable_agent.replay import episode_buffer
from scalable_agent.replay import packed_unrolls
from scalable_agent.shared_replay import protocol

Refused = link_lib.Refused
Closed = link_lib.Closed

# The number of this agent, a list of level names, and the `wire.Layout` of
# unrolls.
_About = collections.namedtuple('_About', 'agent levels unroll_layout')


class Client:
  """In place of a `buffer.Buffer` or an `episode_buffer.EpisodeBuffer`.

  One thread may put in and draw; any thread may call the rest. Every call waits
  until the replay job is there, and is repeated when the connection breaks. An
  unroll is inserted once even so. A replay job that comes back as another
  process has lost what it kept.
  """

  def __init__(self, address, agreement, agent, name, batch_size, layout,
               security):
    """Initializes the client; connects with the first call.

    Args:
      address: 'host:port' of the replay job.
      agreement: Of `protocol.agreement`.
      agent: A string that no other agent has, the same when it comes back.
      name: What the replay job calls this learner in its log.
      batch_size: New unrolls in each of its batches.
      layout: A function of the number of levels that returns the `wire.Layout`
        of unrolls.
      security: A `security.Security`.
    """
    self._address = address
    self._make_layout = layout
    one_level = layout(1)
    self._link = link_lib.Link(
        address, protocol.SERVICE, link_lib.Ends('replay job', 'learner'),
        security,
        dict(agreement=agreement, agent=agent,
             name=name[-protocol.MAX_NAME:], batch_size=batch_size),
        self._read_hello, [], ['Insert', 'Draw', 'Episode', 'Fetch'],
        protocol.max_message_bytes(one_level))
    self._sender = unroll_sender.UnrollSender(
        self._link, 'Insert', self._encode,
        learner_protocol.max_unrolls_per_call(one_level))
    self._streams = {method: stream_lib.Reopened(self._link, method)
                     for method in ('Draw', 'Episode', 'Fetch')}
    # What is waited for, and since when; None for nothing.
    self._waiting = None
    self._lock = threading.Lock()  # Guards what follows.
    self._state = protocol.State(0, 0, 0)
    self._reset_draws()

  def _reset_draws(self):
    self._since = time.monotonic()
    self._num_drawn = self._drawn_bytes = 0
    self._sum_of_ages = self._num_of_others = 0

  def _read_hello(self, answer):
    levels = answer['levels']
    return _About(answer['agent'], levels, self._make_layout(len(levels)))

  def extend(self, unrolls):
    """Puts in `ActorOutput`s, a list.

    This waits while the agent is too far ahead of the slowest. When it returns,
    the last message may still be under way.

    Raises:
      Refused, Closed.
    """
    self._wait_for(' to go on, since other learners have inserted less',
                   lambda: self._sender.put(unrolls, wait=False))

  def _encode(self, connection, unrolls, first):
    about = connection.about
    return wire.join(
        about.unroll_layout.encode(learner_protocol.UnrollMessage(
            session=np.uint64(connection.session),
            sequence=np.int64(sequence),
            level=np.int32(about.levels.index(unroll.level_name)),
            policy_version=np.int64(unroll.policy_version),
            agent_state=(),
            env_outputs=unroll.env_outputs,
            agent_outputs=unroll.agent_outputs,
            stream=np.int64(hash(unroll.stream))))
        for sequence, unroll in enumerate(unrolls, first)), len(unrolls)

  def sample(self, count):
    """Draws `ActorOutput`s uniformly and independently.

    Args:
      count: How many, an int.

    Returns:
      A list; an empty one while the replay job has no unrolls, as after it was
      restarted.

    Raises:
      Refused, Closed.
    """
    return self._wait_for('', lambda: self._sample(count))

  def _sample(self, count):
    drawn = []
    has_put = False
    while len(drawn) < count:
      try:
        self.request(count - len(drawn))
        while len(drawn) < count:
          some = self._receive_unrolls('Draw')
          if len(some) > count - len(drawn):
            raise self._bad(
                f'{len(some)} unrolls, expected {count - len(drawn)} or fewer')
          drawn += some
          if not some:
            break
      except stream_lib.Broken:
        continue  # Those that have come are kept.
      if len(drawn) < count:
        if has_put:
          return []
        # Unrolls under way may be the first, or may have to be sent again.
        self._sender.put([])
        has_put = True
    return drawn

  def request(self, count):
    """Asks for unrolls, which `receive` then returns as they were sent."""
    self._send(
        'Draw', lambda session: [protocol.encode_draw(session, count)])

  def receive(self):
    """Returns the next message of unrolls, bytes, see `protocol.split`.

    Raises:
      stream_lib.Broken: There will be no more of what was asked for.
      Refused, Closed.
    """
    return self._receive('Draw')

  def draw(self, count):
    """Draws `DrawnEpisode`s uniformly and independently.

    Args:
      count: How many, an int.

    Returns:
      A list, of fewer if no episode is whole any more.

    Raises:
      Refused, Closed.
    """
    return self._wait_for(' for an episode', lambda: self._draw_episodes(count))

  def _draw_episodes(self, count):
    drawn = []
    while len(drawn) < count:
      try:
        # All are asked for before the first is waited for.
        wanted = count - len(drawn)
        self._send('Episode', lambda session: [
            protocol.encode_session(session)] * wanted)
        episodes = [
            self._read(protocol.decode_episode, self._receive('Episode'))
            for _ in range(wanted)]
        found = [episode for episode in episodes if episode]
        fetched = self._fetch([numbers for _, _, numbers in found])
        # If some of an episode are gone meanwhile, another is drawn.
        drawn += [
            episode_buffer.DrawnEpisode(unrolls, offset, num_steps)
            for (offset, num_steps, _), unrolls in zip(found, fetched)
            if unrolls is not None]
        if len(found) < wanted:
          break
      except stream_lib.Broken:
        pass
    return drawn

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
    self._send('Fetch', lambda session: [
        protocol.encode_fetch(session, part)
        for parts in messages for part in parts])
    return [self._receive_fetched(list(map(len, parts))) for parts in messages]

  def _receive_fetched(self, lengths):
    """Receives the unrolls of one episode.

    Args:
      lengths: How many unrolls each message asked for, a list.

    Returns:
      A list of packed unrolls; None if one of them is gone.
    """
    found, is_whole = [], True
    for left in lengths:
      while left:
        some = self._receive_unrolls('Fetch')
        if not some:
          is_whole = False
          break
        left -= len(some)
        if left < 0:
          raise self._bad(f'{-left} unrolls more than were asked for')
        found += map(packed_unrolls.pack, some)
    return found if is_whole else None

  def _send(self, method, make_messages):
    """Sends messages over the method's stream; opens one if need be.

    Args:
      method: Its name.
      make_messages: A function of the session's number that returns a list.
    """
    stream, connection = self._streams[method].get()
    for message in make_messages(connection.session):
      stream.send(message)

  def _receive(self, method):
    return self._streams[method].stream.receive()

  def _receive_unrolls(self, method):
    """Returns the `ActorOutput`s of the next answer, a list."""
    connection = self._streams[method].connection
    answer = self._receive(method)
    return self._read(lambda message: self._decode(message, connection), answer)

  def _read(self, read, answer):
    try:
      return read(answer)
    except wire.WireError as e:
      raise self._bad(e) from e

  def _bad(self, what):
    return Refused(f'The replay job at {self._address} sent a message that is '
                   f'not as agreed on: {what}.')

  def _decode(self, answer, connection):
    about = connection.about
    state, rest = protocol.split(answer)
    messages = (
        wire.decode_all(about.unroll_layout, rest) if len(rest) else [])
    with self._lock:
      self._state = state
      self._num_drawn += len(messages)
      self._drawn_bytes += len(rest)
      for message in messages:
        self._sum_of_ages += state.num_inserted - int(message.sequence)
        self._num_of_others += int(message.session) != about.agent
    return [
        trajectories.ActorOutput(
            level_name=about.levels[message.level], agent_state=(),
            env_outputs=message.env_outputs,
            agent_outputs=message.agent_outputs,
            policy_version=np.int64(message.policy_version),
            stream=(int(message.session), int(message.stream)))
        for message in messages]

  def _wait_for(self, what, act):
    self._waiting = what, time.monotonic()
    try:
      return act()
    finally:
      self._waiting = None

  def waits(self):
    """Says what is waited for and how long, a pair; None for nothing.

    Returns:
      A clause, of which this learner is the subject, and seconds.
    """
    waiting = self._waiting
    if waiting is None:
      return None
    what, since = waiting
    if not self._link.is_connected:
      what = ', which is out of reach'
    return (f'waits for the replay job at {self._address}{what}',
            time.monotonic() - since)

  def take_gauges(self):
    """Returns a dict of values to log; draws count since the last call.

    It has the gauges of `ring.Ring`, and `replay_others`: the share of the
    drawn unrolls that other agents have acted.
    """
    with self._lock:
      num_drawn = max(self._num_drawn, 1)
      gauges = dict(
          replay_unrolls=self._state.num_kept,
          replay_mb=self._state.num_bytes / 1e6,
          replay_mb_per_second=self._drawn_bytes / 1e6 / max(
              time.monotonic() - self._since, 1e-9),
          replay_age_mean=self._sum_of_ages / num_drawn,
          replay_others=self._num_of_others / num_drawn)
      self._reset_draws()
    return gauges

  def close(self):
    """Ends all calls; those under way, and later ones, raise `Closed`."""
    self._link.close()
