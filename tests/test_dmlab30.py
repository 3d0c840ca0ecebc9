import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from scalable_agent import dmlab30

_normalized = dmlab30.compute_human_normalized_score
_LEVELS = tuple(dmlab30.LEVEL_MAPPING.values())


def _column(name):
  return {level: getattr(row, name) for level, row in dmlab30.TABLE_B1.items()}


def _returns(fractions):
  """Returns of which each level's score is the given fraction of a human's."""
  return {
      level: [dmlab30.RANDOM_SCORES[level] + fraction * (
          dmlab30.HUMAN_SCORES[level] - dmlab30.RANDOM_SCORES[level])]
      for level, fraction in zip(_LEVELS, fractions)}


def test_levels():
  """30 levels, two of which are tested as another one."""
  assert len(dmlab30.LEVEL_MAPPING) == len(set(_LEVELS)) == 30
  assert {train: test for train, test in dmlab30.LEVEL_MAPPING.items()
          if train != test} == {
              'rooms_collect_good_objects_train':
                  'rooms_collect_good_objects_test',
              'rooms_exploit_deferred_effects_train':
                  'rooms_exploit_deferred_effects_test'}
  assert dmlab30.ALL_LEVELS == set(dmlab30.LEVEL_MAPPING) | set(_LEVELS)
  assert len(dmlab30.ALL_LEVELS) == 32
  for table in (dmlab30.HUMAN_SCORES, dmlab30.RANDOM_SCORES, dmlab30.TABLE_B1):
    assert set(table) == set(_LEVELS)


def test_released_and_published_scores_agree_but_for_lasertag():
  """The paper rounds to one decimal, and exchanges small and large."""
  exchanged = {'small': 'large', 'large': 'small'}
  for level, row in dmlab30.TABLE_B1.items():
    if level.startswith('lasertag_'):
      stem, size = level.rsplit('_', 1)
      level = f'{stem}_{exchanged[size]}'
    assert row.human == pytest.approx(
        dmlab30.HUMAN_SCORES[level], abs=.0501), level
    assert row.random == pytest.approx(
        dmlab30.RANDOM_SCORES[level], abs=.0501), level


@pytest.mark.parametrize('column, expected', [
    # The paper prints 44.5 and 49.4, from scores of more digits than these.
    ('human', 100.), ('random', 0.), ('experts', 44.4), ('impala', 49.3)])
def test_table_b1(monkeypatch, column, expected):
  """By the paper's own scores of humans and of random actions."""
  monkeypatch.setattr(dmlab30, 'HUMAN_SCORES', _column('human'))
  monkeypatch.setattr(dmlab30, 'RANDOM_SCORES', _column('random'))
  returns = {level: [score] for level, score in _column(column).items()}
  assert _normalized(returns, 100) == pytest.approx(expected, abs=.05)


def test_scores_are_by_the_released_ones():
  human = {level: [score] for level, score in dmlab30.HUMAN_SCORES.items()}
  random = {level: [score] for level, score in dmlab30.RANDOM_SCORES.items()}
  assert _normalized(human) == pytest.approx(100)
  assert _normalized(random) == pytest.approx(0)
  assert isinstance(_normalized(human), float)
  assert dmlab30.human_normalized_score(
      'rooms_watermaze', (54 + 4.065) / 2) == pytest.approx(50)


def test_training_levels_count_as_what_they_are_tested_on():
  returns = _returns([1.] * 30)
  name = 'rooms_collect_good_objects_'
  returns[name + 'train'] = returns.pop(name + 'test')
  assert _normalized(returns) == pytest.approx(100)
  # Returns under both names are episodes of one level.
  returns[name + 'test'] = [dmlab30.RANDOM_SCORES[name + 'test']]
  assert _normalized(returns) == pytest.approx(100 * 29.5 / 30)


def test_episodes_are_averaged_before_the_cap():
  returns = _returns([1.] * 30)
  level = _LEVELS[3]
  returns[level] = np.array(
      _returns([3.] * 30)[level] + [dmlab30.RANDOM_SCORES[level]] * 2)
  assert _normalized(returns, 100) == pytest.approx(100)


@pytest.mark.parametrize('level', _LEVELS)
def test_missing_levels(level):
  """A level without returns is an error that names it, not a score of 0."""
  returns = _returns([1.] * 30)
  for empty in ([], np.array([])):
    returns[level] = empty
    with pytest.raises(ValueError, match=level):
      _normalized(returns)
  del returns[level]
  with pytest.raises(ValueError, match=level):
    _normalized(returns)


def test_other_keys_are_ignored():
  returns = dict(_returns([1.] * 30), seekavoid_arena_01=[1e9], lt_chasm=[])
  assert _normalized(returns) == pytest.approx(100)


_fractions = strategies.lists(
    strategies.floats(-10, 100), min_size=30, max_size=30)


@hypothesis.settings(max_examples=50)
@hypothesis.given(_fractions, strategies.none() | strategies.floats(-500, 1000))
def test_mean_of_capped_percentages(fractions, cap):
  """For any scores it is the mean of percentages, each capped by itself."""
  percentages = 100 * np.array(fractions)
  if cap is not None:
    percentages = np.minimum(percentages, cap)
  assert _normalized(_returns(fractions), cap) == pytest.approx(
      percentages.mean(), rel=1e-6, abs=1e-6)
