"""Takes the unrolls of actor jobs into the learner's queue."""

import asyncio

from scalable_agent import staging
from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import unroll_message


class UnrollIntake:
  """Puts unrolls in the order in which they came, one message at a time.

  The other messages wait undecoded, since decoded they may be four times as
  large. The event loop's thread puts what there is room for. The rest waits for
  room in another thread, and no more than one does.
  """

  def __init__(self, offer, server, check_open, end):
    """Initializes the intake.

    Args:
      offer: A `methods.Offer`.
      server: A `server.Server`.
      check_open: A function of a `sessions.Session` that raises `end` of it if
        nothing is served any more.
      end: A function of a session that returns the `calls.Rejected` for it.
    """
    self._offer = offer
    self._server = server
    self._check_open = check_open
    self._end = end
    self._turn = asyncio.Lock()

  async def put(self, message, session, snapshot):
    """Puts the unrolls of a message, and waits until there was room for all.

    Args:
      message: Bytes.
      session: The `sessions.Session` whose they are.
      snapshot: The newest `methods.Snapshot`, None for none.

    Raises:
      wire.WireError, calls.Rejected.
    """
    await self._turn.acquire()
    rest = None
    try:
      self._check_open(session)
      rest = self._put(self._decode(message, snapshot), session, wait=False)
    finally:
      if not rest:
        self._turn.release()
    if rest:
      # This goes on if the connection ends, so that nothing is lost.
      task = asyncio.create_task(self._put_rest(rest, session))
      # Otherwise asyncio would report an error that nobody waits for.
      task.add_done_callback(lambda task: task.cancelled() or task.exception())
      await asyncio.shield(task)

  def _decode(self, message, snapshot):
    """Returns a list of pairs: an `ActorOutput` and its sequence number."""
    unrolls = wire.decode_all(self._offer.unroll_layout, message)
    if len({int(unroll.session) for unroll in unrolls}) > 1:
      raise calls_lib.bad('the unrolls are not of one session')
    newest = max(int(unroll.policy_version) for unroll in unrolls)
    if snapshot and newest > snapshot.version:
      raise calls_lib.bad(
          f'policy_version is {newest}, and the newest is {snapshot.version}')
    return [(unroll_message.to_unroll(unroll, self._offer.levels),
             int(unroll.sequence)) for unroll in unrolls]

  def _put(self, unrolls, session, wait):
    """Puts unrolls into the queue, without those that were put before.

    Args:
      unrolls: Of `_decode`.
      session: Whose they are.
      wait: As for `put_unroll` of the `Offer`.

    Returns:
      A list of those that there is no room for yet.
    """
    for i, (unroll, sequence) in enumerate(unrolls):
      if sequence <= session.sequence:
        continue
      try:
        if not self._offer.put_unroll(unroll, wait):
          return unrolls[i:]
      except staging.Closed as e:
        raise self._end(session) from e
      session.sequence = sequence
    return []

  async def _put_rest(self, unrolls, session):
    """Puts unrolls as there is room for them, then gives up the turn."""
    try:
      with session:
        await self._server.threads.call(self._put, unrolls, session, True)
    finally:
      self._turn.release()
