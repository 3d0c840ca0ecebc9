"""Which game the player of exports plays."""

import pathlib
import runpy

import pytest

_PLAYER = pathlib.Path(__file__).resolve().parents[1] / 'launch/play_export.py'
_PROGRAM = runpy.run_path(str(_PLAYER))
_CHOOSE = _PROGRAM['choose_game']


@pytest.mark.parametrize('level, asked, expected', [
    ('pong', None, 'pong'), ('pong', 'pong', 'pong'),
    ('atari57', 'breakout', 'breakout')])
def test_the_game_of_the_agent_or_one_of_all(level, asked, expected):
  metadata = dict(suite='atari', level_name=level)
  assert _CHOOSE(metadata, asked) == expected


@pytest.mark.parametrize('suite, level, asked, message', [
    ('gym', 'gym:CartPole-v1', None, 'trained on gym:CartPole-v1, and only'),
    ('atari', 'pong', 'qbert', '--game=qbert: the agent was trained on pong'),
    ('atari', 'atari57', None, 'choose one with --game'),
    ('atari', 'atari57', 'pnog', '--game=pnog is no game'),
    ('atari', 'atari57', 'skiing', '--game=skiing has 9 actions')])
def test_what_cannot_be_played_is_said(suite, level, asked, message):
  with pytest.raises(ValueError, match=message):
    _CHOOSE(dict(suite=suite, level_name=level), asked)


@pytest.mark.parametrize('num_games, seed, message', [
    (0, 1, '--episodes=0: it has to be 1 or more'), (-1, 1, '--episodes=-1'),
    (1, -1, '--seed=-1: it has to be from 0'), (1, 2**31, '--seed=2147483648')])
def test_numbers_that_cannot_work_are_said(tmp_path, num_games, seed, message):
  with pytest.raises(ValueError, match=message):
    _PROGRAM['play'](str(tmp_path), num_games, seed)
