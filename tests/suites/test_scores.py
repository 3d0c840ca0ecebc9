"""A suite's score while its levels finish games."""

import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent import trajectories
from scalable_agent.suites import scores as suite_scores


def _return(game, fraction):
  random, human = atari57.RANDOM_SCORES[game], atari57.HUMAN_SCORES[game]
  return random + fraction * (human - random)


def test_median_capped_and_uncapped_mean_of_atari57():
  returns = {game: [_return(game, .5)] for game in atari57.GAMES}
  returns['pong'] = [_return('pong', 57.5)]
  assert suite_scores.compute('atari57', returns) == pytest.approx(dict(
      median_human_normalized_score=50, mean_human_normalized_score=150,
      capped_human_normalized_score=(56 * 50 + 100) / 57))


def test_none_for_a_single_level_and_for_a_suite_that_is_not_complete():
  returns = {game: [1.] for game in atari57.GAMES}
  assert suite_scores.compute('pong', returns) == {}
  del returns['zaxxon']
  assert suite_scores.compute('atari57', returns) == {}


def test_running_scores_are_of_the_last_games_once_every_level_had_one(
    monkeypatch):
  monkeypatch.setattr(suite_scores, 'WINDOW', 2)
  scores = suite_scores.RunningScores('atari57')
  for fraction in (9., 9., 1., 3.):
    for game in atari57.GAMES[1:]:
      scores.add(trajectories.Episode(game, _return(game, fraction), 4))
  assert scores.compute() == {}
  game = atari57.GAMES[0]
  scores.add(trajectories.Episode(game, _return(game, 2.), 4))
  computed = scores.compute()
  assert computed['mean_human_normalized_score'] == pytest.approx(200)
  assert isinstance(computed['mean_human_normalized_score'], float)
  assert np.isfinite(computed['median_human_normalized_score'])
  # Every game is above 100 %.
  assert computed['capped_human_normalized_score'] == pytest.approx(100)


def test_capped_and_uncapped_mean_of_dmlab30():
  levels = dmlab30.LEVEL_MAPPING
  scores = suite_scores.RunningScores('dmlab30')
  for train, test in levels.items():
    assert scores.compute() == {}
    fraction = 16. if train == 'rooms_watermaze' else .5
    random, human = dmlab30.RANDOM_SCORES[test], dmlab30.HUMAN_SCORES[test]
    scores.add(trajectories.Episode(
        train, random + fraction * (human - random), 400))
  assert scores.compute() == pytest.approx(dict(
      capped_human_normalized_score=(29 * 50 + 100) / 30,
      mean_human_normalized_score=(29 * 50 + 1600) / 30))


# -- What is best -------------------------------------------------------------


def test_the_fitness_of_a_level_is_its_mean_over_a_full_window(monkeypatch):
  monkeypatch.setattr(suite_scores, 'WINDOW', 3)
  scores = suite_scores.RunningScores('pong')
  for value in (-21., 1., 2.):
    assert scores.fitness() is None
    scores.add(trajectories.Episode('pong', value, 4))
  assert scores.fitness() == ('mean_return', -6.)
  scores.add(trajectories.Episode('pong', 6., 4))
  assert scores.fitness() == ('mean_return', 3.)


def test_the_fitness_of_a_suite_is_its_capped_score(monkeypatch):
  """Once the window of every level is full."""
  monkeypatch.setattr(suite_scores, 'WINDOW', 2)
  scores = suite_scores.RunningScores('atari57')
  for fraction in 9., .5:
    for game in atari57.GAMES:
      assert scores.fitness() is None
      scores.add(trajectories.Episode(game, _return(game, fraction), 4))
  measure, value = scores.fitness()
  assert measure == 'capped_human_normalized_score'
  assert value == pytest.approx(100)
  for game in atari57.GAMES:
    scores.add(trajectories.Episode(game, _return(game, .5), 4))
  assert scores.fitness().value == pytest.approx(50)


def test_an_evaluation_is_scored_by_level_or_suite():
  episodes = [trajectories.Episode('pong', value, 4) for value in (1., 4.)]
  assert suite_scores.of_episodes('pong', episodes) == dict(mean_return=2.5)
  suite = [trajectories.Episode(game, _return(game, fraction), 4)
           for game in atari57.GAMES for fraction in (.25, .75)]
  assert suite_scores.of_episodes('atari57', suite) == pytest.approx(dict(
      median_human_normalized_score=50, mean_human_normalized_score=50,
      capped_human_normalized_score=50))
