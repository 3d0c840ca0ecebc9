"""What counts as a score, and what it is from."""

import numpy as np
import pytest

from scalable_agent.results import benchmarks
from scalable_agent.results import runs
from scalable_agent.results import scores


def _run(frames=100, total=None, games=(), tested=(), tested_frames=None,
         level='pong'):
  games = {level: runs.Games(np.arange(1, len(games) + 1), np.array(games))
           } if len(games) else {}
  tested = {level: np.array(tested)} if len(tested) else {}
  return runs.Run('', dict(level_name=level, total_environment_frames=total),
                  frames, games, tested, tested_frames)


def test_training_score_is_of_the_last_100_games():
  score = scores.score([_run(total=200, games=[1000.] * 50 + [2.] * 100)],
                       'pong')
  assert score == scores.Score(2., 0., 'training', 100, 200, 1, 100)


def test_every_seed_counts_the_same():
  """And the error is that over seeds."""
  score = scores.score([_run(games=[0.] * 100), _run(games=[6.], frames=50)],
                       'pong')
  assert score.mean == 3.
  assert score.standard_error == pytest.approx(3.)
  assert (score.frames, score.seeds, score.games) == (50, 2, 101)


def test_test_games_come_first():
  """Also those of a seed when another was not tested."""
  score = scores.score([
      _run(games=[100.] * 9),
      _run(games=[100.], tested=[1., 2., 6.], tested_frames=80)], 'pong')
  assert score.mean == 3.
  assert score.standard_error == pytest.approx(np.sqrt(7 / 3))
  assert (score.source, score.frames, score.seeds, score.games) == (
      'test', 80, 1, 3)


def test_what_is_missing_is_said():
  assert scores.score([_run(level='qbert', games=[1.])], 'pong') == (
      scores.NO_RUN)
  score = scores.score([_run(total=5)], 'pong')
  assert score == scores.Score(None, None, 'no game', 100, 5, 1, 0)
  assert scores.score([_run(games=[4.])], 'pong').standard_error is None


def test_percentages_and_statistics_are_of_what_is_there():
  percent = scores.percentages(
      benchmarks.ATARI57, {'pong': 14.6, 'breakout': 1.7, 'qbert': None})
  assert percent == pytest.approx({'breakout': 0, 'pong': 100})
  assert scores.statistics(benchmarks.ATARI57, [0, 10, 110]) == {
      'median': 10, 'mean': 40}
  assert scores.statistics(benchmarks.ATARI57, []) == {}
