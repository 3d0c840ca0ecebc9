"""Test scores: the table beside published ones, and the file."""

import json
import math
import os

import pytest

from scalable_agent import dmlab30
from scalable_agent import trajectories
from scalable_agent.evaluation import scores as scores_lib
from scalable_agent.process import errors


def _scores(level, mean, error=None):
  return {level: dict(
      mean=mean, standard_error=error,
      human_normalized_score=scores_lib.human_normalized_score(level, mean))}


def _lines(levels):
  """The whole table, as a test of these levels prints it."""
  table = scores_lib.ScoreTable(list(levels))
  return table.head() + [
      table.row(level, scores) for level, scores in levels.items()]


def test_dmlab30_beside_table_b1():
  lines = _lines(dict(
      _scores('rooms_watermaze', 29.0325, 1.25),
      **_scores('language_execute_random_task', -5.913)))
  assert 'Table B.1' in lines[0]
  assert lines[1].split() == [
      'level', 'mean', 'error', '%', 'human', 'random', 'human', 'IMPALA,',
      'experts', 'IMPALA,', 'multi-task']
  assert lines[2].split() == [
      'rooms_watermaze', '29.0', '1.2', '50.0', '4.1', '54.0', '26.9', '31.1']
  assert lines[3].split() == [
      'language_execute_random_task', '-5.9', '–', '0.0', '-5.9', '254.1',
      '-49.9', '66.8']
  assert len({len(line) for line in lines[1:]}) == 1


def test_every_level_has_a_line_of_the_same_width():
  levels = {}
  for level in dmlab30.LEVEL_MAPPING.values():
    levels.update(_scores(level, -1234.5, 1.))
  lines = _lines(levels)
  assert [line.split()[0] for line in lines[2:]] == list(levels)
  assert len({len(line) for line in lines[1:]}) == 1


def test_training_levels_are_beside_what_they_are_tested_on():
  (line,) = _lines(_scores('rooms_collect_good_objects_train', 10.))[2:]
  assert line.split()[3] == '100.0'


def test_nothing_beside_levels_without_published_scores():
  assert [line.split() for line in _lines(
      _scores('gym:CartPole-v1', 500., 2.))] == [
          ['level', 'mean', 'error'], ['gym:CartPole-v1', '500.0', '2.0']]
  assert scores_lib.human_normalized_score('gym:CartPole-v1', 500.) is None


def test_atari():
  lines = _lines(_scores('pong', 14.6))
  assert 'Table C.1' in lines[0]
  assert lines[2].split()[:4] == ['pong', '14.6', '–', '100.0']


def _level(name, *returns):
  return {name: scores_lib.of_level(name, [
      trajectories.Episode(name, float(r), 4 * i)
      for i, r in enumerate(returns)])}


def test_write_scores(tmp_path):
  """The file has what is returned: scores, their errors, and all episodes."""
  test = dict(seed=3)
  scores = scores_lib.write_scores(
      tmp_path, dict(_level('pong', 20, 21, 19, 12),
                     **_level('breakout', 400)), 1000, test)
  assert os.listdir(tmp_path) == ['test_scores.json']
  assert json.loads((tmp_path / 'test_scores.json').read_text()) == scores
  # Deviations of 2, 3, 1 and -6 from the mean; 50 / 3 is their variance.
  assert [level.pop('human_normalized_score')
          for level in scores['levels'].values()] == pytest.approx(
              [100 * (18 + 20.7) / (14.6 + 20.7),
               100 * (400 - 1.7) / (30.5 - 1.7)])
  assert scores['levels']['pong'].pop('standard_error') == pytest.approx(
      math.sqrt(50 / 3 / 4))
  assert scores == dict(
      frames=1000, test=test,
      levels=dict(
          pong=dict(
              mean=18.0, num_episodes=4,
              episode_returns=[20.0, 21.0, 19.0, 12.0],
              episode_frames=[0, 4, 8, 12]),
          breakout=dict(
              mean=400.0, standard_error=None, num_episodes=1,
              episode_returns=[400.0], episode_frames=[0])))


def test_two_episodes_have_an_error():
  assert _level('a', 1, 4)['a']['standard_error'] == pytest.approx(1.5)


def test_what_tests_have_played_so_far_is_kept_apart(tmp_path):
  """Another checkpoint is tried meanwhile, at the same time or in a pause."""
  first, second = (
      scores_lib.UnfinishedTest(tmp_path, dict(seed=3, weights=weights))
      for weights in ('a', 'b'))
  assert first.read() == {}
  first.write(_level('pong', 20))
  assert second.read() == {}
  second.write(_level('breakout', 30))
  assert first.read() == _level('pong', 20)
  second.remove()
  assert second.read() == {}
  again = scores_lib.UnfinishedTest(tmp_path, dict(weights='a', seed=3))
  assert again.read() == _level('pong', 20)
  (path,) = tmp_path.iterdir()
  assert path.match('test_scores.unfinished-*.json')
  assert json.loads(path.read_text())['test'] == dict(seed=3, weights='a')
  path.write_text('{"levels": 1}')
  assert again.read() == {}
  for _ in range(2):
    again.remove()
  assert not os.listdir(tmp_path)


def test_scores_of_another_test_or_of_more_episodes_are_kept(tmp_path):
  read = lambda name: json.loads((tmp_path / name).read_text())
  write = lambda test, *returns: scores_lib.write_scores(
      tmp_path, _level('a', *returns), 1, test)
  written = [write(dict(seed=1), 1, 2)]
  written.append(write(dict(seed=1), 1, 2))  # The same gives way.
  assert [path.name for path in tmp_path.iterdir()] == ['test_scores.json']
  written += [write(dict(seed=1), 5), write(dict(seed=2), 5, 6)]
  (tmp_path / 'test_scores.json').write_text('damaged')
  written.append(write(dict(seed=2), 5, 6))
  assert read('test_scores.1.json') == written[1]
  assert read('test_scores.2.json') == written[2]
  assert (tmp_path / 'test_scores.3.json').read_text() == 'damaged'
  assert read('test_scores.json') == written[4]
  assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_a_return_that_is_not_finite_is_no_score(value):
  with pytest.raises(errors.Failure, match='episode of pong .* not finite'):
    scores_lib.of_level('pong', [
        trajectories.Episode('pong', 1., 4),
        trajectories.Episode('pong', value, 4)])


def test_scores_are_replaced_at_once(tmp_path, monkeypatch):
  """A reader sees the old file or the new one, and an error leaves the old."""
  path = tmp_path / 'test_scores.json'
  old = scores_lib.write_scores(tmp_path, _level('a', 1), 1, {})

  replaced = []
  replace = os.replace

  def checked_replace(source, destination):
    assert json.loads(path.read_text()) == old
    with open(source) as f:
      replaced.append(json.load(f))
    assert os.path.dirname(source) == os.path.dirname(destination)
    replace(source, destination)

  monkeypatch.setattr(os, 'replace', checked_replace)
  new = scores_lib.write_scores(tmp_path, _level('a', 2, 3), 2, {})
  assert replaced == [new]
  assert json.loads(path.read_text()) == new

  with pytest.raises(TypeError):
    scores_lib.write_scores(tmp_path, _level('a', 4), object(), {})
  assert json.loads(path.read_text()) == new
