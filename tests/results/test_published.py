"""Which suite a level belongs to, and what is published on it."""

import pytest

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent.results import published
from scalable_agent.results import scores


def test_games_are_atari():
  assert published.find('pong') == (published.ATARI57, 'pong')


@pytest.mark.parametrize('level, scored_as', [
    ('rooms_collect_good_objects_train', 'rooms_collect_good_objects_test'),
    ('rooms_collect_good_objects_test', 'rooms_collect_good_objects_test'),
    ('contributed/dmlab30/rooms_exploit_deferred_effects_train',
     'rooms_exploit_deferred_effects_test'),
    ('natlab_fixed_large_map', 'natlab_fixed_large_map')])
def test_levels_of_dmlab30_are_scored_as_their_test_twins(level, scored_as):
  assert published.find(level) == (published.DMLAB30, scored_as)


@pytest.mark.parametrize('level', ['seekavoid_arena_01', 'gym:CartPole-v1'])
def test_other_levels_are_of_no_suite(level):
  assert published.find(level) == (None, level)


@pytest.mark.parametrize('benchmark', [published.ATARI57, published.DMLAB30])
def test_every_level_has_all_scores(benchmark):
  for table in (benchmark.human, benchmark.random, *benchmark.columns.values()):
    assert set(table) >= set(benchmark.levels)
  for level in benchmark.levels:
    assert benchmark.normalize(level, benchmark.human[level]) == (
        pytest.approx(100))
    assert benchmark.normalize(level, benchmark.random[level]) == (
        pytest.approx(0))
  for printed in benchmark.printed.values():
    assert len(printed) == len(benchmark.statistics)


def test_statistics():
  """Table 4 has medians and means, Table B.1 the capped mean."""
  assert scores.statistics(published.ATARI57, [1, 2, 9]) == {
      'median': 2, 'mean': 4}
  assert scores.statistics(published.DMLAB30, [50, 250]) == {
      'mean capped at 100 %': 75, 'mean': 150}


@pytest.mark.parametrize('agent, expected', [
    ('IMPALA, experts', 45.7), ('IMPALA, multi-task', 50.1)])
def test_scores_of_dmlab30_by_the_released_human_scores(agent, expected):
  """As the module says; not the printed ones, 44.5 and 49.4."""
  computed = scores.statistics(
      published.DMLAB30, scores.percentages(
          published.DMLAB30, published.DMLAB30.columns[agent]).values())
  assert round(computed['mean capped at 100 %'], 1) == expected


def test_levels_of_suites():
  assert published.levels_of_suite('atari57') == atari57.GAMES
  assert published.levels_of_suite('dmlab30') == tuple(dmlab30.LEVEL_MAPPING)
  for level in ('pong', 'contributed/dmlab30/rooms_watermaze', 'gym:x',
                'pogn', '', None):
    assert published.levels_of_suite(level) == ()
