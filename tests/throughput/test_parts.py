"""Parts of a run, each measured alone."""

import collections
import threading
import time
import types

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.environments import PoolError
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.process import errors
from scalable_agent.throughput import comparison
from scalable_agent.throughput import parts

_Output = collections.namedtuple('_Output', 'ids')


class _Pool:
  """Four environments whose steps take a time, after some that take none.

  They may die after some.
  """

  num_actions = 3

  def __init__(self, step_seconds, dies_after=None, num_fast=0):
    self._step_seconds = step_seconds
    self._dies_after = dies_after
    self._num_fast = num_fast
    self._steps = 0
    self.is_closed = False

  def recv(self):
    if self._steps >= self._num_fast:
      time.sleep(self._step_seconds)
    if self._steps == self._dies_after:
      raise PoolError('Environment 3 died.')
    self._steps += 1
    return _Output(np.arange(4))

  def send(self, ids, actions):
    pass

  def close(self):
    self.is_closed = True


def _config(**values):
  return config_lib.resolve(dict(level_name='gym:CartPole-v1', **values))


def test_environments_are_measured():
  measured = parts.measure_environments(
      _config(), [_Pool(.01), _Pool(.01)], .2)
  assert 100 < measured.rate <= 900 and measured.core_seconds >= 0


def test_frames_are_those_of_repeated_actions_after_the_warm_up():
  measured = parts.measure_environments(
      _config(num_action_repeats=4), [_Pool(.01, num_fast=500)], .5)
  # Fifty steps at the most, and one that had begun before.
  assert 52 * 4 / .5 < measured.rate <= 52 * 4 * 4 / .5


def test_a_pool_that_dies_ends_the_measurement():
  """The rate of the rest would be taken for that of all."""
  begin = time.monotonic()
  with pytest.raises(PoolError, match='^Environment 3 died.$'):
    parts.measure_environments(_config(), [_Pool(.01), _Pool(.01, 5)], 9.)
  assert time.monotonic() - begin < 5


def test_environments_that_make_no_step_in_time():
  count = threading.active_count()
  with pytest.raises(errors.Failure, match=(
      '^No environment of gym:CartPole-v1 has made a step within '
      '--measure_secs=0.1. Set it to more.$')):
    parts.measure_environments(_config(), [_Pool(.5)], .1)
  assert threading.active_count() == count


_REACTOR = dict(
    agent='reactor', v_min=0., v_max=100., num_actors=4, batch_size=4,
    unroll_length=4, replay_steps=2000, replay_min_steps=100)


def _bench(values):
  floats = np.zeros([4], np.float32)
  step_output = StepOutput(
      floats, StepOutputInfo(floats, np.zeros([4], np.int32)), floats > 0,
      (np.zeros([4, 3], np.float32),))
  return parts.Bench(
      _config(**values), types.SimpleNamespace(
          num_environments=4, num_actions=2, level_names=['level']),
      step_output, types.SimpleNamespace(
          num_actions=2, initial_state=lambda size: ()),
      types.SimpleNamespace(place=lambda batch: batch))


def _measure_data_path(values):
  return parts.measure_batches(_bench(values), size=2, seconds=.3)


@pytest.mark.parametrize('values, has_priorities', [
    (_REACTOR, True), (dict(num_actors=4, batch_size=4), False)])
def test_what_a_batch_takes_besides_its_update(
    monkeypatch, values, has_priorities):
  """With Reactor that is to set the priorities of its sequences too."""
  sources = []
  create = parts.learner_assembly.create_source

  def create_and_note(*args):
    sources.append(create(*args))
    return sources[-1]

  monkeypatch.setattr(parts.learner_assembly, 'create_source', create_and_note)
  assert _measure_data_path(values).rate > 0
  (source,) = sources
  known = source.take_gauges().get('known_priorities')
  assert known > .1 if has_priorities else known is None


@pytest.mark.usefixtures('bounded')
def test_what_stops_the_data_path_is_raised_where_a_batch_is_awaited(
    monkeypatch):
  def act(*unused_args):
    raise MemoryError('no unroll')

  monkeypatch.setattr(parts.actor, 'run_actor', act)
  count = threading.active_count()
  with pytest.raises(MemoryError, match='^no unroll$'):
    _measure_data_path(dict(num_actors=4, batch_size=4))
  assert threading.active_count() == count


def test_frames_of_the_policy_are_those_of_repeated_actions():
  bench = _bench(dict(num_actors=4, batch_size=4, num_action_repeats=4))
  calls = []

  def policy(actions, step_output, state):
    assert step_output.reward.shape == actions.shape
    calls.append(len(actions))
    time.sleep(.01)

  measured = parts.measure_inference(bench, policy, [1, 8], .4)
  # In a hundredth of a second or more.
  assert 8 * 4 * 30 < measured[8].rate <= 8 * 4 / .01
  assert 1 * 4 * 30 < measured[1].rate <= 1 * 4 / .01
  assert set(calls) == {1, 8}


_REPLAY = dict(num_actors=4, batch_size=8, unroll_length=4,
               replay_proportion=.5, replay_capacity=20)


@pytest.mark.parametrize('values, num_replayed', [
    (_REPLAY, 4), (_REACTOR, 4), (dict(num_actors=4, batch_size=8), 0)])
def test_staging_hands_out_batches_of_unrolls_that_are_there(
    monkeypatch, values, num_replayed):
  monkeypatch.setattr(parts.actor, 'run_actor', None)
  used = []
  measured = parts.measure_staging(_bench(values), used.append, .3)
  config = _config(**values)
  for batch in used:
    assert batch.is_replayed.sum() == num_replayed
    assert batch.unrolls.env_outputs.reward.shape == (
        config.unroll_length + 1, config.batch_size)
  # A part of them were the warm-up.
  assert 0 < measured.rate * .3 < len(used) * config.frames_per_step
  assert measured.rate * .3 > .5 * len(used) * config.frames_per_step


@pytest.mark.usefixtures('bounded')
def test_what_uses_a_batch_may_fail():
  def use(batch):
    raise MemoryError('no update')

  count = threading.active_count()
  with pytest.raises(MemoryError, match='^no update$'):
    parts.measure_staging(_bench(dict(num_actors=4, batch_size=4)), use, .3)
  assert threading.active_count() == count


def test_unrolls_that_are_staged_share_no_memory():
  unrolls = parts._unrolls(_bench(_REPLAY), 3)
  (first,), (second,), (third,) = (
      unroll.env_outputs.observation for unroll in unrolls)
  assert not np.shares_memory(first, second)
  assert not np.shares_memory(second, third)


def test_a_batch_that_stays_has_as_many_replayed_unrolls_as_others():
  batch = parts.placed_batch(_bench(_REPLAY))
  assert batch.is_replayed.tolist() == [False] * 4 + [True] * 4
  assert parts.placed_batch(
      _bench(dict(_REPLAY, replay_proportion=0.))).is_replayed.sum() == 0


def test_a_comparison_that_fails_closes_its_pools(monkeypatch):
  pool = _Pool(.001, 5)
  monkeypatch.setattr(parts, 'make_pools', lambda unused_config: [pool])
  with pytest.raises(PoolError):
    comparison.compare([_config(architecture='a2c_sync_step', batch_size=4)],
                       .1)
  assert pool.is_closed
