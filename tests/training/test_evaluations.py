"""What a run writes of its evaluations, and when it resumes."""

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent import trajectories
from scalable_agent.logs import metrics as metrics_lib
from scalable_agent.suites import scores as suite_scores
from scalable_agent.training import logdir as logdir_lib
from tests.logs import test_metrics

_HEADER = test_metrics.HEADER


def _reporter(logdir, frames=0, level_name='pong'):
  return metrics_lib.Reporter(config_lib.resolve(dict(
      logdir=str(logdir), level_name=level_name)), frames, learner_steps=0)


def _episodes(*returns, level_name='pong'):
  return [trajectories.Episode(level_name, value, 40) for value in returns]


def test_an_evaluation_is_a_row_for_each_episode(tmp_path):
  reporter = _reporter(tmp_path)
  reporter.evaluation(100, _episodes(-21., .5))
  reporter.write(0, {}, {})
  reporter.evaluation(200, _episodes(3.))
  reporter.write(0, {}, {})
  reporter.close()
  assert (tmp_path / 'evaluations.csv').read_text() == (
      _HEADER + '100,pong,-21,40\n100,pong,0.5,40\n200,pong,3,40\n')
  scalars = test_metrics._scalars(tmp_path)
  assert scalars['1_return/mean_return_of_evaluation'] == [(100, -10.25),
                                                        (200, 3.)]
  assert scalars['7_levels/pong/evaluation_return'] == [(100, -10.25),
                                                        (200, 3.)]
  # They are no episodes of training.
  assert (tmp_path / 'episodes.csv').read_text() == _HEADER
  assert len(reporter.recent) == 0


def test_what_came_after_the_checkpoint_is_dropped(tmp_path):
  (tmp_path / 'evaluations.csv').write_text(
      _HEADER + '100,pong,1,4\n200,pong,2,4\n200,pong,3,4\n300,pong,4,4\n30')
  reporter = _reporter(tmp_path, frames=250)
  assert reporter.evaluated_frames == 200
  reporter.evaluation(260, _episodes(7.))
  reporter.write(0, {}, {})
  reporter.close()
  assert (tmp_path / 'evaluations.csv').read_text() == (
      _HEADER + '100,pong,1,4\n200,pong,2,4\n200,pong,3,4\n260,pong,7,40\n')


def test_a_new_run_has_been_evaluated_at_no_frame(tmp_path):
  assert _reporter(tmp_path).evaluated_frames == 0
  assert not (tmp_path / 'evaluations.csv').exists()


def test_evaluations_without_a_checkpoint_are_refused(tmp_path):
  """They would be cut to nothing."""
  (tmp_path / 'evaluations.csv').write_text(_HEADER + '8,pong,1,4\n')
  with pytest.raises(config_lib.ConfigError, match='evaluations.csv'):
    logdir_lib.check_is_new(str(tmp_path))


def test_the_score_that_decides_on_the_best_is_that_of_what_was_written(
    tmp_path):
  """Also of episodes from before the run was resumed."""
  reporter = _reporter(tmp_path)
  for value in range(150):
    reporter.episode(trajectories.Episode('pong', float(value), 40))
  assert reporter.fitness() is None
  reporter.write(0, {}, {})
  expected = suite_scores.Score('mean_return', np.mean(range(50, 150)))
  assert reporter.fitness() == expected
  reporter.close()
  assert _reporter(tmp_path).fitness() == expected
