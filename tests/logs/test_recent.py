"""The last episodes of a run, its own and those from before it was resumed."""

import tracemalloc

import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent import trajectories
from scalable_agent.logs import recent
from tests import failing_files

_HEADER = 'frames,level,episode_return,episode_frames\n'


def _logged(path, rows):
  path.write_text(_HEADER + ''.join(
      f'{i},{level},{value},4\n' for i, (level, value) in enumerate(rows)))
  return str(path)


def test_the_mean_is_over_the_last_100_episodes():
  episodes = recent.RecentEpisodes('pong')
  assert episodes.mean_return() is None and not len(episodes)
  for i in range(150):
    episodes.add(trajectories.Episode('pong', float(i), 4))
  assert (episodes.mean_return(), len(episodes)) == (99.5, 100)


def test_logged_episodes_come_before_new_ones(tmp_path):
  """Only the last count, whatever is damaged between them."""
  path = _logged(tmp_path / 'e.csv', [('pong', i) for i in range(150)])
  with open(path, 'a') as f:
    f.write('200,pomg,9,4\nhalf a li')
  episodes = recent.RecentEpisodes('pong')
  episodes.add_logged(path)
  assert (episodes.mean_return(), len(episodes)) == (99.5, 100)
  episodes.add(trajectories.Episode('pong', 1050., 4))
  assert episodes.mean_return() == 99.5 + 10.
  assert episodes.fitness().value == 109.5


def test_a_log_that_cannot_be_read_is_not_one_that_is_not_there(
    tmp_path, monkeypatch):
  episodes = recent.RecentEpisodes('pong')
  episodes.add_logged(str(tmp_path / 'none.csv'))
  assert not len(episodes)
  path = _logged(tmp_path / 'e.csv', [('pong', 1.)])
  failing_files.fail(monkeypatch, 'e.csv')
  with pytest.raises(OSError):
    episodes.add_logged(path)


def test_of_a_suite_every_level_has_its_last(tmp_path):
  """Though one of them has finished many more than the others."""
  games, rng = atari57.GAMES, np.random.default_rng(0)
  rows = [(game, rng.normal()) for game in games for _ in range(3)]
  rows += [(games[5], rng.normal()) for _ in range(500)]
  episodes = recent.RecentEpisodes('atari57')
  episodes.add_logged(_logged(tmp_path / 'e.csv', rows))
  returns = {game: [value for level, value in rows if level == game][-100:]
             for game in games}
  scores = episodes.suite_scores()
  assert scores['median_human_normalized_score'] == pytest.approx(
      atari57.compute_human_normalized_score(returns, statistic=np.median))
  assert len(episodes) == 100


def test_of_a_suite_levels_that_are_rare_at_the_end_have_their_last_too(
    tmp_path):
  """Those before the many of another level, if they are not enough."""
  games = atari57.GAMES
  rows = [(game, 1.) for game in games for _ in range(3)]
  rows += [(games[5], 2.)] * 500 + [(game, 9.) for game in games]
  read = recent.RecentEpisodes('atari57')
  read.add_logged(_logged(tmp_path / 'e.csv', rows))
  noted = recent.RecentEpisodes('atari57')
  for game, value in rows:
    noted.add(trajectories.Episode(game, value, 4))
  assert read.suite_scores() == noted.suite_scores()


def test_a_long_log_is_not_held_in_memory(tmp_path):
  """Though a level that has no episode is looked for in all of it."""
  path = _logged(tmp_path / 'e.csv', [('pong', 1.)] * 20_000)
  episodes = recent.RecentEpisodes('atari57')
  tracemalloc.start()
  try:
    episodes.add_logged(path)
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert len(episodes) == 100
  assert peak < 2 << 20


def test_a_new_run_has_none(tmp_path):
  episodes = recent.RecentEpisodes('pong')
  episodes.add_logged(str(tmp_path / 'none.csv'))
  assert len(episodes) == 0
