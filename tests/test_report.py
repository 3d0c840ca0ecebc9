"""Learning curves from `episodes.csv`."""

import numpy as np
import pytest

from scalable_agent import report


def _write(logdir, rows):
  logdir.mkdir()
  (logdir / 'episodes.csv').write_text(
      'frames,level,episode_return,episode_frames\n'
      + ''.join(','.join(map(str, row)) + '\n' for row in rows))
  return str(logdir)


def test_episodes_are_read_by_level_in_order(tmp_path):
  logdir = _write(tmp_path / 'run', [
      (100, 'pong', -21, 3000), (200, 'breakout', 1.5, 700),
      (300, 'pong', -20, 3100)])
  levels = report.read_episodes(logdir)
  assert set(levels) == {'pong', 'breakout'}
  np.testing.assert_array_equal(levels['pong'][0], [100, 300])
  np.testing.assert_array_equal(levels['pong'][1], [-21., -20.])


def test_moving_mean_is_over_the_last_values():
  values = np.random.default_rng(0).normal(size=37)
  expected = [values[max(i - 9, 0):i + 1].mean() for i in range(37)]
  np.testing.assert_allclose(report.moving_mean(values, 10), expected)


def test_draws_a_png_of_an_unfinished_run(tmp_path):
  logdirs = [_write(tmp_path / 'a', [(10, 'pong', -21, 3000)]),
             _write(tmp_path / 'b', [(i, 'qbert', i, 9) for i in range(300)])]
  report.draw(logdirs, tmp_path / 'curves.png')
  content = (tmp_path / 'curves.png').read_bytes()
  assert content.startswith(b'\x89PNG') and len(content) > 5000


def test_a_run_without_games_is_refused(tmp_path):
  logdir = _write(tmp_path / 'run', [])
  with pytest.raises(ValueError, match='No game has finished'):
    report.draw([logdir], tmp_path / 'curves.png')
  with pytest.raises(FileNotFoundError):
    report.draw([str(tmp_path / 'missing')], tmp_path / 'curves.png')
