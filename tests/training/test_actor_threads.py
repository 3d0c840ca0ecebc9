"""Actor threads, as the training loop sees them."""

import contextlib
import dataclasses
import itertools
import types

import pytest

from scalable_agent import config as config_lib
from scalable_agent.evaluation import play
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


@pytest.mark.parametrize('architecture, is_staggered', [
    ('impala', True), ('a2c_sync_step', False)])
def test_environments_begin_in_turn_unless_they_wait_for_each_other(
    monkeypatch, architecture, is_staggered):
  options = []
  monkeypatch.setattr(
      actor_threads.threads, 'CheckedThreads', lambda pools, act: act(*pools))
  monkeypatch.setattr(actor_threads.film, 'Camera', lambda pool: pool)
  monkeypatch.setattr(
      actor_threads.actor, 'run_actor', lambda *unused_args: None)
  monkeypatch.setattr(
      actor_threads.actor, 'Actor',
      lambda *unused_args, **kwargs: options.append(kwargs))
  pool = types.SimpleNamespace(
      num_environments=4, num_actions=2, level_names=['pong'] * 4)
  agent = types.SimpleNamespace(initial_state=lambda batch_size: ())
  actor_threads.ActorThreads(
      config_lib.resolve(dict(level_name='pong', architecture=architecture)),
      [pool], agent, None, None, None, None)
  (found,) = options
  assert found.get('is_staggered', False) == is_staggered


def test_pools_that_replace_nothing_are_not_asked(make):
  threads = make(object())
  assert threads.are_expected()
  assert threads.gauges() == {}


def test_what_was_replaced_is_summed(make):
  assert make(_replacing(2), _replacing(3)).gauges() == dict(num_replaced=5)
