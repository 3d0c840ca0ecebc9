"""Which runs are compared where some are missing, and the best samples."""

import pytest

from scalable_agent.studies import outcomes
from scalable_agent.studies import selection
from tests.studies import trial_runs


def _entries(rows):
  """A table whose rows have the columns that a dict of name to text names."""
  return {name: {column: name + column for column in columns}
          for name, columns in rows.items()}


@pytest.mark.parametrize('rows, least, expected', [
    ({}, 0, {}),
    ({'a': '12', 'b': '12'}, 0, {'a': '12', 'b': '12'}),
    # Of eight rows two lack another column each.
    (dict.fromkeys('abcdef', '12') | {'g': '1', 'h': '2'}, 0,
     dict.fromkeys('abcdef', '12')),
    # But the eight have to be left.
    (dict.fromkeys('abcdefg', '12') | {'h': '1'}, 8,
     dict.fromkeys('abcdefgh', '1')),
    # Leaving out a column costs less than a row.
    (dict.fromkeys('ab', '12345') | {'c': '1245'}, 0,
     dict.fromkeys('abc', '1245')),
    # However many columns three quarters of the rows have alone.
    (dict.fromkeys('abc', '123456') | {'d': '1'}, 0,
     dict.fromkeys('abcd', '1')),
    # No column is that of all.
    ({'a': '12', 'b': '13', 'c': '23'}, 0, {'a': '1', 'b': '1'})])
def test_most_entries_are_left_where_some_are_missing(rows, least, expected):
  found = selection.complete(_entries(rows), least)
  assert found == _entries(expected)
  assert list(found) == list(expected)


@pytest.mark.parametrize('columns', [
    (1, 2, 10), tuple(frozenset([('learning_rate', i), ('epsilon', -i)])
                      for i in (1, 2, 10))])
def test_what_is_left_does_not_depend_on_what_was_read_first(columns):
  """As by another name of a directory."""
  a, b, c = columns
  rows = [('x', (a, b)), ('y', (a, c)), ('z', (b, c))]
  found = [
      selection.complete({name: {column: name for column in has[::step]}
                          for name, has in rows[::step]})
      for step in (1, -1)]
  assert found[0] == found[1] == {'x': {a: 'x'}, 'y': {a: 'y'}}


def test_the_best_are_found_by_the_seeds_that_all_have(tmp_path):
  """New seeds of some samples do not change which are the best."""
  for i, value in enumerate((3., 9., 5., 7.)):
    trial_runs.write(tmp_path, f'{i}', [value], sample={'epsilon': i})
  trial_runs.write(tmp_path, 'new', [-100.], sample={'epsilon': 1}, seed=2)
  (samples,) = outcomes.by_variant(outcomes.read_all(tmp_path)).values()
  best = selection.best_samples(samples)
  assert list(best) == [(('epsilon', i),) for i in (1, 3, 2)]
  assert [list(seeds) for seeds in best.values()] == [[1]] * 3
  assert list(selection.best_samples(samples, 1)) == [(('epsilon', 1),)]
  assert not selection.best_samples({})


def test_a_new_seed_is_one_that_all_of_the_best_have(tmp_path):
  """A mean over two of them would be that of others."""
  seeds = {5: (1, 2, 3), 6: (1, 2, 3), 7: (1, 2)}
  for i in range(8):
    for seed in seeds.get(i, (1,)):
      trial_runs.write(tmp_path, f'{i}_{seed}', [10. * seed + i],
                       sample={'epsilon': i}, seed=seed)
  (samples,) = outcomes.by_variant(outcomes.read_all(tmp_path)).values()
  again = selection.best_again(samples)
  assert {seed: sorted(outcome.final for outcome in found)
          for seed, found in again.items()} == {2: [25., 26., 27.]}
