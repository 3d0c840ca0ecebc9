"""Serves actor jobs: takes unrolls, hands out weights, acts for them.

All calls are answered by one thread, which waits for none of them: an event
loop. So connections and calls that wait, however many, cost memory alone, and
that is bounded.
"""

import asyncio
import contextlib
import socket
import threading
import time

from absl import logging
import grpc

from scalable_agent.process import machine_memory
from scalable_agent.process import open_files
from scalable_agent.process import thread_pool
from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import connections as connections_lib
from scalable_agent.remote import methods as methods_lib
from scalable_agent.remote import protocol
from scalable_agent.remote import security as security_lib

_MAX_CONNECTIONS = 8192
# What the rest of the learner may open.
_FILES_FOR_OTHERS = 128
# Of the machine's memory, for what calls may hold.
_MEMORY_SHARE = .5
_UNKNOWN_MEMORY = 8 << 30
_MAX_TEXT_BYTES = 1 << 20
# Calls wait for inference, and for room in the queue, one in a thread.
_MIN_MAX_THREADS = 64
_CLOSE_GRACE_SECONDS = 1.
_CHECK_SECONDS = 1.
# How long a connection may take until a call of it is let in, and how many may
# be about to.
_UNKNOWN_SECONDS = 10.
_MAX_UNKNOWN = 256
# From a call that was refused, and the word of it, to a check.
_SOON_SECONDS = .1


class ServiceError(RuntimeError):
  """The service cannot start; the message says why."""


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

  def __init__(self, address, agreement, levels, unroll_layout, weights_layout,
               put_unroll, report_episode, security, make_actor=None,
               max_environments=1024):
    """Starts to listen.

    Args:
      address: 'host:port' to listen on; port 0 chooses one.
      agreement: Of `protocol.agreement`.
      levels: A list of level names that actors may play.
      unroll_layout: The `wire.Layout` of unrolls.
      weights_layout: The `wire.Layout` of weights.
      put_unroll: A function that takes an `ActorOutput`, as
        `TrajectoryQueue.put`, with an argument `on_room`.
      report_episode: A function of level name, episode return and episode
        frames.
      security: A `security.Security`.
      make_actor: None, or, for inference at the learner, a function of a list
        of level names that returns an `actor.Actor` for so many environments.
      max_environments: How many it can be, an int.

    Raises:
      ServiceError: The address cannot be listened on.
    """
    self._loop = asyncio.new_event_loop()
    self._threads = thread_pool.ThreadPool(
        # As many calls as can be in one batch of the policy may wait for it.
        max(max_environments, _MIN_MAX_THREADS), 'service')
    self._calls = calls_lib.Calls(_max_bytes(), self._close_connection)
    # Set when a check should not wait for its time.
    self._check_soon = asyncio.Event()
    self._methods = methods_lib.Methods(
        agreement, levels, unroll_layout, weights_layout, put_unroll,
        report_episode, make_actor, max_environments, self._calls,
        self._threads, self._loop)
    self._call_bytes = max(
        protocol.max_call_bytes(unroll_layout), _MAX_TEXT_BYTES)
    max_message_bytes = max(
        self._call_bytes, self._methods.steps_layouts(
            max_environments).max_bytes if make_actor else 0)
    self._thread = threading.Thread(
        target=self._loop.run_forever, name='service', daemon=True)
    self._thread.start()
    try:
      self.port = self._run(self._start(
          address, security, max_message_bytes))
    except Exception as e:
      self._end_loop()
      if not isinstance(e, RuntimeError):
        raise
      raise ServiceError(
          f'The learner cannot listen on {address}: another program does, or '
          'the address is not one of this machine.') from e

  def _run(self, coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

  async def _start(self, address, security, max_message_bytes):
    """Starts to listen; returns the port."""
    max_connections = _max_connections(address)
    self._server = grpc.aio.server(
        interceptors=[security_lib.Authenticator(
            security.token, self._turn_away)],
        options=(protocol.channel_options(max_message_bytes) +
                 protocol.server_options(max_connections)))
    methods = self._methods
    self._server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler(protocol.SERVICE, dict(
            Hello=self._handler(methods.hello, lasts=False),
            PutEpisodes=self._handler(methods.put_episodes, lasts=False),
            GetWeights=self._handler(methods.get_weights),
            PutUnroll=self._handler(methods.put_unrolls),
            # Which depends on the environments.
            Act=self._handler(methods.act, num_bytes=0)))])
    credentials = security_lib.server_credentials(security)
    port = (self._server.add_secure_port(address, credentials)
            if credentials else self._server.add_insecure_port(address))
    self._connections = connections_lib.Connections(
        port, _UNKNOWN_SECONDS,
        min(max(max_connections // 4, 1), _MAX_UNKNOWN))
    await self._server.start()
    self._checking = asyncio.create_task(self._check())
    return port

  def _handler(self, method, lasts=True, num_bytes=None):
    """Returns gRPC's handler of a method.

    To gRPC each is a stream: where it waits for a single message by itself,
    calls that never send it could not be bounded.

    Args:
      method: A function of a `calls.Call` and gRPC's metadata that returns a
        context manager, whose value is a coroutine function from a message to
        its answer.
      lasts: Whether there may be long pauses between messages.
      num_bytes: What a call of it may hold, by default the largest message
        but for those of steps.
    """
    num_bytes = self._call_bytes if num_bytes is None else num_bytes

    async def handle(unused_messages, context):
      call = None
      try:
        call = self._calls.begin(context, num_bytes, lasts)
        self._connections.let_in(call.peer)
        with method(call, context.invocation_metadata()) as answer:
          while (message := await context.read()) is not grpc.aio.EOF:
            with call:
              reply = await answer(message)
            with call.writes(len(reply)):
              await context.write(reply)
        return
      except calls_lib.Refused as e:
        refused = e
      except asyncio.CancelledError:
        # The connection ended, unless it was this service that cancelled.
        if call is None or call.end is None:
          raise
        refused = call.end
      await context.abort(refused.code, refused.details)

    return grpc.stream_stream_rpc_method_handler(handle)

  def _turn_away(self, peer):
    """Closes a connection whose call was refused, once it has been told so."""
    self._connections.refuse(peer)
    self._check_soon.set()

  def _close_connection(self, peer):
    self._connections.close(peer)
    self._check_soon.set()

  async def _check(self):
    """Ends what is silent or was refused, again and again."""
    while True:
      with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(self._check_soon.wait(), _CHECK_SECONDS)
        await asyncio.sleep(_SOON_SECONDS)
      self._check_soon.clear()
      try:
        self._connections.check()
        self._calls.check()
        self._methods.sessions.expire()
      except Exception:  # It is better to serve than to check.
        logging.exception('Connections cannot be checked.')

  def update(self, weights, version):
    """Offers a version of the weights from now on.

    Args:
      weights: A dict of name to tensor, which nobody changes any more.
      version: The update they are from.
    """
    self._methods.snapshot = methods_lib.Snapshot(weights, version)

  @property
  def run(self):
    """Names this life of the learner, a string."""
    return self._methods.run

  @property
  def num_sessions(self):
    """Actor jobs heard of within the last minute."""
    return len(self._methods.sessions.recent())

  def finish(self):
    """From now on, tells everyone who asks that training is done."""
    self._methods.is_done = True

  def close(self, timeout=10.):
    """Ends the service. What `put_unroll` puts into must be closed before.

    Args:
      timeout: If training is done, seconds to wait for those to ask that were
        heard of within the last minute.
    """
    if self._loop.is_closed():
      return
    self._methods.is_closing = True
    deadline = time.monotonic() + (timeout if self._methods.is_done else 0.)
    while self._untold() and time.monotonic() < deadline:
      time.sleep(.1)
    self._run(self._stop())
    self._end_loop()

  def _untold(self):
    return [s for s in self._methods.sessions.recent() if not s.told]

  async def _stop(self):
    self._checking.cancel()
    self._calls.end_all(self._methods.end())
    await self._server.stop(_CLOSE_GRACE_SECONDS)
    # What gRPC still does for calls that are over.
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
      _, rest = await asyncio.wait(rest, timeout=_CLOSE_GRACE_SECONDS)
    for task in rest:
      task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)

  def _end_loop(self):
    self._threads.close()
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()


def _max_bytes():
  """Returns what calls may hold in memory, in bytes."""
  return int(_MEMORY_SHARE * (machine_memory.total_bytes() or _UNKNOWN_MEMORY))


def _max_connections(address):
  """Returns how many connections there may be at each address of a name."""
  free = open_files.limit() - open_files.count() - _FILES_FOR_OTHERS
  host, _, port = address.rpartition(':')
  try:
    found = socket.getaddrinfo(host.strip('[]'), port, type=socket.SOCK_STREAM)
  except OSError:  # Which gRPC will say.
    found = [None]
  return max(min(free, _MAX_CONNECTIONS) // len(found), 1)
