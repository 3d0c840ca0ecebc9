"""Which suite a level belongs to."""

import collections
import types

import pytest

from scalable_agent.results import benchmarks

_Row = collections.namedtuple('_Row', 'human random experts impala')


@pytest.fixture
def two_levels(monkeypatch):
  """A suite like DMLab-30, of two levels, the first with a test twin."""
  monkeypatch.setattr(benchmarks, 'dmlab30', types.SimpleNamespace(
      LEVEL_MAPPING={'rooms_train': 'rooms_test', 'maze': 'maze'},
      HUMAN_SCORES={'rooms_test': 10., 'maze': 20.},
      RANDOM_SCORES={'rooms_test': 0., 'maze': 10.},
      human_normalized_score=lambda level, x: 10 * x,
      TABLE_B1={'rooms_test': _Row(10., 0., 5., 6.),
                'maze': _Row(20., 10., 7., 8.)}))


def test_games_are_atari():
  assert benchmarks.find('pong') == (benchmarks.ATARI57, 'pong')
  assert benchmarks.find('gym:CartPole-v1') == (None, 'gym:CartPole-v1')


def test_statistics_of_atari():
  """Table 4 has medians and means."""
  assert {name: f([1, 2, 9]) for name, f in
          benchmarks.ATARI57.statistics.items()} == {'median': 2, 'mean': 4}


@pytest.mark.parametrize('level, scored_as', [
    ('rooms_train', 'rooms_test'), ('rooms_test', 'rooms_test'),
    ('contributed/dmlab30/rooms_train', 'rooms_test'), ('maze', 'maze')])
def test_levels_of_dmlab30_are_scored_as_their_test_twins(
    two_levels, level, scored_as):
  benchmark, name = benchmarks.find(level)
  assert (benchmark.name, name) == ('DMLab-30', scored_as)
  assert benchmark.columns == {
      'IMPALA experts': {'rooms_test': 5., 'maze': 7.},
      'IMPALA': {'rooms_test': 6., 'maze': 8.}}
  assert {name: f([50, 250]) for name, f in benchmark.statistics.items()} == {
      'mean capped at 100 %': 75, 'mean': 150}


def test_other_levels_of_dmlab_are_of_no_suite(two_levels):
  assert benchmarks.find('seekavoid_arena_01') == (None, 'seekavoid_arena_01')
