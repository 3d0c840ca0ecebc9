"""A link to a service: says hello, and connects again when it has to."""

import collections
import json
import random
import threading
import time
import weakref

from absl import logging
import grpc

from scalable_agent.process import errors
from scalable_agent.process import threads
from scalable_agent.remote import channels
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import stream as stream_lib

_FIRST_WAIT_SECONDS = .5
_LONGEST_WAIT_SECONDS = 15.
_LOG_SECONDS = 60.
_CALL_SECONDS = 60.
# The Hello's answer lists the levels.
_MINIMUM_MAX_BYTES = 1 << 20

_FATAL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED,
          grpc.StatusCode.FAILED_PRECONDITION,
          grpc.StatusCode.PERMISSION_DENIED,
          grpc.StatusCode.RESOURCE_EXHAUSTED)

Ends = collections.namedtuple('Ends', 'service job')
Ends.__doc__ = """What the two ends of a link are called in errors and logs.

  service: As in 'learner'.
  job: Whoever calls it, as in 'actor'.
"""

Connection = collections.namedtuple('Connection', 'session life about')
Connection.__doc__ = """What is known of a service that was reached.

  session: The number of the session, which no other has.
  life: How many processes the service has been since this link was made.
  about: What the `read_hello` of `Link` returned.
"""


class Refused(errors.Failure):
  """The service will not work with this job; the message says why."""


class TrainingDone(Exception):
  """The service needs nothing more."""


class Closed(threads.Ended):
  """The link was closed."""


class Backoff:
  """Waiting times that double up to a limit, each with a random part."""

  def __init__(self):
    self.reset()

  def reset(self):
    """Begins anew with the shortest waiting time."""
    self._seconds = _FIRST_WAIT_SECONDS

  def next(self):
    """Returns how many seconds to wait now."""
    seconds = self._seconds * random.uniform(.5, 1.5)
    self._seconds = min(2 * self._seconds, _LONGEST_WAIT_SECONDS)
    return seconds


class Link:
  """Calls a service, waiting out its absence; for use by several threads.

  Every call waits until the service is there.

  Attributes:
    address: 'host:port' of the service.
  """

  def __init__(self, address, service, ends, security, hello, read_hello,
               max_message_bytes):
    """Initializes the link; connects with the first call.

    Args:
      address: 'host:port' of the service.
      service: Its name.
      ends: An `Ends`.
      security: A `security.Security`.
      hello: What to say of this job, a dict that JSON can hold.
      read_hello: A function of the answer, a dict, that returns the `about` of
        a `Connection`.
      max_message_bytes: Length of the largest message that the service sends.
    """
    self.address = address
    self._service = service
    self._ends = ends
    self._hello = hello
    self._read_hello = read_hello
    self._metadata = security_lib.metadata(security)
    options = channels.channel_options(
        max(max_message_bytes, _MINIMUM_MAX_BYTES))
    credentials = security_lib.channel_credentials(security)
    # By itself gRPC takes a host called 'unix' or 'dns' for something else.
    target = f'dns:///{address}'
    self._channel = (
        grpc.secure_channel(target, credentials, options) if credentials
        else grpc.insecure_channel(target, options))
    self._closed = threading.Event()
    # Each has a thread of gRPC's, which waits for messages until it is closed.
    self._open_streams = weakref.WeakSet()
    self._streams_lock = threading.Lock()
    # Guards what follows. The thread that connects holds it, and the others
    # wait for what comes of that.
    self._lock = threading.Lock()
    self._connection = None
    self._session = None
    self._run = ''
    self._life = 0
    self._backoff = Backoff()
    self._wait_seconds = 0.
    self._lost_time = time.monotonic()
    self._logged_time = -_LOG_SECONDS

  @property
  def session(self):
    """The number of the session, which no other has; None before the first."""
    return self._session

  @property
  def is_connected(self):
    """Whether the service was there when it was last called."""
    return self._connection is not None

  def open_stream(self, name, connection=None):
    """Returns a new `stream.Stream` of a method that is one.

    At its end the stream raises `stream.Broken`, or what is below.

    Args:
      name: The method's.
      connection: A `Connection`, by default the present one.

    Raises:
      TrainingDone, Refused, Closed.
    """
    connection = connection or self.connect()
    metadata = self._metadata + (
        (channels.SESSION_KEY, str(connection.session)),)
    with self._streams_lock:
      if self._closed.is_set():
        raise Closed()
      method = self._channel.stream_stream(f'/{self._service}/{name}')
      stream = stream_lib.Stream(
          lambda requests: method(requests, metadata=metadata),
          self._succeeded, lambda error: self._lost(error, connection))
      self._open_streams.add(stream)
    return stream

  def sleep(self, seconds):
    """Waits; raises Closed if the link is or gets closed."""
    if self._closed.wait(seconds):
      raise Closed()

  def close(self):
    """Ends all calls; those under way, and later ones, raise `Closed`."""
    self._closed.set()
    with self._streams_lock:
      for stream in self._open_streams:
        stream.close()
    self._channel.close()

  def call(self, name, make_request):
    """Calls a method that is no stream until the call succeeds.

    Args:
      name: The method's.
      make_request: A function of a `Connection` that returns the message.
    """
    while True:
      connection = self.connect()
      try:
        self._invoke(name, make_request(connection))
      except grpc.RpcError as e:
        self._lost(e, connection)
      else:
        self._succeeded()
        return

  def _invoke(self, name, request):
    method = self._channel.unary_unary(f'/{self._service}/{name}')
    try:
      return method(request, timeout=_CALL_SECONDS, metadata=self._metadata)
    except ValueError as e:  # The channel was closed.
      raise Closed() from e

  def _succeeded(self):
    self._backoff.reset()
    self._wait_seconds = 0.

  def connect(self):
    """Returns the present `Connection`; says hello first if there is none.

    It is the same object until the service is lost.

    Raises:
      TrainingDone, Refused, Closed.
    """
    with self._lock:
      while self._connection is None:
        self.sleep(self._wait_seconds)
        try:
          self._say_hello()
        except grpc.RpcError as e:
          self._raise_if_final(e)
          self._note_failure(e)
      return self._connection

  def _say_hello(self):
    request = dict(self._hello, run=self._run, session=self._session)
    answer = json.loads(self._invoke('Hello', json.dumps(request).encode()))
    again = ''
    if answer['run'] != self._run:
      again = ', which has been restarted' if self._run else ''
      self._run = answer['run']
      self._life += 1
    logging.info('Connected to the %s at %s%s', self._ends.service,
                 self.address, again)
    self._session = answer['session']
    self._connection = Connection(
        self._session, self._life, self._read_hello(answer))

  def _lost(self, error, connection):
    """Notes that a call has failed; raises if trying again is of no use."""
    self._raise_if_final(error)
    with self._lock:
      # Another thread may have noted it before, and connected again.
      if self._connection is connection:
        self._connection = None
        self._lost_time = self._logged_time = time.monotonic()
        self._wait_seconds = self._backoff.next()
        logging.warning('Lost the %s at %s: %s', self._ends.service,
                        self.address, error.details())

  def _raise_if_final(self, error):
    if self._closed.is_set():
      raise Closed() from error
    if error.code() == grpc.StatusCode.OUT_OF_RANGE:
      raise TrainingDone() from error
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
      raise Refused(
          f'What listens at {self.address} is no {self._ends.service}, but '
          'another service.') from error
    if error.code() in _FATAL:
      raise Refused(
          f'The {self._ends.service} at {self.address} refuses this '
          f'{self._ends.job}: {error.details()}.') from error
    reason, _ = security_lib.explain_failure(error.details())
    if reason:
      raise Refused(
          f'The {self._ends.service} at {self.address} is not to be trusted: '
          f'{reason}.') from error

  def _note_failure(self, error):
    """Notes that a Hello has failed; logs it once a minute."""
    self._wait_seconds = self._backoff.next()
    now = time.monotonic()
    if now - self._logged_time >= _LOG_SECONDS:
      self._logged_time = now
      logging.warning(
          'The %s at %s has been out of reach for %.0f s, trying on: %s%s',
          self._ends.service, self.address, now - self._lost_time,
          error.details(), security_lib.explain_failure(error.details())[1])
