"""The methods of a learner's service: what each of them checks and does."""

import asyncio
import collections
import contextlib
import functools
import re
import struct

from absl import logging
import grpc
import numpy as np

from scalable_agent import dynamic_batching
from scalable_agent import staging
from scalable_agent.learner_service import intake
from scalable_agent.learner_service import protocol
from scalable_agent.learner_service import roll_call
from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import channels
from scalable_agent.remote import sessions as sessions_lib
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import agreements

# Environments of an actor job that has the policy. If the learner has it, a
# setting bounds them.
_MAX_ENVIRONMENTS = 4096
_SESSION = re.compile('[0-9]{1,20}')
# How many numbers of environments to keep layouts for.
_MAX_LAYOUTS = 16

Offer = collections.namedtuple(
    'Offer', 'agreement levels unroll_layout weights_layout put_unroll '
    'report_episode make_actor facts max_environments',
    defaults=(None, None, 1024))
Offer.__doc__ = """What a learner has for its actor jobs.

  agreement: Of `protocol.agreement`.
  levels: A list of level names that actors may play.
  unroll_layout: The `wire.Layout` of unrolls.
  weights_layout: The `wire.Layout` of weights.
  put_unroll: A function of an `ActorOutput` and whether to wait, as
    `TrajectoryQueue.put`.
  report_episode: A function of level name, episode return and episode frames.
  make_actor: None, or, for inference at the learner, a function of a list of
    level names that returns an `actor.Actor` for an environment of each.
  facts: With `make_actor`, has `num_actions` and `observation_spec`, as an
    `environments.Pool`.
  max_environments: The largest number of environments of such an actor.
"""

Rejected, bad, is_int = calls_lib.Rejected, calls_lib.bad, calls_lib.is_int


class Job:
  """Who has a session: an actor job, or one of its pools.

  It is a pool if inference is at the learner.

  Attributes:
    task: Index of the actor job.
    levels: int32, the level of each environment of a pool; empty for an actor
      job, whose unrolls say their level.
    acts: Whether its environments have started, as far as its calls tell.
    told: Whether it was told that training is done.
  """

  __slots__ = ('task', 'levels', 'acts', 'told')

  def __init__(self, task, levels):
    self.task = task
    self.levels = levels
    self.acts = self.told = False


class Snapshot:
  """A version of the weights, encoded when the first actor asks for it."""

  def __init__(self, weights, version):
    """Initializes the snapshot with a dict of name to tensor and an int."""
    self.version = version
    self._weights = weights
    self._encoded = None

  async def encoded(self, layout, threads):
    """Returns its message, encoded by one of a `thread_pool.ThreadPool`."""
    if self._encoded is None:
      self._encoded = threads.call(self._encode, layout)
    # If one caller stops waiting, the others still get it.
    return await asyncio.shield(self._encoded)

  def _encode(self, layout):
    message = layout.encode(protocol.WeightsMessage(
        np.int64(self.version),
        {name: np.asarray(value) for name, value in self._weights.items()}))
    self._weights = None
    return message


class Methods:
  """Answers calls in the event loop's thread.

  Other threads act, encode weights, and wait for room in the queue.

  Each method takes a `calls.Call` and a message, and returns its answer, see
  `server.each`. `act` is the `begin` of a `server.Method`.

  Attributes:
    sessions: A `sessions.Sessions`, about `Job`s.
    snapshot: The newest `Snapshot`, None for none.
    is_done: Whether training is.
    is_closing: Whether the service is.
  """

  def __init__(self, offer, server):
    """Initializes the methods.

    Args:
      offer: An `Offer`.
      server: The `server.Server` that will have them.
    """
    self.sessions = sessions_lib.Sessions(protocol.US, 'actor jobs')
    self.snapshot = None
    self.is_done = False
    self.is_closing = False
    self._roll_call = roll_call.RollCall(
        self.sessions, has_pools=offer.make_actor is not None)
    self._offer = offer
    self._server = server
    self._level_indices = {level: i for i, level in enumerate(offer.levels)}
    # Levels of which no actor job has had an environment so far.
    self._unplayed = set(offer.levels)
    self._max_environments = (
        offer.max_environments if offer.make_actor else _MAX_ENVIRONMENTS)
    self.steps_layouts = functools.lru_cache(_MAX_LAYOUTS)(
        self._make_steps_layouts)
    self._intake = intake.UnrollIntake(
        offer, server, self._check_open, self.end)

  def _make_steps_layouts(self, num_environments):
    facts = self._offer.facts
    return protocol.StepsLayouts(
        facts.observation_spec, num_environments, facts.num_actions)

  def end(self, session=None):
    """Returns the `Rejected` that says why nothing is served any more."""
    if self.is_done:
      if session:
        session.about.told = True
      return Rejected(grpc.StatusCode.OUT_OF_RANGE, 'training is done')
    return Rejected(grpc.StatusCode.UNAVAILABLE, 'the learner is stopping')

  def _check_open(self, session):
    if self.is_done or self.is_closing:
      raise self.end(session)

  def _session(self, number):
    session = self.sessions.find(number)
    if session is None:
      raise Rejected(grpc.StatusCode.NOT_FOUND, 'no such session')
    self._check_open(session)
    return session

  def check(self):
    """Ends old sessions, and says which actor jobs are gone."""
    self.sessions.expire()
    if not (self.is_done or self.is_closing):
      self._roll_call.check()

  async def hello(self, call, message):
    """Makes a session, or finds one again; answers its number and the levels.
    """
    request = calls_lib.read_json(message)
    self._check_open(self.sessions.find(self.sessions.number_in(request)))
    refusal = self._refusal(request)
    if refusal:
      raise Rejected(*refusal)
    job = Job(request['task'], np.array(
        [self._level_indices[level] for level in request['levels']]
        if self._offer.make_actor else [], np.int32))
    answer, is_new = self.sessions.welcome(
        request, job, levels=self._offer.levels)
    if is_new:
      self._unplayed -= set(request['levels'])
      logging.info(
          '%s %d has joined with %d environments, from %s%s',
          'A pool of actor' if self._offer.make_actor else 'Actor',
          job.task, len(request['levels']), call.address,
          f'; {len(self._unplayed)} of {len(self._offer.levels)} levels have '
          'no environment yet' if self._unplayed else '')
    return answer

  def _refusal(self, request):
    """Returns why an actor may not join, status and details; or None."""
    precondition = grpc.StatusCode.FAILED_PRECONDITION
    difference = agreements.difference(
        self._offer.agreement, request.get('agreement'), protocol.US,
        protocol.THEM)
    if difference:
      return precondition, difference
    task, levels = request.get('task'), request.get('levels')
    if not (is_int(task, 0, 2**31) and isinstance(levels, list) and levels and
            all(isinstance(level, str) for level in levels)):
      return (grpc.StatusCode.INVALID_ARGUMENT,
              'expected a task and the level of every environment')
    unknown = set(levels) - self._level_indices.keys()
    if unknown:
      return (precondition, '--level_name: the learner does not train '
              f'{agreements.quote(min(unknown))}')
    if len(levels) > self._max_environments:
      text = (
          f'--num_pools: a pool of {len(levels)} environments is larger than '
          'the --inference_maximum_batch_size of the learner'
          if self._offer.make_actor else
          f'--envs_per_actor: {len(levels)} environments are more than an '
          'actor job may have')
      return precondition, f'{text}, {self._max_environments}'
    return None

  async def put_unrolls(self, call, message):
    """Puts unrolls into the queue as there is room for them; answers b''."""
    try:
      session = self._session(
          int(self._offer.unroll_layout.peek(message, 'session')))
      session.about.acts = True
      self._server.calls.join(call, session)
      with session:
        await self._intake.put(message, session, self.snapshot)
      return b''
    except wire.WireError as e:
      raise bad(str(e)) from e

  async def put_episodes(self, unused_call, message):
    """Reports episodes that were not reported before; answers b''."""
    request = calls_lib.read_json(message)
    episodes = request.get('episodes')
    sequence = request.get('sequence')
    if not (is_int(sequence, 1, 2**63) and is_int(request.get('session')) and
            isinstance(episodes, list) and
            len(episodes) <= protocol.MAX_EPISODES_PER_CALL and
            all(self._is_episode(episode) for episode in episodes)):
      raise bad('expected a list of [level, return, frames]')
    with self._session(request['session']) as session:
      if sequence > session.episode_sequence:
        for episode in episodes:
          self._offer.report_episode(*episode)
        session.episode_sequence = sequence
    return b''

  def _is_episode(self, episode):
    if not isinstance(episode, list) or len(episode) != 3:
      return False
    level, episode_return, frames = episode
    return (isinstance(level, str) and level in self._level_indices and
            isinstance(episode_return, float) and is_int(frames, 0, 2**63))

  async def get_weights(self, call, message):
    """Answers the newest weights; b'' if the actor has them."""
    try:
      number, known_version = struct.unpack('<Qq', message)
    except struct.error as e:
      raise bad('expected a session and a version') from e
    with self._session(number) as session:
      session.about.acts = True
      self._server.calls.join(call, session)
      snapshot = self.snapshot
      if snapshot is None:
        raise Rejected(grpc.StatusCode.UNAVAILABLE, 'there are no weights yet')
      if snapshot.version == known_version:
        return b''
      return await snapshot.encoded(
          self._offer.weights_layout, self._server.threads)

  @contextlib.contextmanager
  def act(self, call, metadata):
    """Acts for the environments of an actor job."""
    number = dict(metadata).get(channels.SESSION_KEY, '')
    if not _SESSION.fullmatch(number):
      raise bad('expected a session')
    with self._session(int(number)) as session:
      if self._offer.make_actor is None:
        raise Rejected(grpc.StatusCode.FAILED_PRECONDITION,
                      '--inference is "actor" at the learner')
      session.about.acts = True
      self._server.calls.join(call, session)
      levels = session.about.levels
      layouts = self.steps_layouts(len(levels))
      # Each environment has an unfinished unroll.
      self._server.calls.add_bytes(
          call, len(levels) * self._offer.unroll_layout.num_bytes)
      actor = self._offer.make_actor([self._offer.levels[i] for i in levels])
      yield functools.partial(self._act, session, actor, layouts)

  async def _act(self, session, actor, layouts, message):
    self._check_open(session)
    try:
      return await self._server.threads.call(_act, actor, layouts, message)
    except wire.WireError as e:
      raise bad(str(e)) from e
    except (staging.Closed, dynamic_batching.CancelledError) as e:
      raise self.end(session) from e


def _act(actor, layouts, message):
  """Acts as a message of steps says; returns the message of the actions."""
  steps, answer = layouts.decode(message)
  ids, actions = actor.act(
      steps.ids, steps.step_output, steps.is_first, steps.is_last)
  return answer.encode(protocol.ActionsMessage(ids, actions))
