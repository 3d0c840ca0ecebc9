"""Answers calls: listens, bounds what others can take, and ends in order.

One thread, an event loop, answers all calls and waits for none of them. So
connections and calls that wait cost nothing but memory, which is bounded.
"""

import asyncio
import collections
import contextlib
import functools
import socket
import threading

from absl import logging
import grpc

from scalable_agent.files import open_files
from scalable_agent.machine import memory as machine_memory
from scalable_agent.process import errors
from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import channels
from scalable_agent.remote import connections as connections_lib
from scalable_agent.remote import listening
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import thread_pool

# Length of the longest text, such as a Hello with the levels of many
# environments.
_MAX_TEXT_BYTES = 1 << 20
# How much of a call gRPC may receive before the service reads it: the window
# that it opens on a fast network.
_WINDOW_BYTES = 4 << 20
_MAX_CONNECTIONS = 8192
# File descriptors that are left to the rest of the process.
_FILES_FOR_OTHERS = 128
# The machine's memory, if it cannot be found out.
_UNKNOWN_MEMORY = 8 << 30
_CLOSE_GRACE_SECONDS = 1.
_CHECK_SECONDS = 1.
# How long a connection may be there without a call that was let in, and how
# many such connections there may be.
_UNKNOWN_SECONDS = 10.
_MAX_UNKNOWN = 256
# Delay between refusing a call and the next check.
_SOON_SECONDS = .1

Method = collections.namedtuple(
    'Method', 'begin lasts has_parts', defaults=(True, False))
Method.__doc__ = """How the calls of one name are answered.

  begin: A function of a `calls.Call` and gRPC's metadata that returns a context
    manager, whose value is a coroutine function from a message to its answer.
  lasts: Whether there may be long pauses between messages.
  has_parts: Whether an answer is several messages. Then `begin`'s value is a
    function from a message to an asynchronous iterator of them.
"""


def each(answer, **options):
  """Returns a `Method` that answers each message by itself.

  Args:
    answer: A coroutine function from a `calls.Call` and a message to its
      answer; where that has parts, an asynchronous generator of them.
    **options: As for `Method`.
  """
  return Method(
      lambda call, unused_metadata: contextlib.nullcontext(
          functools.partial(answer, call)), **options)


class ServiceError(RuntimeError):
  """The service cannot start; the message says why."""


class Server:
  """Answers calls by some methods until it is closed.

  Attributes:
    loop: The event loop, which runs in a thread of its own.
    threads: A `thread_pool.ThreadPool` for what would block the loop.
    calls: The `calls.Calls`.
    port: The port that it listens on, once it does.
  """

  def __init__(self, owner, max_threads, memory_share):
    """Initializes the server; `start` comes next.

    Args:
      owner: Whose it is, for errors, as in 'the learner'.
      max_threads: The largest number of `threads`.
      memory_share: The share of the machine's memory that calls may hold.
    """
    self._owner = owner
    self.loop = asyncio.new_event_loop()
    self.loop.set_exception_handler(_report)
    self.threads = thread_pool.ThreadPool(max_threads, 'service')
    self.calls = calls_lib.Calls(
        _max_bytes(memory_share), self._close_connection, owner)
    self.port = None
    # Set when a check should not wait for its time.
    self._check_soon = asyncio.Event()
    self._thread = threading.Thread(
        target=self.loop.run_forever, name='service', daemon=True)
    self._thread.start()

  def start(self, address, name, methods, max_message_bytes, security, check):
    """Starts to listen; closes the server if it cannot.

    Args:
      address: 'host:port' to listen on; port 0 chooses one.
      name: Of the service.
      methods: A dict of name to `Method`.
      max_message_bytes: Length of the largest message of any method.
      security: A `security.Security`.
      check: A function to call every second or so, in the event loop.

    Raises:
      ServiceError: The address cannot be listened on, or messages may be too
        large for this machine.
    """
    max_message_bytes = max(max_message_bytes, _MAX_TEXT_BYTES)
    # gRPC has one limit for all methods, so every call may hold this much.
    self._call_bytes = max_message_bytes + _WINDOW_BYTES
    try:
      if self._call_bytes > self.calls.max_bytes:
        raise ServiceError(
            f'{self._owner.capitalize()} may be sent '
            f'{self._call_bytes / 1e9:.3g} GB at once, and has '
            f'{self.calls.max_bytes / 1e9:.3g} GB of memory for all that it is '
            'sent. Have shorter unrolls (--unroll_length) or more memory.')
      listening.check_free(address)
      self.port = self._run(self._start(
          address, name, methods, max_message_bytes, security, check))
    except Exception as e:
      self._end_loop()
      if isinstance(e, ServiceError) or not isinstance(
          e, (OSError, RuntimeError)):
        raise
      # gRPC does not say why.
      reason = (errors.first_line(e) if isinstance(e, OSError) else 'another '
                'program does, or the address is not one of this machine')
      raise ServiceError(
          f'{self._owner.capitalize()} cannot listen on {address}: {reason}.'
      ) from e

  def _run(self, coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

  async def _start(self, address, name, methods, max_message_bytes, security,
                   check):
    """Starts to listen; returns the port."""
    addresses = listening.numeric_addresses(address)
    max_connections = _max_connections(address)
    self._server = grpc.aio.server(
        interceptors=[security_lib.Authenticator(
            security.token, self._turn_away)],
        options=(channels.channel_options(max_message_bytes) +
                 channels.server_options(max_connections)))
    self._server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler(name, {
            method_name: self._handler(method)
            for method_name, method in methods.items()})])
    credentials = security_lib.server_credentials(security)
    for each_address in addresses:
      port = (self._server.add_secure_port(each_address, credentials)
              if credentials else
              self._server.add_insecure_port(each_address))
    self._connections = connections_lib.Connections(
        port, _UNKNOWN_SECONDS,
        min(max(max_connections // 4, 1), _MAX_UNKNOWN))
    await self._server.start()
    self._checking = asyncio.create_task(self._check(check))
    return port

  def _handler(self, method):
    """Returns gRPC's handler of a `Method`.

    To gRPC each is a stream. Otherwise gRPC itself would wait for a call's
    message, and calls that never send it could not be bounded.
    """
    async def handle(unused_messages, context):
      call = None
      try:
        call = self.calls.begin(context, self._call_bytes, method.lasts)
        self._connections.let_in(call.peer)
        with method.begin(call, context.invocation_metadata()) as answer:
          while (message := await context.read()) is not grpc.aio.EOF:
            parts = answer(message) if method.has_parts else None
            while True:
              with call:
                reply = await (anext(parts, None) if parts else answer(message))
              if reply is None:
                break
              with call.writes(len(reply)):
                await context.write(reply)
              if parts is None:
                break
        return
      except calls_lib.Rejected as e:
        refused = e
      except asyncio.CancelledError:
        # The connection ended, unless it was this service that cancelled.
        if call is None or call.end is None:
          raise
        refused = call.end
      await context.abort(refused.code, refused.details)

    return grpc.stream_stream_rpc_method_handler(handle)

  def _turn_away(self, peer):
    """Closes a connection whose call was refused, once its peer knows."""
    self._connections.refuse(peer)
    self._check_soon.set()

  def _close_connection(self, peer):
    self._connections.close(peer)
    self._check_soon.set()

  async def _check(self, check):
    """Ends, again and again, what is silent or was refused."""
    while True:
      with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(self._check_soon.wait(), _CHECK_SECONDS)
        await asyncio.sleep(_SOON_SECONDS)
      self._check_soon.clear()
      try:
        self._connections.check()
        self.calls.check()
        check()
      except Exception:  # Serving goes on without checks.
        logging.exception('Connections cannot be checked.')

  @property
  def is_closed(self):
    """Whether `close` was called."""
    return self.loop.is_closed()

  def close(self, end):
    """Ends all calls, and the thread.

    Args:
      end: A function without arguments that is called in the event loop and
        returns the `calls.Rejected` to end calls with.
    """
    self._run(self._stop(end))
    self._end_loop()

  async def _stop(self, end):
    self._checking.cancel()
    self.calls.end_all(end())
    await self._server.stop(_CLOSE_GRACE_SECONDS)
    # What gRPC has left to do for calls that are over.
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
      _, rest = await asyncio.wait(rest, timeout=_CLOSE_GRACE_SECONDS)
    for task in rest:
      task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)

  def _end_loop(self):
    self.threads.close()
    self.loop.call_soon_threadsafe(self.loop.stop)
    self._thread.join()
    self.loop.close()


def _report(loop, context):
  """Reports an error in the event loop, unless it has harmed nothing.

  gRPC wakes all event loops of a process for an event of one of them. The
  others find nothing to read, and one of them may have closed.
  """
  error = context.get('exception')
  if 'PollerCompletionQueue' in context['message'] and (
      isinstance(error, BlockingIOError) or
      str(error) == 'Event loop is closed'):
    return
  loop.default_exception_handler(context)


def _max_bytes(memory_share):
  """Returns what calls may hold in memory, in bytes."""
  return int(memory_share * (
      machine_memory.total_bytes() or _UNKNOWN_MEMORY))


def _max_connections(address):
  """Returns how many connections there may be at each address of a name."""
  free = open_files.limit() - open_files.count() - _FILES_FOR_OTHERS
  host, _, port = address.rpartition(':')
  try:
    count = len(socket.getaddrinfo(
        host.strip('[]'), port, type=socket.SOCK_STREAM))
  except OSError:  # gRPC will say so.
    count = 1
  if host == 'localhost':
    count = 2  # To gRPC, also where the machine knows one alone.
  return max(min(free, _MAX_CONNECTIONS) // count, 1)
