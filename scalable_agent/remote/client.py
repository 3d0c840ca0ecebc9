"""The actor job's end: reaches the learner, and keeps reaching it."""

import json
import random
import struct
import threading
import time

from absl import logging
import grpc
import numpy as np

from scalable_agent.remote import protocol
from scalable_agent.remote import security as security_lib

# A policy version counts the lives of the learner in its upper bits, so that
# an unroll which was begun with the weights of one is not sent to another.
_LIFE = 1 << 48

_FIRST_WAIT_SECONDS = .5
_LONGEST_WAIT_SECONDS = 15.
_LOG_SECONDS = 60.
_CALL_SECONDS = 60.

_FATAL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED,
          grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED,
          grpc.StatusCode.PERMISSION_DENIED,
          grpc.StatusCode.RESOURCE_EXHAUSTED)


class Refused(RuntimeError):
  """The learner will not work with this actor; the message says why."""


class TrainingDone(Exception):
  """The learner needs no more unrolls."""


class Closed(Exception):
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
        `wire.Layout` of unrolls.
      weights_layout: The `wire.Layout` of weights.
      security: A `security.Security`.
      max_message_bytes: Length of the largest message of the learner's, if that
        is not the weights.
    """
    self._address = address
    self._hello = dict(
        agreement=agreement, task=task, levels=level_names,
        num_environments=len(level_names))
    self._make_unroll_layout = unroll_layout
    self._weights_layout = weights_layout
    self._metadata = security_lib.metadata(security)
    options = protocol.channel_options(
        max(max_message_bytes or weights_layout.num_bytes, 1 << 20))
    credentials = security_lib.channel_credentials(security)
    self._channel = (
        grpc.secure_channel(address, credentials, options) if credentials
        else grpc.insecure_channel(address, options))
    unary = lambda name: self._channel.unary_unary(
        f'/{protocol.SERVICE}/{name}')
    self._methods = {name: unary(name) for name in (
        'Hello', 'PutUnroll', 'PutEpisodes', 'GetWeights')}
    self._act = self._channel.stream_stream(f'/{protocol.SERVICE}/Act')
    self._lock = threading.Lock()
    self._closed = threading.Event()
    self._session = None
    self._run = ''
    self._connected = False
    self._life = 0
    self._levels = {}
    self._sequence = self._episode_sequence = 0
    self._backoff = Backoff()
    self._lost_time = self._logged_time = time.monotonic()
    self.num_dropped = 0

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
    def request(session):
      life, known = divmod(version, _LIFE)
      return struct.pack('<Qq', session, known if life == self._life else -1)

    message, life = self._call('GetWeights', request, _CALL_SECONDS)
    if not message:
      return None
    weights = self._weights_layout.decode(message)
    return weights.weights, life * _LIFE + int(weights.version)

  def put_unroll(self, unroll):
    """Hands over an `ActorOutput`, waiting while the learner's queue is full.

    One thread may call this. An unroll that was begun with the weights of a
    learner that is gone is dropped, and counted in `num_dropped`.

    Raises:
      TrainingDone, Refused, Closed.
    """
    self._sequence += 1
    sequence = np.int64(self._sequence)
    life, version = divmod(int(unroll.policy_version), _LIFE)

    def request(session):
      if life != self._life:
        return None
      return self._unroll_layout.encode(protocol.UnrollMessage(
          session=np.uint64(session),
          sequence=sequence,
          level=np.int32(self._levels[unroll.level_name]),
          policy_version=np.int64(version),
          agent_state=unroll.agent_state,
          env_outputs=unroll.env_outputs,
          agent_outputs=unroll.agent_outputs))

    # Backpressure takes as long as it takes; keepalive notices a dead peer.
    self._call('PutUnroll', request, None)

  def put_episodes(self, episodes):
    """Reports finished games, a list of `actor.Episode`s.

    One thread may call this; raises as `put_unroll`.
    """
    self._episode_sequence += 1
    values = [[e.level_name, float(e.episode_return), int(e.episode_frames)]
              for e in episodes]
    self._call('PutEpisodes', lambda session: json.dumps(dict(
        session=session, sequence=self._episode_sequence,
        episodes=values)).encode(), _CALL_SECONDS)

  def act(self, requests):
    """Opens a stream for inference at the learner.

    Args:
      requests: An iterator of messages, bytes.

    Returns:
      An iterator of answers, bytes. It raises `grpc.RpcError`, which is to be
      handed to `lost`; after that there may be another stream.

    Raises:
      TrainingDone, Refused, Closed.
    """
    session, _ = self._connect()
    return self._act(
        requests, metadata=self._metadata + (('session', str(session)),))

  def lost(self, error):
    """Takes note of a failed call, and waits before the next may be made.

    Raises:
      TrainingDone, Refused, Closed.
    """
    if self._closed.is_set():
      raise Closed() from error
    code = error.code()
    if code == grpc.StatusCode.OUT_OF_RANGE:
      raise TrainingDone() from error
    if code in _FATAL:
      raise Refused(f'The learner at {self._address} refuses this actor: '
                    f'{error.details()}.') from error
    now = time.monotonic()
    with self._lock:
      if self._connected:
        self._connected = False
        self._lost_time = now
        logging.warning('Lost the learner at %s: %s', self._address,
                        error.details())
        self._logged_time = now
      elif now - self._logged_time >= _LOG_SECONDS:
        self._logged_time = now
        logging.warning(
            'The learner at %s has been out of reach for %.0f s, trying on: %s',
            self._address, now - self._lost_time, error.details())
      wait = self._backoff.next()
    if self._closed.wait(wait):
      raise Closed() from error

  def close(self):
    """Ends all calls; those under way, and later ones, raise `Closed`."""
    self._closed.set()
    self._channel.close()

  def _call(self, name, make_request, timeout):
    """Calls until it works; returns the answer and the learner's life."""
    while True:
      session, life = self._connect()
      request = make_request(session)
      if request is None:
        self.num_dropped += 1
        return None, life
      try:
        answer = self._invoke(name, request, timeout)
      except grpc.RpcError as e:
        self.lost(e)
      else:
        self._backoff.reset()
        return answer, life

  def _invoke(self, name, request, timeout):
    try:
      return self._methods[name](
          request, timeout=timeout, metadata=self._metadata)
    except ValueError as e:  # The channel was closed.
      raise Closed() from e

  def _connect(self):
    """Says hello unless that is done; returns session and life."""
    while True:
      try:
        with self._lock:
          if not self._connected:
            self._say_hello()
          return self._session, self._life
      except grpc.RpcError as e:
        self.lost(e)

  def _say_hello(self):
    request = dict(self._hello, run=self._run, session=self._session)
    answer = json.loads(self._invoke(
        'Hello', json.dumps(request).encode(), _CALL_SECONDS))
    if answer['run'] != self._run:
      if self._run:
        logging.info('The learner at %s has been restarted.', self._address)
      self._run = answer['run']
      self._life += 1
      self._levels = {name: i for i, name in enumerate(answer['levels'])}
      self._unroll_layout = self._make_unroll_layout(len(self._levels))
    self._session = answer['session']
    self._connected = True
