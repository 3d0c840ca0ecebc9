"""What a run says: its line of progress, its first lines, its last ones."""

import itertools
import os
import sys

import pytest

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import trajectories
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.logs import messages
from scalable_agent.logs import recent


def _recent(*returns, level_name='pong'):
  episodes = recent.RecentEpisodes(level_name)
  for value in returns:
    episodes.add(trajectories.Episode(level_name, value, 40))
  return episodes


def _suite(share):
  """Every game at this share of the way from random actions to a human."""
  episodes = recent.RecentEpisodes('atari57')
  for game in atari57.GAMES:
    random, human = atari57.RANDOM_SCORES[game], atari57.HUMAN_SCORES[game]
    episodes.add(trajectories.Episode(
        game, random + share * (human - random), 40))
  return episodes


@pytest.mark.parametrize('number, expected', [
    (0, '0'), (7, '7'), (999, '999'), (1280, '1.28k'), (8000, '8k'),
    (12_345, '12.3k'), (999_499, '999k'), (999_500, '1M'), (999_999, '1M'),
    (1.5e6, '1.5M'), (2e8, '200M'), (-999_999_999, '-1G'), (1.14e10, '11.4G')])
def test_numbers_have_three_digits(number, expected):
  assert messages.short(number) == expected


@pytest.mark.parametrize('number, expected', [
    (2, '2'), (1440, '1.44k'), (12_345_678, '12.35M'), (182_449, '182.4k'),
    (999_500, '999.5k'), (999_999, '1M'), (1e9, '1G'), (float('inf'), 'infG')])
def test_numbers_have_four_digits_where_asked(number, expected):
  assert messages.short(number, 4) == expected


@pytest.mark.parametrize('seconds, expected', [
    (-5, '0s'), (0, '0s'), (59.9, '59s'), (60, '1m00s'), (3599, '59m59s'),
    (3600, '1h00m'), (86399, '23h59m'), (86400, '1d00h'), (1e7, '115d17h')])
def test_durations_have_two_units(seconds, expected):
  assert messages.duration(seconds) == expected


def test_progress():
  assert messages.progress_text(
      1_500_000, 200_000_000, 12_345., _recent(*[1., 2.] * 60), 1.26) == (
          '1.5M of 200M (0.8 %), 12.3k frames/s, 4h27m left, return 1.50, '
          'lag 1.3')
  assert messages.progress_text(999, 1000, .5, _recent(-21., -20.), 0.) == (
      '999 of 1k (100 %), 0.5 frames/s, 2s left, return -20.50 (2), '
          'lag 0.0')


@pytest.mark.parametrize('value, expected', [
    (999.99, '999.99'), (1000., '1000'), (-99_999., '-99999'), (1e5, '100k')])
def test_a_return_has_as_many_digits_as_fit(value, expected):
  text = messages.progress_text(1, 1000, 1., _recent(value), 0.)
  assert f', return {expected} (1), ' in text


@pytest.mark.parametrize('lag, expected', [
    (.04, '0.0'), (9.96, '10.0'), (10., '10'), (123.4, '123')])
def test_a_lag_below_ten_has_a_decimal(lag, expected):
  text = messages.progress_text(1, 1000, 1., _recent(1.), lag)
  assert text.endswith(f', lag {expected}')


def test_progress_before_there_is_any():
  assert messages.progress_text(0, 1000, 0., _recent(), 0.) == (
      '0 of 1k (0.0 %), 0 frames/s, time left unknown, no episode yet, lag 0.0')


def test_progress_past_the_end_is_not_negative():
  """The last batch may reach beyond the total."""
  text = messages.progress_text(1280, 1000, 100., _recent(1.), 0.)
  assert ' 0s left' in text and '(100 %)' in text and '-' not in text


def test_progress_of_a_suite_has_its_score():
  text = messages.progress_text(1, 1000, 1., _suite(.597), 0.)
  assert ', median 59.7 %, ' in text and 'return' not in text


def test_progress_fits_a_terminal_of_80_columns():
  """A terminal shows 79 of a line; whatever the run is."""
  lasting = 99 * 3600 + 3599
  recents = [_recent(*[value] * count) for value in (
      -17_098.1, 123_456_789., 999.99) for count in (99, 100)]
  recents.append(_suite(9.999))
  for frames, fps, episodes, lag in itertools.product(
      (9_990_000, 129_000_000), (117_600., 999.4), recents, (99.94, 999.4)):
    text = messages.progress_text(
        frames, frames + int(fps * lasting), fps, episodes, lag)
    assert len(text) < 80, text
    assert ' left, ' in text


def _config(**values):
  return config_lib.resolve(dict(
      dict(level_name='pong', logdir='/tmp/a run', num_actors=8, num_pools=2,
           total_environment_frames=16_000, use_lstm=True), **values))


_DEVICES = devices_lib.Devices(['/cpu:0', '/cpu:1'], '/cpu:0', True)


def test_a_run_begins_with_three_lines():
  config = _config(environment_threads=6)
  assert messages.level(config) == (
      'Level: pong, 2 pools of 4 environments, at most 4 at a time, 3 threads '
      'or processes')
  assert messages.agent_and_files(
      config, 'shallow', 1_230_426, _DEVICES, 8000) == [
      'Agent: impala, shallow with LSTM, 1,230,426 parameters; learner on '
      '/cpu:0, /cpu:1, policy on /cpu:0, XLA on',
      'Files: /tmp/a run, at frame 8k of 16k; all settings are in config.json']


@pytest.mark.parametrize('num_actors, found', [
    (57, ''), (114, ''),
    (64, '; 7 of 57 levels have 2 environments, the others 1')])
def test_it_is_said_which_levels_have_more_environments(num_actors, found):
  line = messages.level(_config(
      level_name='atari57', num_actors=num_actors, num_pools=1))
  assert line.partition(' threads or processes')[2] == found


def test_a_learner_says_that_others_play():
  """Even if it plays whole episodes beside them."""
  for values in {}, dict(evaluate_every_frames=1000):
    config = _config(task=0, learner_hosts=['here:1'], **values)
    assert messages.level(config) == (
        'Level: pong, played by actor jobs at here:1')


def _last_lines(frames, is_new=True, episodes=_recent(1., 2.), **values):
  return messages.closing(_config(**values), frames, is_new, episodes)


def test_a_run_ends_with_score_files_and_the_next_command(monkeypatch):
  monkeypatch.setattr(messages.shutil, 'which', lambda name: sys.executable)
  command = 'python -m scalable_agent.experiment'
  assert _last_lines(16_000) == [
      'Done: 16k of 16k frames, mean return 1.50 over the last 2 episodes',
      'Files: /tmp/a run', f"Test: {command} --mode=test '--logdir=/tmp/a run'"]
  assert _last_lines(16_000, is_new=False)[0].startswith(
      'Nothing to do, this run has finished: 16k of 16k frames, mean return')
  score, _, advice = _last_lines(8000, episodes=_recent())
  assert score == 'Stopped: 8k of 16k frames, no episode has finished'
  assert advice == f"Go on: {command} '--logdir=/tmp/a run'"
  assert _last_lines(8000, task=0)[-1] == 'Go on: the same commands'
  assert _last_lines(16_000, episodes=_suite(.5))[0] == (
      'Done: 16k of 16k frames, median human normalized score 50.0 %')


def test_the_next_command_names_another_interpreter(monkeypatch, tmp_path):
  """As that of the quickstart's environment, which `python` is not."""
  (tmp_path / 'python').touch()
  for found in (None, os.fspath(tmp_path / 'python')):
    monkeypatch.setattr(
        messages.shutil, 'which', lambda name, found=found: found)
    assert f'Test: {sys.executable} -m' in _last_lines(16_000)[-1]
