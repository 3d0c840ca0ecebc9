"""What counts as a score, and what it is from."""

import numpy as np
import pytest

from scalable_agent.results import published
from scalable_agent.results import runs
from scalable_agent.results import scores


def _run(frames=100, total=None, episodes=(), tested=(), tested_frames=None,
         level='pong'):
  episodes = {level: runs.Episodes(
      np.arange(1, len(episodes) + 1), np.array(episodes))
  } if len(episodes) else {}
  tested = {level: np.array(tested)} if len(tested) else {}
  return runs.Run('', dict(level_name=level, total_environment_frames=total),
                  frames, episodes, tested, tested_frames)


def test_training_score_is_of_the_last_100_episodes():
  score = scores.score([_run(total=200, episodes=[1000.] * 50 + [2.] * 100)],
                       'pong')
  assert score == scores.Score(
      2., 0., 'training', 100, 100, 200, False, 1, 1, 100)


@pytest.mark.parametrize('frames, is_finished', [
    ((60, 60), True), ((60, 59), False)])
def test_a_run_whose_best_checkpoint_was_tested_is_done(frames, is_finished):
  score = scores.score([_run(frames=each, total=60, tested=[1.],
                             tested_frames=55) for each in frames], 'pong')
  assert (score.frames, score.trained_frames, score.is_finished) == (
      55, min(frames), is_finished)


def test_every_run_counts_the_same():
  """And the error is that over runs."""
  score = scores.score(
      [_run(episodes=[0.] * 100), _run(episodes=[6.], frames=50)], 'pong')
  assert score.mean == 3.
  assert score.standard_error == pytest.approx(3.)
  assert (score.frames, score.runs, score.episodes) == (50, 2, 101)


def _seeded(*seeds):
  return [_run(episodes=[1.])._replace(config=dict(
      level_name='pong', **({} if seed is None else dict(seed=seed))))
          for seed in seeds]


@pytest.mark.parametrize('seeds, expected', [
    ([1], '1 seed'), ([1, 2, 3], '3 seeds'), ([1, 1, 1], '3 runs of 1 seed'),
    ([1, 2, 2], '3 runs of 2 seeds'), ([None, None], '2 seeds'),
    ([0, 0, None], '3 runs of 2 seeds')])
def test_different_seeds_are_counted_not_runs(seeds, expected):
  """A run without a configuration does not say which it had."""
  found = _seeded(*seeds)
  assert scores.count_text(found) == expected
  score = scores.score(found, 'pong')
  assert scores.seeds_text(score.runs, score.seeds) == expected
  assert score.runs == len(seeds)


def test_test_episodes_come_first():
  """Also those of a seed when another was not tested."""
  score = scores.score([
      _run(episodes=[100.] * 9),
      _run(episodes=[100.], tested=[1., 2., 6.], tested_frames=80)], 'pong')
  assert score.mean == 3.
  assert score.standard_error == pytest.approx(np.sqrt(7 / 3))
  assert (score.source, score.frames, score.runs, score.episodes) == (
      'test', 80, 1, 3)


def test_what_is_missing_is_said():
  assert scores.score([_run(level='qbert', episodes=[1.])], 'pong') == (
      scores.NO_RUN)
  score = scores.score([_run(total=5)], 'pong')
  assert score == scores.Score(
      None, None, 'no episode', 100, 100, 5, True, 1, 1, 0)
  assert scores.score([_run(episodes=[4.])], 'pong').standard_error is None


def test_percentages_and_statistics_are_of_what_is_there():
  percent = scores.percentages(
      published.ATARI57, {'pong': 14.6, 'breakout': 1.7, 'qbert': None})
  assert percent == pytest.approx({'breakout': 0, 'pong': 100})
  assert scores.statistics(published.ATARI57, [0, 10, 110]) == {
      'median': 10, 'mean': 40}
  assert scores.statistics(published.ATARI57, []) == {}
