"""The methods of a replay job's service: what each of them checks and does."""

import asyncio
import collections
import math
import time

from absl import logging
import grpc

from scalable_agent.files import file_names
from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import sessions as sessions_lib
from scalable_agent.remote import wire
from scalable_agent.shared_replay import pace as pace_lib
from scalable_agent.shared_replay import protocol
from scalable_agent.unroll_messages import agreements
from scalable_agent.unroll_messages import call_sizes

Offer = collections.namedtuple('Offer', 'agreement levels layout num_agents')
Offer.__doc__ = """What a replay job has for learners.

  agreement: Of `protocol.agreement`.
  levels: A list of level names that agents may play.
  layout: The `wire.Layout` of unrolls.
  num_agents: Agents that will come, which begin together; 0 if that is unknown.
"""

Rejected, bad, is_int = calls_lib.Rejected, calls_lib.bad, calls_lib.is_int

# Agents that are remembered while they are away.
_MAX_AGENTS = 1 << 16
# How long an agent is awaited after the last one that has begun.
PATIENCE_SECONDS = 60.
# How long an agent that has begun counts while it inserts nothing.
_SILENT_SECONDS = 60.
# How long an agent counts while it has no connection. A lost connection comes
# back within that; a process that has died seldom does.
_AWAY_SECONDS = 10.
# How long a learner has to wait before that is logged, and how often it is.
_LONG_SECONDS = 10.
_LOG_SECONDS = 60.


def _read(read, message):
  """Returns what a function reads in a message; refuses what it cannot."""
  try:
    return read(message)
  except wire.WireError as e:
    raise bad(str(e)) from e


class Methods:
  """Answers calls; all of it in the event loop's thread.

  Each method takes a `calls.Call` and a message, and returns its answer, or the
  parts of it, see `server.each`.

  Attributes:
    sessions: A `sessions.Sessions`, each about a `pace.Member`.
    num_inserted_bytes: Of messages that were inserted.
  """

  def __init__(self, offer, contents, calls):
    """Initializes the methods.

    Args:
      offer: An `Offer`.
      contents: A `contents.Contents`.
      calls: A `calls.Calls`.
    """
    self.sessions = sessions_lib.Sessions(protocol.US, 'learners')
    self.num_inserted_bytes = 0
    self._offer = offer
    self._contents = contents
    self._calls = calls
    # Maps what an agent calls itself to its `Member`.
    self._agents = collections.OrderedDict()
    self._num_agents = 0
    self._pace = pace_lib.Pace(offer.num_agents)
    # When the last of those that were awaited began; infinite before the first.
    self._begun_time = math.inf
    self._is_closing = False
    # When something happens that calls wait for, this is set, and replaced.
    self._news = asyncio.Event()
    # Maps each `Call` that waits for slower learners to its member and to when
    # it began. A member may have several: it sends again what was lost, and the
    # old call ends later.
    self._held = {}
    self._logged_time = -_LOG_SECONDS

  @property
  def num_learners(self):
    """Learners whose pace counts."""
    return len(self._pace)

  def end(self):
    """From now on nothing is served; returns the `Rejected` that says so."""
    self._is_closing = True
    self._tell()
    return self._stopping()

  def _stopping(self):
    return Rejected(grpc.StatusCode.UNAVAILABLE, 'the replay job is stopping')

  def _tell(self):
    """Wakes those that wait for something to happen."""
    news, self._news = self._news, asyncio.Event()
    news.set()

  async def _wait(self):
    """Waits until something happens."""
    await self._news.wait()
    if self._is_closing:
      raise self._stopping()

  def _join(self, call, number):
    """Returns the session of a number, to which the call belongs from now on.
    """
    session = self.sessions.find(number)
    if session is None:
      raise Rejected(grpc.StatusCode.NOT_FOUND, 'no such session')
    if self._is_closing:
      raise self._stopping()
    self._calls.join(call, session)
    session.about.linked_time = time.monotonic()
    return session

  # -- Hello -------------------------------------------------------------------

  async def hello(self, call, message):
    """Makes a session, or finds one again; answers what a learner has to know.
    """
    request = calls_lib.read_json(message)
    if self._is_closing:
      raise self._stopping()
    difference = agreements.difference(
        self._offer.agreement, request.get('agreement'), protocol.US,
        protocol.THEM)
    if difference:
      raise Rejected(grpc.StatusCode.FAILED_PRECONDITION, difference)
    agent, name = request.get('agent'), request.get('name')
    batch_size = request.get('batch_size')
    if not (all(isinstance(text, str) and len(text) <= protocol.MAX_NAME
                for text in (agent, name)) and
            is_int(batch_size, 1, protocol.MAX_BATCH + 1)):
      raise bad('expected an agent, a name and the size of batches')
    member, name = self._member_of(agent), agreements.quote(name)
    self._warn_of_two(member, name)
    member.join(name, batch_size)
    answer, is_new = self.sessions.welcome(
        request, member, levels=self._offer.levels, agent=member.number)
    if is_new:
      logging.info('Learner %s has joined, from %s', member.name, call.address)
    return answer

  def _warn_of_two(self, member, name):
    """Says it if another process of an agent is there while one comes."""
    if any(session.about is member and session.streams
           for session in self.sessions.recent()) and member.name != name:
      logging.warning(
          'Learners %s and %s are one agent to this job. If one log directory '
          'is a copy of the other, remove %s in the copy while it does not '
          'train.', member.name, name, file_names.REPLAY_AGENT)

  def _member_of(self, agent):
    """Returns the `Member` of an agent, the same one when it comes back."""
    if agent not in self._agents:
      self._num_agents += 1
      self._agents[agent] = pace_lib.Member(self._num_agents)
      if len(self._agents) > _MAX_AGENTS:
        self._agents.popitem(last=False)
    self._agents.move_to_end(agent)
    return self._agents[agent]

  # -- Insert ------------------------------------------------------------------

  async def insert(self, call, message):
    """Puts unrolls in; answers b'' when the learner may go on."""
    unrolls = _read(self._check_unrolls, message)
    session = self._join(call, unrolls[0][0])
    with session:
      member = session.about
      new = [unroll for _, sequence, unroll in unrolls
             if sequence > session.sequence]
      for unroll in new:
        self._contents.insert(unroll, member.number)
        self.num_inserted_bytes += len(unroll)
      session.sequence = max(session.sequence, unrolls[-1][1])
      num_awaited = self._pace.num_awaited
      self._pace.advance(member, len(new))
      member.inserted_time = time.monotonic()
      if self._pace.num_awaited < num_awaited:
        self._begun_time = time.monotonic()
      self._tell()
      await self._hold(call, member)
      member.inserted_time = time.monotonic()
    return b''

  def _check_unrolls(self, message):
    """Returns a list of session, sequence and unroll, all of one session."""
    layout, unrolls = self._offer.layout, []
    for unroll in wire.split(layout, message):
      layout.check(unroll)
      unrolls.append((int(layout.peek(unroll, 'session')),
                      int(layout.peek(unroll, 'sequence')), unroll))
    sessions, sequences, _ = zip(*unrolls)
    if len(set(sessions)) > 1:
      raise wire.WireError('the unrolls are not of one session')
    if any(b <= a for a, b in zip(sequences, sequences[1:])):
      raise wire.WireError('the unrolls are not in order')
    return unrolls

  async def _hold(self, call, member):
    """Waits until a member is not too far ahead of the others."""
    if self._pace.may_go_on(member):
      return
    self._held[call] = member, time.monotonic()
    try:
      while not self._pace.may_go_on(member):
        await self._wait()
    finally:
      del self._held[call]

  # -- Draw --------------------------------------------------------------------

  async def draw(self, call, message):
    """Draws unrolls; answers several messages of them, or an empty one."""
    number, count = _read(protocol.decode_draw, message)
    session = self._join(call, number)
    while count:
      with session:
        state = self._contents.state
        # Nobody waits for the first unroll, which this learner may have.
        drawn = (self._contents.draw(count, call_sizes.MAX_CALL_BYTES)
                 if state.num_kept else [])
        count = count - len(drawn) if drawn else 0
        reply = protocol.join(state, drawn)
      yield reply

  async def episode(self, call, message):
    """Draws an episode; answers which unrolls it is in, if there is one."""
    session = self._join(call, _read(protocol.decode_session, message))
    with session:
      return protocol.join(self._contents.state, [
          protocol.encode_episode(self._contents.draw_episode())])

  async def fetch(self, call, message):
    """Answers unrolls by number; the last message is empty if one is gone."""
    number, numbers = _read(protocol.decode_fetch, message)
    session = self._join(call, number)
    start = 0
    while start < len(numbers):
      with session:
        found = self._contents.fetch(numbers[start:], call_sizes.MAX_CALL_BYTES)
        start = start + len(found) if found else len(numbers)
        reply = protocol.join(self._contents.state, found)
      yield reply

  # -- Now and then ------------------------------------------------------------

  def check(self):
    """Drops members that are gone or insert nothing, and logs long waits.

    Learners that wait for those members go on. So do learners that wait for
    agents which have not begun in time.
    """
    self.sessions.expire()
    now = time.monotonic()
    recent = self.sessions.recent()
    for session in recent:
      if session.streams:
        session.about.linked_time = now
    present = {session.about for session in recent
               if now - session.about.linked_time < _AWAY_SECONDS}
    held = {member for member, _ in self._held.values()}
    # A waiting member is trying to insert; a silent one may only be drawing.
    for member in self._pace.keep([
        member for member in present if member in held or
        now - member.inserted_time < _SILENT_SECONDS]):
      logging.info('Learner %s is gone or inserts nothing, the others go on '
                   'without it.', member.name)
    num_awaited = self._pace.num_awaited
    if num_awaited and now - self._begun_time >= PATIENCE_SECONDS:
      self._pace.await_no_more()
      logging.info(
          '%d of --replay_agents have not begun to insert, the others go on '
          'without them.', num_awaited)
    self._tell()
    waiting = {member for member, since in self._held.values()
               if now - since >= _LONG_SECONDS}
    slowest = self._pace.slowest()
    if waiting and slowest and now - self._logged_time >= _LOG_SECONDS:
      self._logged_time = now
      if self._pace.num_awaited:
        logging.info(
            '%d of %d learners wait, since %d of --replay_agents have not '
            'begun to insert.', len(waiting), len(self._pace),
            self._pace.num_awaited)
        return
      logging.info(
          '%d of %d learners wait, since learner %s has inserted fewer unrolls '
          'by %d.', len(waiting), len(self._pace), slowest.name,
          max(m.position for m in waiting) - slowest.position)
