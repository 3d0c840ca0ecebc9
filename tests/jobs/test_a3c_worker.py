"""Workers of A3C that are jobs: what their learner makes of their gradients."""

import contextlib
import logging as python_logging
import time
import types

import grpc
import numpy as np
import pytest

from scalable_agent import a3c
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.jobs import a3c_worker
from scalable_agent.jobs import actor_server
from scalable_agent.jobs import layouts
from scalable_agent.learner_service import protocol
from scalable_agent.process import allocator
from scalable_agent.process import timing
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import security as security_lib
from scalable_agent.unroll_messages import unroll_message
from tests import learners
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')

_LEVEL = 'synthetic:'
_LENGTH = 5
_SECURITY = security_lib.Security()
_FACTS = types.SimpleNamespace(
    num_actions=learners.NUM_ACTIONS,
    observation_spec=(environments.ArraySpec((4,), np.dtype(np.float32)),))


def _config(architecture='a3c', **values):
  return config_lib.resolve(dict(
      values, level_name=_LEVEL, architecture=architecture, task=0,
      batch_size=1, network='vector', unroll_length=_LENGTH))


class _Pool(environments.Pool):
  """One environment, of noise, whose episode does not end."""

  num_environments = 1
  num_actions = _FACTS.num_actions
  observation_spec = _FACTS.observation_spec
  level_names = [_LEVEL]

  def __init__(self):
    self._rng = np.random.default_rng(0)
    self._is_first = np.ones([1], bool)
    self._is_closed = False

  def recv(self):
    if self._is_closed:
      raise environments.PoolError('closed')
    nothing = np.zeros([1], np.float32)
    count = np.zeros([1], np.int32)
    return environments.PoolOutput(
        count, environments.StepOutput(
            nothing, environments.StepOutputInfo(nothing, count),
            self._is_first,
            (self._rng.normal(size=[1, 4]).astype(np.float32),)),
        self._is_first, np.zeros([1], bool))

  def send(self, ids, actions):
    self._is_first = np.zeros([1], bool)

  def close(self):
    self._is_closed = True


@contextlib.contextmanager
def _serving(agent, weights, version, port=0, architecture='a3c',
             report_episode=lambda episode: None):
  """A life of a learner: yields its server, and the queue of gradients."""
  queue = staging.TrajectoryQueue(4)
  server = actor_server.ActorServer(
      _config(architecture), _FACTS, f'127.0.0.1:{port}', _SECURITY, agent,
      None, queue.put, report_episode, timing.StageTimes())
  server.publish(weights, version)
  try:
    yield server, queue
  finally:
    queue.close()
    server.close()


def _take(queue, check=lambda: None):
  remote_parts.wait_until(lambda: check() or len(queue))
  (unroll,) = queue.get_many(1)
  return unroll


def _message(agent, session, sequence, gradient):
  """What sends a gradient, and nothing else that counts."""
  layout = layouts.unroll_layout(_config(), agent, _FACTS, 1)
  shape = [_LENGTH + 1]
  return layout.encode(unroll_message.UnrollMessage(
      session=np.uint64(session), sequence=np.int64(sequence),
      level=np.int32(0), policy_version=np.int64(0), agent_state=(),
      env_outputs=environments.StepOutput(
          np.zeros(shape, np.float32), environments.StepOutputInfo(
              np.zeros(shape, np.float32), np.zeros(shape, np.int32)),
          np.zeros(shape, bool), ()),
      agent_outputs=trajectories.AgentOutput(
          np.zeros(shape, np.int32),
          np.zeros([*shape, learners.NUM_ACTIONS], np.float32),
          np.zeros(shape, np.float32)),
      gradient=gradient, stream=np.int64(0)))


def test_a_gradient_that_was_sent_again_makes_one_update():
  """The answers are lost, before the update is made and after."""
  agent = learners.make_agent()
  learner, expected = (learners.make_learner(agent) for _ in range(2))
  like = a3c.gradient_like(agent)
  gradient = like._replace(dense={
      name: np.ones_like(value) for name, value in like.dense.items()})
  expected.apply(gradient)
  with _serving(agent, learner.weights(), 0) as (server, queue):
    with remote_parts.Raw(server._service.port) as raw:
      session = raw.hello(levels=[_LEVEL], agreement=protocol.agreement(
          _config(), _FACTS))
      message = _message(agent, session, 1, gradient)
      for _ in range(2):
        waiting = raw.future('PutUnroll', message)
        time.sleep(.2)
        waiting.cancel()
      again = remote_parts.Thread(raw.unary, 'PutUnroll', message)
      learner.apply(_take(queue).gradient)
      server.publish(learner.weights(), learner.steps)
      assert again.result() == (grpc.StatusCode.OK, b'')
      assert raw.unary('PutUnroll', message) == (grpc.StatusCode.OK, b'')
      assert not len(queue)
      # The next one is another. A call that nobody holds is cancelled.
      unused_call = raw.future(
          'PutUnroll', _message(agent, session, 2, gradient))
      _take(queue)
  assert learner.steps == 1
  for a, b in zip(learner.variables(), expected.variables(), strict=True):
    np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_gradient_of_a_learner_that_is_gone_is_dropped(monkeypatch, caplog):
  """Although the next learner is at the same update, as after a resume."""
  caplog.set_level(python_logging.INFO)
  monkeypatch.setattr(allocator, 'keep_freed_memory', lambda: None)
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .05)
  agent = learners.make_agent()
  weights = agent.initial_params(0)
  with _serving(agent, weights, 9) as (server, queue):
    port = server._service.port
    pool = _Pool()
    actors = a3c_worker.start(
        _config(job_name='actor'), [pool], remote_parts.link_maker(port))
    try:
      unroll = _take(queue, actors.check)
      assert np.abs(unroll.agent_outputs.policy_logits[1:]).min() > 0
      # Nobody makes its update, for which the worker waits.
    finally:
      queue.close()
      server.close()
    nothing = {name: np.zeros_like(value) for name, value in weights.items()}
    with _serving(agent, nothing, 9, port) as (_, queue):
      unroll = _take(queue, actors.check)
      assert not unroll.agent_outputs.policy_logits[1:].any()
      assert unroll.policy_version == 9
    pool.close()
    actors.close()
  assert ('1 gradients were begun with the weights of a learner that is '
          'gone') in caplog.text
