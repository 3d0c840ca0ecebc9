"""Tables with our scores beside published ones."""

import numpy as np
import pytest

from scalable_agent.results import published
from scalable_agent.results import published_atari57
from scalable_agent.results import runs
from scalable_agent.results import scores
from scalable_agent.results import tables


def _agent(means):
  """A run tested on levels with these scores."""
  return [runs.Run('', {}, 9, {}, {
      level: np.array([mean]) for level, mean in means.items()
      if mean is not None}, 5)]


@pytest.mark.parametrize('agent, median', [
    ('IMPALA, deep, multi-task', '59.7 %'),
    ('IMPALA, shallow, experts', '93.2 %'),
    ('IMPALA, deep, experts', '191.8 %'), ('Reactor', '186.8 %')])
def test_table_c1_gives_the_medians_of_table_4(agent, median):
  """As scores of ours, and as the published ones."""
  table = tables.suite_table(published.ATARI57, {
      'ours': _agent(published_atari57.SCORES[agent])})
  rows = {row[0]: row for row in table.rows}
  for name in ('ours', agent):
    assert (rows[name][1], rows[name][3]) == (median, '57 of 57')
  assert table.header[1] == 'median'
  assert not any('same levels' in name for name in rows)


def test_what_is_printed_stands_beside():
  table = tables.suite_table(published.ATARI57, {})
  assert table.header == ['agent', 'median', 'mean', 'levels',
                          'median, as printed', 'mean, as printed']
  rows = {row[0]: row[1:] for row in table.rows}
  assert rows['Reactor'][3:] == ['187 %', '–']
  assert rows['IMPALA, deep, multi-task'] == [
      '59.7 %', '179.4 %', '57 of 57', '59.7 %', '176.9 %']
  assert rows['A3C, deep, experts'] == [
      '–', '–', '–', '117.9 %', '503.6 %']
  assert rows['ACKTR'][2] == '44 of 57, incomplete'


def test_agents_that_lack_levels_stand_beside_the_published_on_theirs():
  """Pong: 100 %, deep (20.98 + 20.7) / 35.3. Breakout: 0 %, deep 2727.9 %."""
  ours = _agent({'pong': 14.6, 'breakout': 1.7})
  table = tables.suite_table(
      published.ATARI57, {'a': ours, 'b': ours, 'c': _agent({})})
  names = [row[0] for row in table.rows]
  same = [f'{name}: the same levels' for name in published_atari57.AGENTS]
  assert names[:8] == ['a', 'b'] + same + ['c']
  assert table.rows[0][1:4] == ['50.0 %', '50.0 %', '2 of 57, incomplete']
  assert table.rows[6][1:4] == ['1,423.0 %', '1,423.0 %', '2 of 57, incomplete']
  assert table.rows[7][1:4] == ['–', '–', '–']


@pytest.mark.parametrize('score, expected', [
    (scores.NO_RUN, 'no run'),
    (scores.Score(None, None, 'no episode', 0, 0, 5_000_000, False, 1, 1, 0),
     'no episode finished yet, 1 seed, 0 frames of 5M, unfinished'),
    (scores.Score(1., .1, 'test', 200_000_000, 200_000_000, 200_000_000, True, 3, 3,
                  600),
     'test, 600 episodes, 3 seeds, 200M frames'),
    # The best checkpoint of a run that is done.
    (scores.Score(1., .1, 'test', 55_000_000, 60_000_000, 60_000_000, True, 1, 1, 200),
     'test, 200 episodes, 1 seed, 55M frames of 60M'),
    (scores.Score(1., .1, 'test', 200_000_000, 200_000_000, 200_000_000, True, 3, 1,
                  600),
     'test, 600 episodes, 3 runs of 1 seed, 200M frames'),
    # A test that was before the rest of the training.
    (scores.Score(1., .1, 'test', 1_440, 182_400, 10_000_000, False, 1, 1, 9),
     'test, 9 episodes, 1 seed, 1.44k frames of 10M, trained to 182.4k, '
     'unfinished'),
    (scores.Score(1., None, 'training', 12_345_678, 12_345_678, None, True, 1,
                  1, 1),
     'training, 1 episode, 1 seed, 12.35M frames')])
def test_origin(score, expected):
  assert tables.origin(score) == expected


def test_level_table_marks_what_is_missing():
  table = tables.level_table(
      published.ATARI57, {'ours': _agent({'pong': 20})}, ['pong', 'skiing'])
  assert table.header == [
      'level', 'ours', 'human-normalised', 'random', 'human',
      *published_atari57.AGENTS, 'ours: from']
  pong, skiing = table.rows
  assert pong == [
      'pong', '20.0', '115.3 %', '-20.7', '14.6', '20.9', '20.7', '8.6', '20.4',
      '21.0', 'test, 1 episode, 1 seed, 5 frames']
  assert skiing[:4] == ['skiing', '–', '–', '-17,098.1']
  assert skiing[5] == '–' and skiing[-1] == 'no run'


def test_what_is_published_alone():
  (row,) = tables.published_table(published.ATARI57, ['pong']).rows
  assert row == ['pong', '-20.7', '14.6', '20.9', '20.7', '8.6', '20.4', '21.0']


def test_plain_table_has_a_row_for_each_agent_of_a_level():
  table = tables.plain_table(['x', 'y'], {
      'a': _agent({'x': 1., 'y': 2.}), 'b': _agent({'y': 3.})})
  assert [row[:3] for row in table.rows] == [
      ['x', '1.0', 'a'], ['y', '2.0', 'a'], ['y', '3.0', 'b']]
