"""Scores of the members of a population."""

import pytest

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent.config import ConfigError
from scalable_agent.files.log_lines import EpisodeLine
from scalable_agent.populations import fitness


def _episodes(*returns):
  return [EpisodeLine(1, level, value, 4) for level, value in returns]


def test_a_suite_has_its_mean_capped_score():
  score = fitness.make('dmlab30', [])
  names = list(dmlab30.LEVEL_MAPPING)
  random = [(name, dmlab30.RANDOM_SCORES[dmlab30.LEVEL_MAPPING[name]])
            for name in names]
  human = [(name, dmlab30.HUMAN_SCORES[dmlab30.LEVEL_MAPPING[name]])
           for name in names]
  assert score(_episodes(*random)) == pytest.approx(0.)
  # Ten times a human counts as one, on a third of the levels.
  best = [(name, 10 * value) for name, value in human[:10]]
  assert score(_episodes(*best, *random[10:])) == pytest.approx(100 / 3)
  assert score(_episodes(*random[1:])) is None


def test_a_game_has_its_score():
  score = fitness.make('pong', [])
  half = (atari57.HUMAN_SCORES['pong'] + atari57.RANDOM_SCORES['pong']) / 2
  assert score(_episodes(('pong', half - 1), ('pong', half + 1))) == (
      pytest.approx(50.))
  # With a cap, nobody would be better than a member as good as a human.
  double = 2 * atari57.HUMAN_SCORES['pong'] - atari57.RANDOM_SCORES['pong']
  assert score(_episodes(('pong', double))) == pytest.approx(200.)


def test_a_range_takes_the_place_of_a_human():
  score = fitness.make('gym:CartPole-v1', ['100', '300'])
  assert score(_episodes(('a', 100.), ('a', 300.))) == 50.
  assert score(_episodes(('a', 999.), ('b', 0.))) == 25.
  assert score([]) is None


def test_without_a_human_or_a_range_there_is_no_score():
  with pytest.raises(ConfigError, match='--score_range is needed'):
    fitness.make('gym:CartPole-v1', [])
