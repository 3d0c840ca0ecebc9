"""Serves actor jobs: takes unrolls, hands out weights, acts for them."""

import concurrent.futures
import functools
import json
import re
import secrets
import struct
import threading
import time

from absl import logging
import grpc
import numpy as np

from scalable_agent import dynamic_batching
from scalable_agent import environments
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.remote import protocol
from scalable_agent.remote import security as security_lib
from scalable_agent.remote import sessions as sessions_lib
from scalable_agent.remote import wire

# Every stream occupies a thread, which is only made once it is needed.
_MAX_THREADS = 4096
_MAX_ENVIRONMENTS = 65536
_MAX_TEXT_BYTES = 1 << 20
_CLOSE_GRACE_SECONDS = 1.
_CHECK_SECONDS = 1.
_SESSION = re.compile('[0-9]{1,20}')


class ServiceError(RuntimeError):
  """The service cannot start; the message says why."""


class _Snapshot:
  """A version of the weights, encoded when the first actor asks for it."""

  def __init__(self, weights, version):
    self.version = version
    self._weights = weights
    self._lock = threading.Lock()
    self._encoded = None

  def encoded(self, layout):
    with self._lock:
      if self._encoded is None:
        self._encoded = layout.encode(protocol.WeightsMessage(
            np.int64(self.version),
            {name: np.asarray(value) for name, value in self._weights.items()}))
        self._weights = None
      return self._encoded


class Service:
  """Serves the actor jobs of one learner until it is closed.

  Calls are answered by gRPC's threads; the learner's thread only exchanges
  references. The status of a call that cannot be served says why:
    INVALID_ARGUMENT: The message is not what was agreed on.
    FAILED_PRECONDITION: The actor's settings differ from the learner's.
    NOT_FOUND: The session is unknown, the actor has to say hello again.
    OUT_OF_RANGE: Training is done.
    UNAVAILABLE: The learner is about to stop.
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
      put_unroll: A function that takes an `ActorOutput` and may block, as
        `TrajectoryQueue.put`.
      report_episode: A function of level name, episode return and episode
        frames.
      security: A `security.Security`.
      make_actor: None, or, for inference at the learner, a function of a list
        of level names that returns an `actor.Actor` for so many environments.
      max_environments: How many it can be, an int.

    Raises:
      ServiceError: The address cannot be listened on.
    """
    self.run = secrets.token_hex(8)
    self._agreement = agreement
    self._levels = levels
    self._unroll_layout = unroll_layout
    self._weights_layout = weights_layout
    self._put_unroll = put_unroll
    self._report_episode = report_episode
    self._make_actor = make_actor
    self._max_environments = max_environments
    self._sessions = sessions_lib.Sessions()
    self._snapshot = None
    self._done = False
    self._closing = False
    # Threads that decode at the same time lose most of it to the interpreter's
    # lock, for which they wait in turn.
    self._decoding = threading.Lock()

    unary = grpc.unary_unary_rpc_method_handler
    stream = grpc.stream_stream_rpc_method_handler
    handlers = dict(
        Hello=unary(self._hello), PutEpisodes=unary(self._episodes),
        GetWeights=unary(self._get_weights), PutUnroll=stream(self._put_all),
        Act=stream(self._act))
    self._executor = concurrent.futures.ThreadPoolExecutor(
        _MAX_THREADS, 'service')
    self._server = grpc.server(
        self._executor,
        interceptors=[security_lib.Authenticator(security.token)],
        options=protocol.channel_options(max(
            protocol.max_call_bytes(unroll_layout), _MAX_TEXT_BYTES,
            self._steps_layouts(max_environments).max_bytes
            if make_actor else 0)))
    self._server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler(protocol.SERVICE, handlers)])
    credentials = security_lib.server_credentials(security)
    try:
      self.port = (self._server.add_secure_port(address, credentials)
                   if credentials else self._server.add_insecure_port(address))
    except RuntimeError as e:
      raise ServiceError(
          f'The learner cannot listen on {address}: another program does, or '
          'the address is not one of this machine.') from e
    self._server.start()

  def update(self, weights, version):
    """Offers a version of the weights from now on.

    Args:
      weights: A dict of name to tensor, which nobody changes any more.
      version: The update they are from.
    """
    self._snapshot = _Snapshot(weights, version)

  @property
  def num_sessions(self):
    """Actor jobs heard of within the last minute."""
    return len(self._sessions.recent())

  def finish(self):
    """From now on, tells everyone who asks that training is done."""
    self._done = True

  def close(self, timeout=10.):
    """Ends the service. What `put_unroll` puts into must be closed before.

    Args:
      timeout: If training is done, seconds to wait for those to ask that were
        heard of within the last minute.
    """
    self._closing = True
    deadline = time.monotonic() + (timeout if self._done else 0.)
    while self._untold() and time.monotonic() < deadline:
      time.sleep(.1)
    self._server.stop(_CLOSE_GRACE_SECONDS).wait()
    self._executor.shutdown(wait=True)

  def _untold(self):
    return [s for s in self._sessions.recent() if not s.told]

  def _end(self, context, session=None):
    """Says why nothing is served any more."""
    if self._done:
      if session:
        session.told = True
      context.abort(grpc.StatusCode.OUT_OF_RANGE, 'training is done')
    context.abort(grpc.StatusCode.UNAVAILABLE, 'the learner is stopping')

  def _session(self, number, context):
    session = self._sessions.find(number)
    if session is None:
      context.abort(grpc.StatusCode.NOT_FOUND, 'no such session')
    if self._done or self._closing:
      self._end(context, session)
    return session

  def _json(self, message, context):
    try:
      value = json.loads(message)
      if isinstance(value, dict):
        return value
    except (ValueError, RecursionError):
      pass
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, 'expected a JSON object')

  def _hello(self, message, context):
    request = self._json(message, context)
    number = request.get('session')
    session = None
    if request.get('run') == self.run and _is_int(number):
      session = self._sessions.find(number)
    if self._done or self._closing:
      self._end(context, session)
    refusal = self._refusal(request)
    if refusal:
      context.abort(*refusal)
    if session is None:
      number = self._sessions.add(request['levels'])
      logging.info('Actor %d has joined with %d environments, from %s',
                   request['task'], len(request['levels']), context.peer())
    return json.dumps(dict(
        run=self.run, session=number, levels=self._levels)).encode()

  def _refusal(self, request):
    """Why an actor may not join, status and details; None if it may."""
    precondition = grpc.StatusCode.FAILED_PRECONDITION
    difference = protocol.difference(
        self._agreement, request.get('agreement'))
    if difference:
      return precondition, difference
    task, levels = request.get('task'), request.get('levels')
    if not (_is_int(task, 0, 2**31) and isinstance(levels, list) and
            0 < len(levels) <= _MAX_ENVIRONMENTS and
            all(isinstance(level, str) for level in levels)):
      return (grpc.StatusCode.INVALID_ARGUMENT,
              'expected a task and the level of every environment')
    unknown = set(levels) - set(self._levels)
    if unknown:
      return (precondition, '--level_name: the learner does not train '
              f'{protocol.quote(min(unknown))}')
    if self._make_actor and len(levels) > self._max_environments:
      return (precondition, f'--envs_per_actor: {len(levels)} environments are '
              'more than the --inference_maximum_batch_size of the learner, '
              f'{self._max_environments}')
    return None

  def _put_all(self, messages, context):
    for message in _until_cut(messages):
      yield self._put(message, context)

  def _put(self, message, context):
    refuse = functools.partial(context.abort, grpc.StatusCode.INVALID_ARGUMENT)
    try:
      with self._decoding:
        unrolls = wire.decode_all(self._unroll_layout, message)
    except wire.WireError as e:
      refuse(str(e))
    if len({int(unroll.session) for unroll in unrolls}) > 1:
      refuse('the unrolls are not of one session')
    with self._session(int(unrolls[0].session), context) as session:
      snapshot = self._snapshot
      newest = max(int(unroll.policy_version) for unroll in unrolls)
      if snapshot and newest > snapshot.version:
        refuse(f'policy_version is {newest}, and the newest is '
               f'{snapshot.version}')
      # Unrolls that are sent again wait for their first sending to end.
      while not session.lock.acquire(timeout=_CHECK_SECONDS):
        if not context.is_active():
          return b''
      try:
        for unroll in unrolls:
          self._take(unroll, session)
      except staging.Closed:
        self._end(context, session)
      finally:
        session.lock.release()
    return b''

  def _take(self, unroll, session):
    """Puts an unroll into the queue, unless that has been done."""
    if unroll.sequence <= session.sequence:
      return
    self._put_unroll(trajectories.ActorOutput(
        level_name=self._levels[unroll.level],
        agent_state=unroll.agent_state,
        env_outputs=unroll.env_outputs,
        agent_outputs=unroll.agent_outputs,
        policy_version=np.int64(unroll.policy_version)))
    session.sequence = int(unroll.sequence)

  def _episodes(self, message, context):
    request = self._json(message, context)
    episodes = request.get('episodes')
    sequence = request.get('sequence')
    if not (_is_int(sequence, 1, 2**63) and _is_int(request.get('session')) and
            isinstance(episodes, list) and
            len(episodes) <= protocol.MAX_EPISODES_PER_CALL and
            all(self._is_episode(episode) for episode in episodes)):
      context.abort(grpc.StatusCode.INVALID_ARGUMENT,
                    'expected a list of [level, return, frames]')
    with self._session(request['session'], context) as session:
      with session.lock:
        if sequence > session.episode_sequence:
          for episode in episodes:
            self._report_episode(*episode)
          session.episode_sequence = sequence
    return b''

  def _is_episode(self, episode):
    if not isinstance(episode, list) or len(episode) != 3:
      return False
    level, episode_return, frames = episode
    return (level in self._levels and isinstance(episode_return, float) and
            np.isfinite(episode_return) and _is_int(frames, 0, 2**63))

  def _get_weights(self, message, context):
    try:
      number, known_version = struct.unpack('<Qq', message)
    except struct.error:
      context.abort(grpc.StatusCode.INVALID_ARGUMENT,
                    'expected a session and a version')
    with self._session(number, context):
      snapshot = self._snapshot
      if snapshot is None:
        context.abort(grpc.StatusCode.UNAVAILABLE, 'there are no weights yet')
      if snapshot.version == known_version:
        return b''
      return snapshot.encoded(self._weights_layout)

  def _act(self, messages, context):
    number = dict(context.invocation_metadata()).get(protocol.SESSION_KEY, '')
    if not _SESSION.fullmatch(number):
      context.abort(grpc.StatusCode.INVALID_ARGUMENT, 'expected a session')
    with self._session(int(number), context) as session:
      if self._make_actor is None:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION,
                      '--inference is "actor" at the learner')
      actor = self._make_actor(session.levels)
      layouts = self._steps_layouts(len(session.levels))
      try:
        for message in _until_cut(messages):
          if self._done or self._closing:
            self._end(context, session)
          steps, answer = layouts.decode(message)
          ids, actions = actor.act(
              steps.ids, steps.step_output, steps.is_first, steps.is_last)
          yield answer.encode(protocol.ActionsMessage(ids, actions))
      except wire.WireError as e:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
      except (staging.Closed, dynamic_batching.CancelledError):
        self._end(context, session)

  def _steps_layouts(self, num_environments):
    spec = [environments.ArraySpec(tuple(shape), np.dtype(dtype))
            for shape, dtype in self._agreement['observations']]
    return protocol.StepsLayouts(
        spec, num_environments, self._agreement['num_actions'])


def _until_cut(messages):
  """Yields a stream's messages until the connection ends.

  That is no error: the actor comes back with another.
  """
  try:
    yield from messages
  except grpc.RpcError:
    return


def _is_int(value, low=0, high=2**64):
  return (isinstance(value, int) and not isinstance(value, bool) and
          low <= value < high)
