"""What actor jobs that have the policy have in common."""

import threading
import time
import types

import numpy as np
import pytest

from scalable_agent.jobs import a3c_worker
from scalable_agent.jobs import learner_link
from scalable_agent.jobs import policy_at_actor
from scalable_agent.process import allocator
from tests import learners
from tests.jobs import test_a3c_worker
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')


class _StartingPool(test_a3c_worker._Pool):
  """An environment whose first output takes until `start`."""

  def __init__(self):
    super().__init__()
    self._has_started = threading.Event()

  def start(self):
    self._has_started.set()

  def recv(self):
    self._has_started.wait()
    return super().recv()

  def close(self):
    super().close()
    self.start()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
  monkeypatch.setattr(allocator, 'keep_freed_memory', lambda: None)
  monkeypatch.setattr(learner_link, '_REPORT_SECONDS', .01)


_each_kind = pytest.mark.parametrize('acting, architecture', [
    (policy_at_actor, 'impala'), (a3c_worker, 'a3c')])


@_each_kind
def test_a_learner_expects_nothing_of_environments_that_start(
    acting, architecture):
  """Which may take longer than it waits for a batch."""
  agent, pool = learners.make_agent(), _StartingPool()
  with test_a3c_worker._serving(
      agent, agent.initial_params(0), 0, architecture=architecture) as (
          server, queue):
    actors = acting.start(
        test_a3c_worker._config(architecture, job_name='actor'), [pool],
        remote_parts.link_maker(server._service.port))
    try:
      while not server._service.num_jobs:  # It would hear of the end.
        actors.check()
        time.sleep(.01)
      time.sleep(.5)
      actors.check()
      assert not server.are_expected()
      pool.start()
      test_a3c_worker._take(queue, actors.check)
      assert server.are_expected()
    finally:
      pool.close()
      actors.close()


def test_no_two_sessions_draw_the_same_actions(monkeypatch):
  """Neither two actor jobs, nor one of them before and after a restart."""
  made = []
  monkeypatch.setattr(learner_link.policy_lib, 'Policy',
                      lambda *args, **kwargs: made.append((args, kwargs)))
  for session in 1, 2:
    link = learner_link.LearnerLink.__new__(learner_link.LearnerLink)
    link.config, link.agent = test_a3c_worker._config('impala'), 'agent'
    link.client = types.SimpleNamespace(session=session)
    link.devices = types.SimpleNamespace(inference='/cpu:1', jit_compile=False)
    link.create_policy('weights', 8)
  (first, one), (second, other) = made
  assert first == second == ('agent', 'weights', 8)
  assert one.pop('seed') != other.pop('seed')
  assert one == other == dict(device='/cpu:1', jit_compile=False)


def test_weights_are_renewed_once_an_environment_has_used_them():
  asked, updates = [], []

  def get_weights(version):
    asked.append(version)
    # The third time there are none that are newer.
    count = len(asked)
    return (f'weights {count}', 10 * count) if count < 3 else None

  def create_policy(weights, version):
    policy = types.SimpleNamespace(weights=weights, version=version)

    def update(weights, version):
      updates.append(weights)
      policy.version = version

    policy.update = update
    return policy

  shared = policy_at_actor._SharedPolicy(types.SimpleNamespace(
      client=types.SimpleNamespace(get_weights=get_weights),
      create_policy=create_policy))
  shared.refresh(np.array([-1]))
  assert (shared.policy.weights, shared.policy.version) == ('weights 1', 10)
  shared.refresh(np.array([0, 5]))  # These have not begun an unroll with it.
  assert (asked, updates) == ([-1], [])
  shared.refresh(np.array([0, 10]))
  assert (asked, updates, shared.policy.version) == (
      [-1, 10], ['weights 2'], 20)
  shared.refresh(np.array([20]))
  assert (asked, updates) == ([-1, 10, 20], ['weights 2'])


class _NanPool(test_a3c_worker._Pool):
  """An environment whose every step ends an episode, with a reward of NaN."""

  def recv(self):
    output = super().recv()
    step_output = output.step_output
    nan = np.full([1], np.nan, np.float32)
    return output._replace(
        is_last=np.ones([1], bool), step_output=step_output._replace(
            reward=nan, info=step_output.info._replace(episode_return=nan)))


@_each_kind
def test_a_reward_that_is_not_finite_does_not_end_the_job(acting, architecture):
  """As it does not end a thread: the learner skips the update."""
  agent, pool, episodes = learners.make_agent(), _NanPool(), []
  weights = agent.initial_params(0)
  with test_a3c_worker._serving(
      agent, weights, 0, architecture=architecture,
      report_episode=episodes.append) as (server, queue):
    actors = acting.start(
        test_a3c_worker._config(architecture, job_name='actor'), [pool],
        remote_parts.link_maker(server._service.port))
    try:
      for version in range(1, 4):
        unroll = test_a3c_worker._take(queue, actors.check)
        assert np.isnan(unroll.env_outputs.reward).all()
        server.publish(weights, version)
      remote_parts.wait_until(lambda: actors.check() or len(episodes) > 10)
      assert all(np.isnan(e.episode_return) for e in episodes)
    finally:
      pool.close()
      actors.close()
