"""Serves actor jobs: takes unrolls, hands out weights, acts for them."""

import time

from scalable_agent.learner_service import methods as methods_lib
from scalable_agent.learner_service import protocol
from scalable_agent.remote import server as server_lib
from scalable_agent.unroll_messages import call_sizes

ServiceError = server_lib.ServiceError
Offer = methods_lib.Offer

# The share of the machine's memory that calls may hold. The rest of the learner
# needs the other half.
_MEMORY_SHARE = .5
# A call that acts waits in a thread for inference, and for room in the queue.
_MIN_MAX_THREADS = 64


class Service:
  """Serves the actor jobs of one learner until it is closed.

  Calls are answered by a thread of its own; the learner's thread only exchanges
  references. The status of a call that cannot be served says why:
    INVALID_ARGUMENT: The message is not what was agreed on.
    FAILED_PRECONDITION: The actor's settings differ from the learner's.
    NOT_FOUND: The session is unknown, the actor has to say hello again.
    OUT_OF_RANGE: Training is done.
    UNAVAILABLE: The learner is about to stop, or has no room; the actor may
      try again.
    UNAUTHENTICATED: The token is missing or wrong.
  """

  def __init__(self, address, offer, security):
    """Starts to listen.

    Args:
      address: 'host:port' to listen on; port 0 chooses one.
      offer: An `Offer`.
      security: A `security.Security`.

    Raises:
      ServiceError: The address cannot be listened on.
    """
    self._server = server_lib.Server(
        protocol.US,
        # As many calls as can be in one batch of the policy may wait for it.
        max(offer.max_environments, _MIN_MAX_THREADS), _MEMORY_SHARE)
    self._methods = methods = methods_lib.Methods(offer, self._server)
    max_message_bytes = max(
        call_sizes.max_call_bytes(offer.unroll_layout),
        methods.steps_layouts(offer.max_environments).max_bytes
        if offer.make_actor else 0)
    each = server_lib.each
    self._server.start(
        address, protocol.SERVICE, dict(
            Hello=each(methods.hello, lasts=False),
            PutEpisodes=each(methods.put_episodes, lasts=False),
            GetWeights=each(methods.get_weights),
            PutUnroll=each(methods.put_unrolls),
            Act=server_lib.Method(methods.act)),
        max_message_bytes, security, methods.check)

  @property
  def port(self):
    """The port that it listens on."""
    return self._server.port

  def update(self, weights, version):
    """Offers a version of the weights from now on.

    Args:
      weights: A dict of name to tensor, which nobody changes any more.
      version: The update they are from.
    """
    self._methods.snapshot = methods_lib.Snapshot(weights, version)

  @property
  def num_jobs(self):
    """The number of actor jobs heard of within the last minute."""
    return len({s.about.task for s in self._methods.sessions.recent()})

  @property
  def has_acting_jobs(self):
    """Whether one of these has started its environments."""
    return any(s.about.acts for s in self._methods.sessions.recent())

  def finish(self):
    """From now on, tells everyone who asks that training is done."""
    self._methods.is_done = True

  def close(self, timeout=10.):
    """Ends the service. What `put_unroll` waits for must be closed before.

    Args:
      timeout: If training is done, seconds to wait until all actor jobs heard
        of within the last minute have asked, and were told.
    """
    if self._server.is_closed:
      return
    self._methods.is_closing = True
    deadline = time.monotonic() + (timeout if self._methods.is_done else 0.)
    while self._untold() and time.monotonic() < deadline:
      time.sleep(.1)
    self._server.close(self._methods.end)

  def _untold(self):
    return [
        s for s in self._methods.sessions.recent() if not s.about.told]
