"""A learner's link to the replay job that it shares with others."""

import collections
import contextlib
import threading
import time

from scalable_agent.remote import link as link_lib
from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import unroll_sender
from scalable_agent.remote import wire
from scalable_agent.shared_replay import protocol
from scalable_agent.unroll_messages import call_sizes
from scalable_agent.unroll_messages import unroll_message

# The number of this agent, a list of level names, and the `wire.Layout` of
# unrolls.
_About = collections.namedtuple('_About', 'agent levels unroll_layout')

# What a learner waits for that is ahead of others.
_PACE = ' to go on, since other learners have inserted less or have not begun'


class AgentLink:
  """Puts unrolls in, and brings those that are drawn.

  One thread may put in and draw; any thread may call `waits`, `take_gauges` and
  `close`. Whatever needs the replay job waits until it is there. An unroll is
  inserted once, though it is sent again when the connection breaks. A replay
  job that comes back as another process has lost what it kept.
  """

  def __init__(self, address, agreement, agent, name, batch_size, layout,
               security):
    """Initializes the link; connects when it is first used.

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
    self._make_layout = layout
    one_level = layout(1)
    self._link = link_lib.Link(
        address, protocol.SERVICE, link_lib.Ends('replay job', 'learner'),
        security,
        dict(agreement=agreement, agent=agent,
             name=name[-protocol.MAX_NAME:], batch_size=batch_size),
        self._read_hello, protocol.max_message_bytes(one_level))
    self._sender = unroll_sender.UnrollSender(
        self._link, 'Insert', self._encode,
        call_sizes.max_unrolls_per_call(one_level))
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
      link.Refused, link.Closed.
    """
    with self.waiting(_PACE):
      self._sender.put(unrolls, wait=False)

  def flush(self):
    """Waits until all that was put in has been inserted.

    Raises:
      link.Refused, link.Closed.
    """
    self._sender.put([])

  def _encode(self, connection, unrolls, first):
    about = connection.about
    return wire.join(
        about.unroll_layout.encode(unroll_message.of_unroll(
            unroll._replace(agent_state=()), connection.session, sequence,
            about.levels, stream=hash(unroll.stream)))
        for sequence, unroll in enumerate(unrolls, first)), len(unrolls)

  def send(self, method, make_messages):
    """Sends messages over the method's stream; opens one if need be.

    Args:
      method: Its name.
      make_messages: A function of the session's number that returns a list.

    Raises:
      link.Refused, link.Closed.
    """
    stream, connection = self._streams[method].get()
    for message in make_messages(connection.session):
      stream.send(message)

  def receive(self, method):
    """Returns what follows the `protocol.State` of the next answer, a view.

    Args:
      method: The name of the method to which messages were sent.

    Raises:
      stream.Broken: There will be no more answers to them.
      link.Refused, link.Closed.
    """
    state, rest = self.read(
        protocol.split, self._streams[method].stream.receive())
    with self._lock:
      self._state = state
    return rest

  def receive_unrolls(self, method):
    """Returns the `ActorOutput`s of the next answer, a list; as `receive`."""
    about = self._streams[method].connection.about
    return self.read(lambda answer: self._decode(answer, about),
                     self.receive(method))

  def read(self, read, answer):
    """Returns what a function reads in an answer.

    Raises:
      link.Refused: The function raised `wire.WireError`.
    """
    try:
      return read(answer)
    except wire.WireError as e:
      raise self.bad(e) from e

  def bad(self, what):
    """Returns a `link.Refused`; `what` says what is wrong with an answer."""
    return link_lib.Refused(
        f'The replay job at {self._link.address} sent a message that is not as '
        f'agreed on: {what}.')

  def _decode(self, answer, about):
    messages = (
        wire.decode_all(about.unroll_layout, answer) if len(answer) else [])
    with self._lock:
      self._num_drawn += len(messages)
      self._drawn_bytes += len(answer)
      for message in messages:
        self._sum_of_ages += self._state.num_inserted - int(message.sequence)
        self._num_of_others += int(message.session) != about.agent
    return [unroll_message.to_unroll(message, about.levels)
            for message in messages]

  @contextlib.contextmanager
  def waiting(self, what=''):
    """While the block lasts, `waits` says that the replay job is waited for.

    Args:
      what: What for, appended to that.
    """
    self._waiting = what, time.monotonic()
    try:
      yield
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
    return (f'waits for the replay job at {self._link.address}{what}',
            time.monotonic() - since)

  def is_held(self):
    """Whether the replay job is there, and holds this learner for others."""
    waiting = self._waiting
    return (waiting is not None and waiting[0] == _PACE and
            self._link.is_connected)

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
