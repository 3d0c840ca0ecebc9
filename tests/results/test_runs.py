"""Log directories, finished or not."""

import json

import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent.results import runs
from tests import test_report

_make = test_report.make_run


def test_episodes_are_read_by_level_in_order(tmp_path):
  logdir = _make(tmp_path / 'run', [
      (100, 'pong', -21), (200, 'breakout', 1.5), (300, 'pong', -20)])
  episodes = runs.read_episodes(logdir)
  assert set(episodes) == {'pong', 'breakout'}
  np.testing.assert_array_equal(episodes['pong'].frames, [100, 300])
  np.testing.assert_array_equal(episodes['pong'].returns, [-21., -20.])


@pytest.mark.parametrize('end', [
    '3', '300,pong', '300,pong,-2', '300,pong,-2,'])
def test_a_line_that_is_being_written_is_left_out(tmp_path, end):
  logdir = _make(tmp_path / 'run', [(100, 'pong', -21)])
  with open(logdir + '/episodes.csv', 'a') as f:
    f.write(end)
  assert len(runs.read_episodes(logdir)['pong'].frames) == 1


def test_frames_are_the_last_that_anything_tells(tmp_path):
  logdir = _make(tmp_path / 'run', [(100, 'pong', -21)], level_name='pong')
  assert runs.read(logdir).frames == 100
  with open(logdir + '/metrics.jsonl', 'w') as f:
    f.write('{"frames": 400}\n{"frames": 900}\n{"frames": 99')
  assert runs.read(logdir).frames == 900
  # Of copies that have their test, and not their metrics.
  logdir = _make(tmp_path / 'copy', [(100, 'pong', -21)], {'pong': [1., 2.]})
  assert runs.read(logdir).frames == 2_000_000


def test_a_run_that_has_just_begun(tmp_path):
  """It has a level, and nothing else yet."""
  logdir = _make(tmp_path / 'run', [], level_name='pong')
  (tmp_path / 'run' / 'episodes.csv').unlink()
  run = runs.read(logdir)
  assert (run.episodes, run.tested, run.frames) == ({}, {}, 0)
  assert runs.levels_of(run) == ['pong']


def test_a_run_on_a_suite_has_all_of_its_levels(tmp_path):
  run = runs.read(_make(tmp_path / 'run', [(1, 'pong', 1), (2, 'qbert', 1)],
                        level_name='atari57', tested={'alien': [3.]}))
  levels = runs.levels_of(run)
  assert levels[:4] == ['pong', 'qbert', 'alien', 'amidar']
  assert sorted(levels) == sorted(atari57.GAMES)
  assert run.tested_frames == 2_000_000


def _log_metrics(logdir, *lines):
  with open(logdir + '/metrics.jsonl', 'w') as f:
    f.writelines(json.dumps(line) + '\n' for line in lines)


def test_the_clock_adds_up_all_starts_of_a_run(tmp_path):
  """The seconds in the log begin anew; frames over frames per second do not."""
  logdir = _make(tmp_path / 'run', [(100, 'pong', -21)], level_name='pong')
  assert runs.read(logdir).clock is None
  _log_metrics(
      logdir, dict(frames=3600, fps=1., wall_time=3600.),
      dict(frames=7200, fps=2., wall_time=5400.),
      dict(frames=10_800, fps=1., wall_time=3600.))
  clock = runs.read(logdir).clock
  np.testing.assert_array_equal(clock.frames, [0, 3600, 7200, 10_800])
  np.testing.assert_allclose(clock.hours, [0., 1., 1.5, 2.5])


@pytest.mark.parametrize('updates', [None, -1, 1.5, True, 'many'])
def test_updates_are_those_of_the_last_line(tmp_path, updates):
  logdir = _make(tmp_path / 'run', [], level_name='pong')
  assert runs.read(logdir).updates is None
  _log_metrics(logdir, dict(frames=100, learner_steps=updates))
  assert runs.read(logdir).updates is None
  _log_metrics(logdir, dict(frames=100, learner_steps=1),
               dict(frames=200, learner_steps=2))
  assert runs.read(logdir).updates == 2


@pytest.mark.parametrize('fps', [None, 0., -1., '1', True, 5e-324, 1e999])
def test_lines_without_a_speed_are_passed_over(tmp_path, fps):
  """The next one that has a speed speaks for them too."""
  logdir = _make(tmp_path / 'run', [], level_name='pong')
  _log_metrics(logdir, dict(frames=100, fps=fps), dict(frames=3600, fps=1.))
  run = runs.read(logdir)
  assert run.frames == 3600
  np.testing.assert_allclose(run.clock.hours[-1], 1.)


@pytest.mark.parametrize('text', ['[]', '{"levels": {"pong": {}}}',
                                  '{"levels": 3}'])
def test_broken_scores_are_named(tmp_path, text):
  logdir = _make(tmp_path / 'run', [])
  (tmp_path / 'run' / 'test_scores.json').write_text(text)
  with pytest.raises(ValueError, match='test_scores.json'):
    runs.read(logdir)


def test_evaluations_are_read_beside_the_episodes(tmp_path):
  logdir = _make(tmp_path / 'run', [(100, 'pong', -21)], level_name='pong')
  assert runs.read(logdir).evaluations == {}
  with open(logdir + '/evaluations.csv', 'w') as f:
    f.write('frames,level,episode_return,episode_frames\n'
            '50,pong,-20,400\n50,pong,-18,400\n')
  evaluations = runs.read(logdir).evaluations['pong']
  np.testing.assert_array_equal(evaluations.frames, [50, 50])
  np.testing.assert_array_equal(evaluations.returns, [-20., -18.])
