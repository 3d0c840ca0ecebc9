import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from scalable_agent import atari57

_normalized = atari57.compute_human_normalized_score


def _scores(fractions):
  """Returns of which a game's score is the given fraction of a human's."""
  return {
      game: [atari57.RANDOM_SCORES[game] + fraction * (
          atari57.HUMAN_SCORES[game] - atari57.RANDOM_SCORES[game])]
      for game, fraction in zip(atari57.GAMES, fractions)}


def test_games():
  """57 games, each with two scores that differ."""
  assert len(atari57.GAMES) == len(set(atari57.GAMES)) == 57
  assert set(atari57.HUMAN_SCORES) == set(atari57.GAMES)
  assert set(atari57.RANDOM_SCORES) == set(atari57.GAMES)
  for game in atari57.GAMES:
    # People beat chance everywhere, so that more is better.
    assert atari57.HUMAN_SCORES[game] > atari57.RANDOM_SCORES[game]


@pytest.mark.parametrize('game, random, human', [
    ('breakout', 1.7, 30.5), ('pong', -20.7, 14.6), ('seaquest', 68.4, 42054.7),
    ('skiing', -17098.1, -4336.9), ('montezuma_revenge', 0.0, 4753.3),
    ('video_pinball', 16256.9, 17667.9), ('qbert', 163.9, 13455.0)])
def test_published_scores(game, random, human):
  """Some of Table 2 of Wang et al., of games with different scales."""
  assert atari57.RANDOM_SCORES[game] == random
  assert atari57.HUMAN_SCORES[game] == human


def test_human_is_100_and_random_0():
  human = {game: [score] for game, score in atari57.HUMAN_SCORES.items()}
  random = {game: [score] for game, score in atari57.RANDOM_SCORES.items()}
  assert _normalized(human) == pytest.approx(100)
  assert _normalized(random) == pytest.approx(0)
  assert isinstance(_normalized(human), float)


def test_episodes_of_a_game_are_averaged():
  """A game counts once, however many episodes there are of it."""
  returns = _scores([1.0] * 57)
  returns['pong'] = [-20.7, 14.6, 14.6, -20.7]
  assert _normalized(returns) == pytest.approx(100 * 56.5 / 57)
  returns['pong'] = np.array([-20.7] * 8)
  assert _normalized(returns) == pytest.approx(100 * 56 / 57)


def test_cap():
  """A cap applies to the mean of a game, from above only."""
  returns = _scores([3.0] + [0.5] * 55 + [-1.0])
  assert _normalized(returns) == pytest.approx(100 * (3 + 27.5 - 1) / 57)
  assert _normalized(returns, per_level_cap=100) == pytest.approx(
      100 * (1 + 27.5 - 1) / 57)
  assert _normalized(returns, per_level_cap=0) == pytest.approx(-100 / 57)
  # Capped one by one, these episodes would be below the cap on average.
  game = atari57.GAMES[0]
  returns[game] = _scores([3.0])[game] + _scores([0.0])[game]
  assert _normalized(returns, per_level_cap=100) == pytest.approx(
      100 * (1 + 27.5 - 1) / 57)


@pytest.mark.parametrize('game', ['alien', 'pong', 'zaxxon'])
def test_missing_games(game):
  """A game without returns is an error that names it, not a score of 0."""
  returns = _scores([1.0] * 57)
  for empty in ([], np.array([])):
    returns[game] = empty
    with pytest.raises(ValueError, match=game):
      _normalized(returns)
  del returns[game]
  with pytest.raises(ValueError, match=game):
    _normalized(returns)
  with pytest.raises(ValueError):
    _normalized({})


def test_human_normalized_score():
  """Percent of the way from random to human, beyond both ends too."""
  assert atari57.human_normalized_score('breakout', 30.5) == pytest.approx(100)
  assert atari57.human_normalized_score('pong', -20.7) == pytest.approx(0)
  # Random 11.4, human 167.6.
  np.testing.assert_allclose(
      atari57.human_normalized_score('tutankham', np.array([-144.8, 480.])),
      [-100, 300])


def test_median():
  """Of 57 games the 29th counts, whatever the others are."""
  returns = _scores([-3.0] * 28 + [0.7] + [1000.0] * 28)
  assert _normalized(returns, statistic=np.median) == pytest.approx(70)
  assert _normalized(returns, per_level_cap=50,
                     statistic=np.median) == pytest.approx(50)


def test_levels_are_named_as_those_of_dmlab30():
  assert atari57.ALL_LEVELS == atari57.GAMES
  assert list(atari57.LEVEL_MAPPING.items()) == [
      (game, game) for game in atari57.GAMES]


def test_other_keys_are_ignored():
  returns = dict(_scores([1.0] * 57), tetris=[1e9], adventure=[])
  assert _normalized(returns) == pytest.approx(100)


_fractions = strategies.lists(
    strategies.floats(-10, 100), min_size=57, max_size=57)


@hypothesis.settings(max_examples=50)
@hypothesis.given(_fractions, strategies.none() | strategies.floats(-500, 1000))
def test_mean_of_capped_percentages(fractions, cap):
  """For any scores it is the mean of percentages, each capped by itself."""
  percentages = 100 * np.array(fractions)
  if cap is not None:
    percentages = np.minimum(percentages, cap)
  assert _normalized(_scores(fractions), cap) == pytest.approx(
      percentages.mean(), rel=1e-6, abs=1e-6)
