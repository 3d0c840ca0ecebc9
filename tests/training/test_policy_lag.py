"""Who acts with weights of which update: lag that is set, lag that is limited.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.process import signals
from scalable_agent.replay import buffer
from tests import test_experiment
from tests.test_experiment import run_main  # pylint: disable=unused-import
from tests.training import test_run
from tests.training.test_run import quick  # pylint: disable=unused-import

pytestmark = pytest.mark.usefixtures('bounded')


@contextlib.contextmanager
def _running(logdir, *arguments):
  logdir.mkdir(exist_ok=True)
  run, agent = test_run._make_run(
      logdir, '--environment_threads=2', *arguments)
  try:
    yield run, agent
  finally:
    run.close()


def _next(run):
  return run.batches.next(signals.Stop())


# -- Lag that is set ----------------------------------------------------------


def test_the_log_of_a_run_has_exactly_the_lag(tmp_path, run_main):
  """Of every update, and of a resumed run again from none."""
  updates, lag = 9, 3
  flags = (
      '--level_name=gym:CartPole-v1', '--architecture=a2c_sync_trajectory',
      '--batch_size=4', '--num_actors=4', '--environment_threads=2',
      f'--policy_lag={lag}', '--log_interval_secs=1e-9',
      f'--logdir={tmp_path / "run"}')
  for count in (updates, 2 * updates):
    assert run_main(
        *flags, f'--total_environment_frames={count * 4 * 20}').code == 0
  metrics = test_experiment._metrics(tmp_path / 'run')
  assert [entry['learner_steps'] for entry in metrics] == list(
      range(1, 2 * updates + 1))
  expected = [min(n, lag) for n in range(updates)] * 2
  assert [entry['policy_lag_mean'] for entry in metrics] == expected
  assert [entry['policy_lag_max'] for entry in metrics] == expected


@pytest.mark.parametrize('lag', [0, 2])
def test_actors_act_with_the_weights_of_so_many_updates_ago(tmp_path, lag):
  """What they said of the policy is what those weights say, and no others."""
  versions = []
  # Each update has to show: a lower rate changes little, and one of 0.1 makes
  # the policy so sure of itself that an update may change nothing.
  with _running(tmp_path, '--architecture=a2c_sync_trajectory',
                f'--policy_lag={lag}', '--learning_rate=0.01') as (run, agent):
    for n in range(6):
      versions.append(run.learner.weights())
      staged = _next(run)
      unrolls = staged[0].unrolls

      def distance(weights):
        (logits, _), _ = agent.unroll(
            weights, unrolls.agent_outputs.action, unrolls.env_outputs,
            unrolls.agent_state)
        return np.abs(tf.nn.log_softmax(logits[:-1]) - tf.nn.log_softmax(
            unrolls.agent_outputs.policy_logits[1:])).max()

      distances = list(map(distance, versions))
      acted = max(0, n - lag)
      assert distances.pop(acted) < 1e-4
      assert min(distances, default=1.) > 1e-3
      assert set(run.policy_lags(staged[0])) == {n - acted}
      run.train_on(staged)


@pytest.mark.usefixtures('quick')
def test_actor_jobs_get_weights_of_so_many_updates_ago(tmp_path, monkeypatch):
  published = []
  with _running(tmp_path, '--architecture=a2c_sync_trajectory',
                '--policy_lag=2') as (run, _):
    publish = run._actors.publish

    def record(weights, version):
      published.append(version)
      publish(weights, version)

    monkeypatch.setattr(run._actors, 'publish', record)
    for _ in range(5):
      run.train_on(_next(run))
  assert published == [0, 0, 1, 2, 3]


@pytest.mark.usefixtures('quick')
def test_impala_adds_its_own_lag(tmp_path):
  with _running(tmp_path, '--policy_lag=4') as (run, _):
    lags = []
    for _ in range(12):
      staged = _next(run)
      lags.append(run.policy_lags(staged[0]))
      run.train_on(staged)
  assert min(lags[-1]) >= 4 and np.max(lags) > 4


# -- Lag that is limited ------------------------------------------------------


def _versions(batch):
  assert len(batch.keys) == len(batch.unrolls)
  return [int(unroll.policy_version) for unroll in batch.unrolls]


def test_what_would_be_trained_on_too_late_is_dropped():
  """Each batch is trained on one update after the one before."""
  versions = [5, 4, 3, 5, 2, 6, 5, 4, 4, 6, 9, 9]
  queue = staging.LagLimitedQueue(len(versions), max_lag=2, version=6)
  for version in versions:
    queue.put(trajectories.ActorOutput(
        'level', (), (), (), np.int64(version)))
  assert _versions(queue.get(1)) == [5]  # At update 6, as the next.
  assert _versions(queue.get(1)) == [4]
  assert queue.take_gauges() == dict(queue_size=10, dropped_unrolls=0)
  queue.next_batch()
  assert _versions(queue.get(2)) == [5, 6]  # At update 7.
  assert queue.take_gauges() == dict(queue_size=6, dropped_unrolls=2)
  queue.next_batch()
  assert _versions(queue.get(2)) == [6, 9]  # At update 8.
  assert queue.take_gauges() == dict(queue_size=1, dropped_unrolls=3)
  assert queue.take_gauges() == dict(queue_size=1, dropped_unrolls=0)
  queue.close()
  with pytest.raises(staging.Closed):
    queue.get(2)


@pytest.mark.usefixtures('quick')
def test_updates_are_counted_where_replay_is_empty_at_first(
    tmp_path, monkeypatch):
  """A batch of new unrolls alone is gathered in several parts."""
  limit, updates, draws = 1, 12, []
  sample = buffer.Buffer.sample

  def sample_later(self, count):
    draws.append(count)
    return sample(self, count) if len(draws) > 6 else []

  monkeypatch.setattr(buffer.Buffer, 'sample', sample_later)
  with _running(
      tmp_path, '--num_actors=24', '--queue_capacity=24', '--batch_size=8',
      f'--max_policy_lag={limit}', '--replay_proportion=0.875',
      '--replay_capacity=100') as (run, _):
    for update in range(updates):
      staged = _next(run)
      assert max(run.policy_lags(staged[0]), default=0) <= limit, update
      run.train_on(staged)


@pytest.mark.usefixtures('quick')
def test_no_unroll_is_older_than_the_limit(tmp_path):
  """Other unrolls than those are trained on, and their number is logged."""
  limit, updates = 1, 30
  logged = {}
  for flag in (), (f'--max_policy_lag={limit}',):
    with _running(tmp_path / str(len(flag)), '--num_actors=24',
                  '--queue_capacity=24', *flag) as (run, _):
      lags = []
      for _ in range(updates):
        staged = _next(run)
        lags += run.policy_lags(staged[0]).tolist()
        run.train_on(staged)
      run.report()
    logged[bool(flag)] = test_experiment._metrics(tmp_path / str(len(flag)))[0]
    assert len(lags) == 6 * updates
    assert (max(lags) <= limit) == bool(flag), lags
  assert logged[True]['dropped_unrolls'] > 0
  assert 'dropped_unrolls' not in logged[False]
  # What was dropped is no frame that was trained on.
  assert logged[True]['frames'] == logged[False]['frames'] == updates * 6 * 5
