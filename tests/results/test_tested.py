"""Test scores of many runs as text."""

from scalable_agent.results import tested
from tests import test_report


def test_scores_of_tested_games_and_their_statistics(tmp_path):
  """Of those alone that were tested."""
  make = lambda game, *returns: test_report.make_run(
      tmp_path / game, [(10, game, 1.)], level_name=game,
      tested={game: returns} if returns else ())
  lines = tested.lines([make('pong', 14.6, 14.6), make('breakout', 1.7, 1.7),
                        make('qbert')])
  header, breakout, pong, blank, statistics, score = lines
  assert header.split()[:2] == ['level', 'shallow']
  assert pong.split()[:6] == ['pong', '14.6', '±', '0.0', '100.0', '%']
  assert breakout.split()[:6] == ['breakout', '1.7', '±', '0.0', '0.0', '%']
  assert len({len(header), len(breakout), len(pong)}) == 1
  assert 'test, 2 episodes' not in pong and not blank
  assert statistics.split() == ['agent', 'median', 'mean', 'levels']
  assert score.split() == [
      'shallow', '50.0', '%', '50.0', '%', '2', 'of', '57,', 'incomplete']


def test_without_a_test_there_is_nothing_to_show(tmp_path):
  assert tested.lines([test_report.make_run(
      tmp_path / 'a', [(10, 'pong', 1.)], level_name='pong')]) == []
