"""Calls the learner for an actor job, and connects again where it has to."""

import collections
import functools
import json
import random
import struct
import threading
import time

from absl import logging
import grpc
import numpy as np

from scalable_agent.process import errors
from scalable_agent.process import threads
from scalable_agent.remote import protocol
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import unroll_sender
from scalable_agent.remote import wire

# A policy version counts the lives of the learner in its upper bits, so that
# an unroll which was begun with the weights of one is not sent to another.
_LIFE = 1 << 48

_FIRST_WAIT_SECONDS = .5
_LONGEST_WAIT_SECONDS = 15.
_LOG_SECONDS = 60.
_CALL_SECONDS = 60.
# The Hello's answer lists the levels.
_MINIMUM_MAX_BYTES = 1 << 20

_FATAL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED,
          grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED,
          grpc.StatusCode.PERMISSION_DENIED,
          grpc.StatusCode.RESOURCE_EXHAUSTED)

# What is known of a learner that was reached; life counts its processes.
_Connection = collections.namedtuple(
    '_Connection', 'session life levels unroll_layout')


class Refused(errors.Failure):
  """The learner will not work with this actor; the message says why."""


class TrainingDone(Exception):
  """The learner needs no more unrolls."""


class Closed(threads.Ended):
  """The client was closed."""


class Backoff:
  """Waiting times that double up to a limit, each with a random part."""

  def __init__(self, rng=random):
    self._rng = rng
    self.reset()

  def reset(self):
    """Begins anew with the shortest."""
    self._seconds = _FIRST_WAIT_SECONDS

  def next(self):
    """Returns how many seconds to wait now."""
    seconds = self._seconds * self._rng.uniform(.5, 1.5)
    self._seconds = min(2 * self._seconds, _LONGEST_WAIT_SECONDS)
    return seconds


class LearnerClient:
  """Calls a learner, waiting out its absence; for use by several threads.

  Every call waits until the learner is there, and is repeated when the
  connection breaks; an unroll arrives once even so. A learner that comes back
  as another process has lost what it knew: unrolls that were begun with the
  weights of the one before are dropped.
  """

  def __init__(self, address, agreement, task, level_names, unroll_layout,
               weights_layout, security, max_message_bytes=None):
    """Initializes the client; connects with the first call.

    Args:
      address: 'host:port' of the learner.
      agreement: Of `protocol.agreement`.
      task: Index of this actor job.
      level_names: A list of N level names, of the environments.
      unroll_layout: A function of the number of levels that returns the
        `wire.Layout` of unrolls; None if the learner makes them.
      weights_layout: The `wire.Layout` of weights; None if none are wanted.
      security: A `security.Security`.
      max_message_bytes: Length of the largest message of the learner's, if that
        is not the weights.
    """
    self._address = address
    self._hello = dict(agreement=agreement, task=task, levels=level_names)
    self._make_unroll_layout = unroll_layout
    self._weights_layout = weights_layout
    self._metadata = security_lib.metadata(security)
    if weights_layout and not max_message_bytes:
      max_message_bytes = weights_layout.num_bytes
    options = protocol.channel_options(
        max(max_message_bytes or 0, _MINIMUM_MAX_BYTES))
    credentials = security_lib.channel_credentials(security)
    self._channel = (
        grpc.secure_channel(address, credentials, options) if credentials
        else grpc.insecure_channel(address, options))
    unary = lambda name: self._channel.unary_unary(
        f'/{protocol.SERVICE}/{name}')
    self._methods = {
        name: unary(name) for name in ('Hello', 'PutEpisodes')}
    self._streams = {
        name: self._channel.stream_stream(f'/{protocol.SERVICE}/{name}')
        for name in ('GetWeights', 'PutUnroll', 'Act')}
    self._closed = threading.Event()
    # Guards what follows. Whoever connects holds it: one at a time knocks, and
    # the others wait for what comes of it.
    self._lock = threading.Lock()
    self._connection = None
    self._session = None
    self._run = ''
    self._life = 0
    self._backoff = Backoff()
    self._wait_seconds = 0.
    self._lost_time = time.monotonic()
    self._logged_time = -_LOG_SECONDS
    self._episode_sequence = 0
    # A stream, since it is asked for with every unroll.
    self._weights_caller = stream_lib.Caller(
        self._connect, functools.partial(self._open_stream, 'GetWeights'))
    self._sender = unroll_layout and unroll_sender.UnrollSender(
        self._connect, functools.partial(self._open_stream, 'PutUnroll'),
        self._encode, protocol.max_unrolls_per_call(unroll_layout(1)))

  @property
  def session(self):
    """The number of the session, unlike all others; None before the first."""
    return self._session

  def get_weights(self, version):
    """Asks for weights.

    Args:
      version: The one that the caller has, as `get_weights` returned it, -1 for
        none.

    Returns:
      None if that is the newest, or a pair of a dict of name to array and
      their version, an int.

    Raises:
      TrainingDone, Refused, Closed.
    """
    life, known = divmod(version, _LIFE)
    message, connection = self._weights_caller.call(
        lambda connection: struct.pack(
            '<Qq', connection.session,
            known if life == connection.life else -1))
    if not message:
      return None
    try:
      weights = self._weights_layout.decode(message)
    except wire.WireError as e:
      raise Refused(
          f'The learner at {self._address} sent other weights than agreed on: '
          f'{e}.') from e
    return weights.weights, connection.life * _LIFE + int(weights.version)

  def put_unrolls(self, unrolls, wait=True):
    """Hands over `ActorOutput`s, waiting while the learner's queue is full.

    One thread may call this. Those that were begun with the weights of a
    learner that is gone are dropped, and counted in `num_dropped`.

    Args:
      unrolls: A list.
      wait: Whether to return only when the learner has taken all of them. If
        not, a message of them may still be under way, which the next call waits
        for, and raises what became of it.

    Raises:
      TrainingDone, Refused, Closed.
    """
    self._sender.put(unrolls, wait)

  @property
  def num_dropped(self):
    """Unrolls of the weights of a learner that is gone, so far."""
    return self._sender.num_dropped

  def _encode(self, connection, unrolls, first):
    messages = [
        connection.unroll_layout.encode(protocol.UnrollMessage(
            session=np.uint64(connection.session),
            sequence=np.int64(sequence),
            level=np.int32(connection.levels[unroll.level_name]),
            policy_version=np.int64(unroll.policy_version % _LIFE),
            agent_state=unroll.agent_state,
            env_outputs=unroll.env_outputs,
            agent_outputs=unroll.agent_outputs,
            gradient=unroll.gradient,
            stream=np.int64(0 if unroll.stream == () else unroll.stream)))
        for sequence, unroll in enumerate(unrolls, first)
        if unroll.policy_version // _LIFE == connection.life]
    return wire.join(messages), len(messages)

  def put_episodes(self, episodes):
    """Reports finished episodes, a list of `Episode`s; it may be empty.

    One thread may call this; raises as `put_unroll`.
    """
    values = [[e.level_name, float(e.episode_return), int(e.episode_frames)]
              for e in episodes]
    most = protocol.MAX_EPISODES_PER_CALL
    for start in range(0, max(len(values), 1), most):
      self._episode_sequence += 1
      self._call(
          'PutEpisodes',
          lambda connection, part=values[start:start + most]: json.dumps(dict(
              session=connection.session, sequence=self._episode_sequence,
              episodes=part)).encode())

  def open_stream(self):
    """Returns a new `stream.Stream`, for inference at the learner.

    What it raises at its end, besides `stream.Broken`, is as below. The learner
    forgets what a stream has shown it when the stream ends.

    Raises:
      TrainingDone, Refused, Closed.
    """
    return self._open_stream('Act', self._connect())

  def _open_stream(self, name, connection):
    metadata = self._metadata + (
        (protocol.SESSION_KEY, str(connection.session)),)
    try:
      return stream_lib.Stream(
          lambda requests: self._streams[name](requests, metadata=metadata),
          self._succeeded, lambda error: self._lost(error, connection))
    except ValueError as e:  # The channel was closed.
      raise Closed() from e

  def sleep(self, seconds):
    """Waits; raises Closed if the client is or gets closed."""
    if self._closed.wait(seconds):
      raise Closed()

  def close(self):
    """Ends all calls; those under way, and later ones, raise `Closed`."""
    self._closed.set()
    self._channel.close()

  def _call(self, name, make_request):
    """Calls until it works.

    Args:
      name: The method.
      make_request: A function of a `_Connection` that returns the message.
    """
    while True:
      connection = self._connect()
      try:
        self._invoke(name, make_request(connection))
      except grpc.RpcError as e:
        self._lost(e, connection)
      else:
        self._succeeded()
        return

  def _invoke(self, name, request):
    try:
      return self._methods[name](
          request, timeout=_CALL_SECONDS, metadata=self._metadata)
    except ValueError as e:  # The channel was closed.
      raise Closed() from e

  def _succeeded(self):
    self._backoff.reset()
    self._wait_seconds = 0.

  def _connect(self):
    """Says hello unless that is done; returns the `_Connection`."""
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
    logging.info('Connected to the learner at %s%s', self._address, again)
    self._session = answer['session']
    levels = answer['levels']
    self._connection = _Connection(
        self._session, self._life,
        {name: i for i, name in enumerate(levels)},
        self._make_unroll_layout and self._make_unroll_layout(len(levels)))

  def _lost(self, error, connection):
    """Takes note of a failed call, unless it is the end."""
    self._raise_if_final(error)
    with self._lock:
      # Another thread may have been here before, and connected again.
      if self._connection is connection:
        self._connection = None
        self._lost_time = self._logged_time = time.monotonic()
        self._wait_seconds = self._backoff.next()
        logging.warning('Lost the learner at %s: %s', self._address,
                        error.details())

  def _raise_if_final(self, error):
    if self._closed.is_set():
      raise Closed() from error
    if error.code() == grpc.StatusCode.OUT_OF_RANGE:
      raise TrainingDone() from error
    if error.code() in _FATAL:
      raise Refused(f'The learner at {self._address} refuses this actor: '
                    f'{error.details()}.') from error
    reason, _ = security_lib.explain_failure(error.details())
    if reason:
      raise Refused(f'The learner at {self._address} is not to be trusted: '
                    f'{reason}.') from error

  def _note_failure(self, error):
    """Of a Hello; says so once a minute."""
    self._wait_seconds = self._backoff.next()
    now = time.monotonic()
    if now - self._logged_time >= _LOG_SECONDS:
      self._logged_time = now
      logging.warning(
          'The learner at %s has been out of reach for %.0f s, trying on: %s%s',
          self._address, now - self._lost_time, error.details(),
          security_lib.explain_failure(error.details())[1])
