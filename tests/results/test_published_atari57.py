"""The paper's tables agree with each other and with the human scores."""

import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent.results import published_atari57 as published


def _normalized(agent, statistic):
  return atari57.compute_human_normalized_score(
      {game: [score] for game, score in published.SCORES[agent].items()},
      statistic=statistic)


def test_every_game_is_there():
  assert tuple(published.SCORES) == published.AGENTS
  for agent in published.AGENTS:
    assert tuple(published.SCORES[agent]) == atari57.GAMES


@pytest.mark.parametrize('agent, median', [
    ('IMPALA, deep, multi-task', 59.7), ('IMPALA, shallow, experts', 93.2),
    ('IMPALA, deep, experts', 191.8), ('Reactor', 186.8)])
def test_medians_of_table_4(agent, median):
  """From Table C.1 come the medians of Table 4, to every printed digit."""
  computed = round(_normalized(agent, np.median), 1)
  assert computed == median
  assert published.TABLE_4[agent][0] in (computed, round(computed))


@pytest.mark.parametrize('agent, mean', [
    ('IMPALA, deep, multi-task', 179.4), ('IMPALA, shallow, experts', 707.4),
    ('IMPALA, deep, experts', 1592.5)])
def test_means_are_not_those_of_table_4(agent, mean):
  """As the module says: the means that it names, and not the printed ones."""
  assert round(_normalized(agent, np.mean), 1) == mean
  assert published.TABLE_4[agent][1] != mean


@pytest.mark.parametrize('agent, game, score', [
    ('ACKTR', 'alien', 3197.1), ('ACKTR', 'atlantis', 3433182),
    ('Reactor', 'pong', 20.7), ('Reactor', 'zaxxon', 25215.5),
    ('IMPALA, deep, multi-task', 'seaquest', 844.6),
    ('IMPALA, shallow, experts', 'breakout', 640.43),
    ('IMPALA, deep, experts', 'qbert', 351200.12),
    ('IMPALA, deep, experts', 'skiing', -10180.38)])
def test_scores(agent, game, score):
  """Cells of Table C.1 from every column."""
  assert published.SCORES[agent][game] == score


def test_blanks():
  """Table C.1 has no ACKTR score of these games, and all others."""
  blank = {(agent, game) for agent, scores in published.SCORES.items()
           for game, score in scores.items() if score is None}
  assert blank == {('ACKTR', game) for game in (
      'chopper_command', 'defender', 'frostbite', 'gravitar', 'hero',
      'montezuma_revenge', 'ms_pacman', 'name_this_game', 'private_eye',
      'skiing', 'surround', 'tennis', 'venture')}
