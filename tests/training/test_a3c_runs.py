"""A3C as its users start it: on one machine, and as jobs."""

import numpy as np

from tests import test_experiment
from tests.jobs import test_jobs
from tests.test_experiment import run_main  # pylint: disable=unused-import

_LEVEL = '--level_name=gym:CartPole-v1'
# Training takes longer than the two seconds until actor jobs report episodes.
_SLOW_LEVEL = '--level_name=synthetic:step_ms=4,size=4,episode_steps=20'
_UPDATES = 20


def _mean_lag(metrics):
  """The policy lag of all updates of a run."""
  updates = np.diff([0] + [entry['learner_steps'] for entry in metrics])
  return np.average(
      [entry['policy_lag_mean'] for entry in metrics], weights=updates)


def test_one_worker_trains_the_weights_of_batched_a2c(tmp_path, run_main):
  """To the bit: it acts in the same steps, and waits for its own update."""
  for name, flags in (
      ('a3c', ()), ('a2c_sync_trajectory', ('--batch_size=1',))):
    assert run_main(
        f'--logdir={tmp_path / name}', _LEVEL, '--num_actors=1',
        f'--architecture={name}', *flags, '--learning_rate=0.01',
        f'--total_environment_frames={_UPDATES * 20}').code == 0
  a3c, a2c = (test_experiment._checkpoint_floats(tmp_path / name)
              for name in ('a3c', 'a2c_sync_trajectory'))
  assert a3c.keys() == a2c.keys() and len(a3c) > 5
  for name, value in a3c.items():
    np.testing.assert_array_equal(value, a2c[name], err_msg=name)
  # The last ones may have come after the end.
  returns = [[row[2] for row in test_experiment._episodes(tmp_path / name)][:10]
             for name in ('a3c', 'a2c_sync_trajectory')]
  assert returns[0] == returns[1] and len(returns[0]) == 10
  last = test_experiment._metrics(tmp_path / 'a3c')[-1]
  assert (last['learner_steps'], last['policy_lag_max']) == (_UPDATES, 0)
  assert last['total_loss'] != 0 and last['grad_norm'] > 0


def test_workers_on_one_machine_lag_by_the_others(tmp_path, run_main):
  workers = 3
  assert run_main(
      f'--logdir={tmp_path / "run"}', _LEVEL, '--architecture=a3c',
      f'--num_actors={workers}', '--total_environment_frames=2000').code == 0
  metrics = test_experiment._metrics(tmp_path / 'run')
  assert metrics[-1]['frames'] == 2000 and metrics[-1]['learner_steps'] == 100
  assert 1 < _mean_lag(metrics) < workers
  assert test_experiment._config(tmp_path / 'run')['batch_size'] == 1


def test_jobs_train_to_the_end(tmp_path, run_main):
  with test_jobs.Jobs(tmp_path, _SLOW_LEVEL, '--architecture=a3c',
                      '--envs_per_actor=1', actor=test_jobs.Program) as jobs:
    workers = [jobs.actor(i) for i in range(2)]
    result = run_main(f'--logdir={jobs.logdir}', *jobs.learner_flags(),
                      '--total_environment_frames=2000', '--batch_size=1')
    assert result.code == 0, result
    test_jobs._assert_ends_well(*workers)
    for worker in workers:
      for library in 'oneDNN', 'absl', 'CUDA':
        assert library not in worker.output()
    assert jobs.checkpoint() == 2000
    metrics = test_experiment._metrics(jobs.logdir)
    assert metrics[-1]['learner_steps'] == 100
    # A worker fetches weights after its own update: the lag is the other's.
    assert _mean_lag(metrics) < 1.5
    assert len(test_experiment._episodes(jobs.logdir)) > 5
