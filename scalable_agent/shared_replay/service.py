"""Serves the learners that share replay."""

import asyncio
import time

from scalable_agent.remote import server as server_lib
from scalable_agent.shared_replay import methods as methods_lib
from scalable_agent.shared_replay import protocol

ServiceError = server_lib.ServiceError
Offer = methods_lib.Offer

# The share of the machine's memory that calls may hold. What is kept for replay
# may take eight tenths.
_MEMORY_SHARE = .1


class Service:
  """Keeps unrolls for learners until it is closed.

  Calls are answered by a thread of its own. The status of a call that cannot be
  served says why:
    INVALID_ARGUMENT: The message is not what was agreed on.
    FAILED_PRECONDITION: The learner's settings differ from the replay job's.
    NOT_FOUND: The session is unknown, the learner has to say hello again.
    UNAVAILABLE: The replay job is about to stop, or has no room; the learner
      may try again.
    UNAUTHENTICATED: The token is missing or wrong.
  """

  def __init__(self, address, offer, contents, security):
    """Starts to listen.

    Args:
      address: 'host:port' to listen on; port 0 chooses one.
      offer: An `Offer`.
      contents: A `contents.Contents`, whose episodes are drawn if it has them,
        and otherwise its unrolls. It is the service's from now on.
      security: A `security.Security`.

    Raises:
      ServiceError: The address cannot be listened on.
    """
    # Nothing blocks: there is no work for threads.
    self._server = server_lib.Server(protocol.US, 1, _MEMORY_SHARE)
    self._contents = contents
    self._methods = methods = methods_lib.Methods(
        offer, contents, self._server.calls)
    self._since = time.monotonic()
    self._seen_bytes = 0
    each = server_lib.each
    served = dict(
        Hello=each(methods.hello, lasts=False), Insert=each(methods.insert))
    if contents.has_episodes:
      served.update(
          Episode=each(methods.episode),
          Fetch=each(methods.fetch, has_parts=True))
    else:
      served['Draw'] = each(methods.draw, has_parts=True)
    self._server.start(
        address, protocol.SERVICE, served,
        protocol.max_message_bytes(offer.layout), security, methods.check)

  @property
  def port(self):
    """The port that it listens on."""
    return self._server.port

  def take_gauges(self):
    """Returns a dict of values to log, since the last call.

    It has the gauges of `ring.Ring`, `learners`, `lacks_memory` and
    `inserted_mb_per_second`.
    """
    return asyncio.run_coroutine_threadsafe(
        self._take_gauges(), self._server.loop).result()

  async def _take_gauges(self):
    now, seen = time.monotonic(), self._methods.num_inserted_bytes
    gauges = dict(
        self._contents.take_gauges(),
        learners=self._methods.num_learners,
        lacks_memory=self._contents.lacks_memory,
        inserted_mb_per_second=(
            (seen - self._seen_bytes) / 1e6 / max(now - self._since, 1e-9)))
    self._since, self._seen_bytes = now, seen
    return gauges

  def close(self):
    """Ends the service, and drops what it kept."""
    if not self._server.is_closed:
      self._server.close(self._methods.end)
