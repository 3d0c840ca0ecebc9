"""Actor threads, as the training loop sees them."""

import contextlib
import dataclasses
import itertools
import types

import numpy as np
import pytest

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import staging
from scalable_agent.evaluation import play
from scalable_agent.process import timing
from scalable_agent.training import actor_threads


@pytest.fixture(name='make')
def _make(monkeypatch):
  """Makes `ActorThreads` whose threads do nothing."""
  monkeypatch.setattr(
      actor_threads.threads, 'CheckedThreads', lambda pools, act: None)
  monkeypatch.setattr(actor_threads.film, 'Camera', lambda pool: pool)
  return lambda *pools: actor_threads.ActorThreads(
      config_lib.resolve(dict(level_name='pong')), list(pools), None, None,
      None, None, None)


def _replacing(num_replaced=0):
  return types.SimpleNamespace(has_started=False, num_replaced=num_replaced)


def test_unrolls_are_expected_once_all_environments_have_started(make):
  first, second = _replacing(), _replacing()
  threads = make(first, second, object())
  assert not threads.are_expected()
  first.has_started = True
  assert not threads.are_expected()
  second.has_started = True
  assert threads.are_expected()


def test_other_runs_and_resumed_ones_have_other_seeds(monkeypatch, tmp_path):
  """Else it would play the same first episodes after every start."""
  seeds = []

  def make_pools(config, layout, seed):
    seeds.append(seed)
    return [types.SimpleNamespace(close=lambda: None)]

  monkeypatch.setattr(actor_threads.suites, 'make_pools', make_pools)
  config = config_lib.resolve(
      dict(level_name='gym:CartPole-v1', logdir=str(tmp_path), seed=7))
  for frames in (0, 300, 1_000_000, 2**31):
    if frames:
      (tmp_path / f'ckpt-{frames}.index').touch()
      (tmp_path / f'ckpt-{frames}.data-00000-of-00001').touch()
    actor_threads.start(config, contextlib.ExitStack())
  actor_threads.start(dataclasses.replace(config, seed=8),
                      contextlib.ExitStack())
  seeds.append(play.seed(config))
  assert all(abs(a - b) > 1000 for a, b in itertools.combinations(seeds, 2))


class _Pool:
  """Four environments, all of them always ready."""

  num_environments = 4
  level_names = ['a', 'b', 'c', 'd']
  observation_spec = (environments.ArraySpec((1,), np.float32),)

  def __init__(self):
    self.num_recvs = 0

  def recv(self):
    floats, ints = np.zeros([4], np.float32), np.zeros([4], np.int32)
    is_first = np.full([4], self.num_recvs == 0)
    self.num_recvs += 1
    return environments.PoolOutput(
        np.arange(4, dtype=np.int32), environments.StepOutput(
            floats, environments.StepOutputInfo(floats, ints), is_first,
            (floats[:, np.newaxis],)),
        is_first, np.zeros([4], bool))

  def send(self, ids, actions):
    pass

  def close(self):
    pass


@pytest.mark.usefixtures('bounded')
@pytest.mark.parametrize('architecture, num_recvs', [
    ('impala', [5, 6, 7, 8]), ('a2c_sync_step', [5, 5, 5, 5])])
def test_environments_begin_in_turn_unless_they_wait_for_each_other(
    architecture, num_recvs):
  """Seen by when each has the five entries of its first unroll of length 4."""
  pool, found = _Pool(), {}

  def put(unroll):
    found.setdefault(unroll.level_name, pool.num_recvs)
    if len(found) == 4:
      raise staging.Closed

  actors = actor_threads.ActorThreads(
      config_lib.resolve(dict(
          level_name='pong', architecture=architecture, num_actors=4,
          batch_size=4, unroll_length=4)), [pool],
      types.SimpleNamespace(num_actions=2, initial_state=lambda size: ()),
      lambda actions, unused_output, state: (
          actor.initial_output(4, 2), state, np.zeros([4], np.int64)),
      put, None, timing.StageTimes())
  actors.close()
  assert found == dict(zip('abcd', num_recvs))


def test_pools_that_replace_nothing_are_not_asked(make):
  threads = make(object())
  assert threads.are_expected()
  assert threads.gauges() == {}


def test_what_was_replaced_is_summed(make):
  assert make(_replacing(2), _replacing(3)).gauges() == dict(num_replaced=5)
