"""The report of a sweep: tables, pictures, CSV, errors."""

import csv
import io
import itertools
import json

from absl import flags
from absl.testing import flagsaver
import numpy as np
from PIL import Image
import pytest

from scalable_agent import atari57
from scalable_agent import report
from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import tables
from scalable_agent.studies import document
from scalable_agent.studies import lag
from scalable_agent.studies import outcomes
from scalable_agent.studies import pictures
from scalable_agent.studies import tables as study_tables
from scalable_agent.studies import variants as variants_lib
from tests.studies import trial_runs

_CORRECTIONS = ('vtrace', 'none')
_REPLAY = (0., .5)
# Of each variant, the final return of each of 24 samples in the first round.
_LEVEL = {('vtrace', 0.): 100., ('none', 0.): 100.,
          ('vtrace', .5): 120., ('none', .5): 60.}
# What the seeds of the second round have more.
_NEW_SEEDS = {2: 20., 3: -20., 4: 10., 5: -10.}


@pytest.fixture(name='drawn')
def _drawn():
  """Has a test draw its pictures, which takes longer than all the rest."""


@pytest.fixture(autouse=True)
def _undrawn(request, monkeypatch):
  """Other tests lay their pictures out, and have none drawn."""
  if 'drawn' not in request.fixturenames:
    monkeypatch.setattr(pictures, '_to_png', lambda figure, axis: b'')


def _first_return(correction, replay, i):
  # All variants have the same good and bad samples.
  return _LEVEL[correction, replay] + 3. * i + (-1) ** i


@pytest.fixture(scope='module', name='sweep')
def _sweep(tmp_path_factory):
  root = tmp_path_factory.mktemp('sweep')
  for correction in _CORRECTIONS:
    for replay in _REPLAY:
      variant = [{'off_policy_correction': correction},
                 {'replay_proportion': replay}]
      for i in range(24):
        seeds = {1: _first_return(correction, replay, i)}
        if i >= 21:
          seeds.update({seed: _LEVEL[correction, replay] + offset
                        for seed, offset in _NEW_SEEDS.items()})
        for seed, value in seeds.items():
          trial_runs.write(
              root, f'{correction}_{replay}_{i}_{seed}', [0.] * 9 + [value],
              variant, {'learning_rate': i / 100}, seed=seed, total=10_000)
  return root


def _tables(blocks):
  return blocks_lib.of_kind(blocks, blocks_lib.Table)


def _rows(table):
  return {row[0]: row for row in table.rows}


def test_the_best_three_of_each_variant_and_those_again(sweep):
  best, differences = _tables(
      document.build(outcomes.read_all(sweep), ['best3']))
  rows = _rows(best)
  assert len(rows) == 4
  for correction in _CORRECTIONS:
    for replay in _REPLAY:
      row = rows[f'off_policy_correction={correction}, '
                 f'replay_proportion={replay}']
      returns = sorted(_first_return(correction, replay, i) for i in range(24))
      assert row[1:4] == ['24', f'{returns[-1]:.1f}',
                          f'{np.mean(returns[-3:]):.1f}']
      # The mean of the new seeds of the samples 21 to 23 is the level.
      assert row[4:6] == ['60' if correction == 'none' and replay else
                          f'{_LEVEL[correction, replay]:.1f}', '4']
      low, high = (float(end) for end in row[6].split(' to '))
      assert low < _LEVEL[correction, replay] < high
  # Those pairs alone that differ in one thing, the last by 60 in every seed.
  found = {(row[0], row[1]): row[2:] for row in differences.rows}
  assert len(found) == 4
  name = 'off_policy_correction={}, replay_proportion={}'.format
  assert found[name('none', 0.5), name('vtrace', 0.5)] == [
      '4', '-60', '-60 to -60', 'lower']
  assert found[name('none', 0.), name('vtrace', 0.)][-1] == 'cannot be told'
  assert found[name('vtrace', 0.), name('vtrace', .5)][-1] == 'lower'


def test_stability_is_over_all_samples(sweep):
  table, *_ = _tables(
      document.build(outcomes.read_all(sweep), ['stability']))
  row = _rows(table)['off_policy_correction=none, replay_proportion=0.5']
  returns = [_first_return('none', .5, i) for i in range(24)]
  assert row[1:3] == ['24', f'{np.mean(returns):.3g}']
  assert row[4:] == [f'{np.median(returns):.3g}', f'{min(returns):.3g}']


def test_the_gap_between_corrections_is_compared_with_and_without_replay(sweep):
  """It is 0 without replay, and V-trace is ahead by 60 with it."""
  *_, table = _tables(
      document.build(outcomes.read_all(sweep), ['stability']))
  assert table.rows == [[
      'replay_proportion=0.0', 'replay_proportion=0.5',
      'off_policy_correction=none', 'off_policy_correction=vtrace',
      '24', '60', '60 to 60', 'higher']]


def _interaction(root, chosen):
  """The last table on runs of two things that vary, both ways to name them."""
  for a, b in chosen:
    for i in range(6):
      trial_runs.write(
          root, f'{a}_{b}_{i}', [a * b * (i + 1.) + 10. * a - b + i],
          [{'batch_size': a}, {'unroll_length': b}], {'epsilon': i})
  return _tables(document.build(outcomes.read_all(root), ['stability']))[-1]


def test_differences_are_compared_once_in_a_square(tmp_path):
  table = _interaction(tmp_path, [(a, b) for a in (1, 2, 3) for b in (1, 2)])
  assert len(table.rows) == 3
  row = next(row for row in table.rows if 'batch_size=3' not in row)
  # (1 * 1 - 2 * 1) - (1 * 2 - 2 * 2) = 1 of each i + 1, or its negative.
  assert row[4:6] == ['6', '3.5'] and row[-1] == 'higher'


def test_three_corners_are_no_square(tmp_path):
  table = _interaction(tmp_path, [(1, 1), (1, 2), (2, 1)])
  assert 'difference' in table.header


def test_differences_of_three_things_are_compared_one_by_one(tmp_path):
  """A cube has six sides, and no diagonal counts."""
  for i in range(8):
    a, b, c = (1 + (i >> bit & 1) for bit in range(3))
    for sample in range(4):
      trial_runs.write(
          tmp_path, f'{i}_{sample}', [float(i * sample)],
          [{'batch_size': a}, {'unroll_length': b}, {'num_actors': c}],
          {'epsilon': sample})
  table = _tables(document.build(outcomes.read_all(tmp_path), ['stability']))[-1]
  assert len(table.rows) == 6


def test_differences_are_of_runs_that_all_four_corners_have(tmp_path):
  """One corner lacks a learning rate, with which returns are 100 higher."""
  for seed in range(4):
    for rate in (0, 1):
      for a, b in [(1, 1), (1, 2), (2, 1), (2, 2)]:
        if (rate, a, b) != (1, 2, 2):
          trial_runs.write(
              tmp_path, f'{seed}_{rate}_{a}_{b}', [100. * rate + seed],
              [{'batch_size': a}, {'unroll_length': b},
               {'learning_rate': rate}], seed=seed)
  table = _tables(document.build(outcomes.read_all(tmp_path), ['stability']))[-1]
  (row,) = table.rows
  assert row[4:6] == ['4', '0'] and row[-1] == 'cannot be told'


def test_two_agents_need_no_seed_in_common(tmp_path):
  for seed in range(5):
    trial_runs.write(tmp_path, f'a_{seed}', [1. + seed], seed=seed)
    trial_runs.write(tmp_path, f'b_{seed}', [11. + seed],
                     [{'agent': 'reactor'}], seed=seed + 5)
  _, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))
  (row,) = differences.rows
  assert row[2:4] == ['5 and 5', '-10'] and row[-1] == 'lower'


def test_impala_is_one_agent_whether_it_is_named_or_not(tmp_path):
  for seed in range(5):
    trial_runs.write(tmp_path, f'a_{seed}', [10. * seed], seed=seed)
    trial_runs.write(tmp_path, f'b_{seed}', [10. * seed + 1],
                     [{'agent': 'impala'}], seed=seed)
  _, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))
  (row,) = differences.rows
  assert row[2:] == ['5', '-1', '-1 to -1', 'lower']


def test_runs_of_two_agents_are_no_pairs(tmp_path):
  """Each pair differs by 1, which says nothing: seeds differ by more."""
  for seed in range(5):
    for agent, more in (('impala', 0.), ('reactor', 1.)):
      trial_runs.write(tmp_path, f'{agent}_{seed}', [10. * seed + more],
                       [{'agent': agent}], seed=seed)
  _, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))
  (row,) = differences.rows
  assert row[2:4] == ['5 and 5', '-1']
  assert row[-1] == 'cannot be told'


def test_seeds_are_compared_where_nothing_is_sampled(tmp_path):
  for seed in range(5):
    for correction in _CORRECTIONS:
      trial_runs.write(
          tmp_path, f'{correction}_{seed}',
          [seed + 2. * (correction == 'vtrace')],
          [{'off_policy_correction': correction}], seed=seed)
  table, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))
  assert _rows(table)['off_policy_correction=none'][1:3] == ['5', '2']
  (row,) = differences.rows
  assert row[2:] == ['5', '-2', '-2 to -2', 'lower']


def test_a_run_that_is_missing_is_missing_in_its_pair_alone(sweep):
  found = [outcome for outcome in outcomes.read_all(sweep)
           if 'vtrace_0.0_5' not in outcome.logdir]
  _, differences, _ = _tables(document.build(found, ['stability']))
  assert sorted(row[2] for row in differences.rows) == ['23', '23', '24', '24']


def _stability(tmp_path):
  """The rows of the tables of means and, of several variants, differences."""
  return [table.rows for table in _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))]


def test_seeds_that_one_variant_lacks_count_for_neither(tmp_path):
  """Both are equal run by run, so their difference is 0, whatever is missing.
  """
  for seed in range(3):
    for i in range(6):
      for correction in _CORRECTIONS:
        if (correction, i, seed) != ('none', 4, 2):
          trial_runs.write(
              tmp_path, f'{correction}_{i}_{seed}', [100. * seed + i],
              [{'off_policy_correction': correction}], {'epsilon': i},
              seed=seed)
  means, (difference,) = _stability(tmp_path)
  # The other seeds of sample 4 count for neither.
  assert [row[2] for row in means] == ['102.2', '102.5']
  assert difference[2:] == ['5', '0', '0 to 0', 'cannot be told']


def test_a_seed_that_one_variant_has_alone_counts_for_neither(tmp_path):
  """It would make all of its samples better, or worse."""
  for correction, seeds in (('none', [0]), ('vtrace', [0, 1])):
    for seed in seeds:
      for i in range(6):
        trial_runs.write(
            tmp_path, f'{correction}_{i}_{seed}', [100. * seed + i],
            [{'off_policy_correction': correction}], {'epsilon': i}, seed=seed)
  means, (difference,) = _stability(tmp_path)
  assert [row[1:3] for row in means] == [['6', '2.5'], ['6', '52.5']]
  assert difference[2:] == ['6', '0', '0 to 0', 'cannot be told']


@pytest.mark.parametrize('num_samples, expected', [(1, '3'), (2, '2')])
def test_seeds_are_the_units_of_one_sample_and_samples_of_two(
    tmp_path, num_samples, expected):
  for i in range(num_samples):
    for seed in range(3):
      trial_runs.write(tmp_path, f'{i}_{seed}', [float(i)],
                       sample={'epsilon': i}, seed=seed)
  ((_, count, *_),), *_ = _stability(tmp_path)
  assert count == expected


@pytest.mark.parametrize('first, second, expected', [
    ([dict(a=1)], [dict(a=2)], True),
    ([], [dict(a=1)], True),
    ([dict(a=1, b=1)], [dict(a=2, b=2)], True),  # They go together.
    ([dict(a=1), dict(b=1)], [dict(a=2), dict(b=2)], False),
    ([], [dict(agent='reactor'), dict(retrace_lambda=.5)], False)])
def test_those_are_compared_that_differ_in_one_thing(first, second, expected):
  """Whichever comes first, and even if one lacks what the other varies."""
  for pair in (first, second), (second, first):
    variants = [outcomes.split(variant, {})[0] for variant in pair]
    assert variants_lib.neighbours(variants) == (
        [tuple(variants)] if expected else [])


@pytest.fixture(scope='module', name='gaps')
def _gaps(tmp_path_factory):
  """Sample 1 lacks a run, and sample 5 lacks one of another seed."""
  root = tmp_path_factory.mktemp('gaps')
  for seed in range(2):
    for i in range(8):
      for correction in _CORRECTIONS:
        if (correction, i, seed) not in [('none', 1, 0), ('none', 5, 1)]:
          trial_runs.write(
              root, f'{correction}_{i}_{seed}',
              [10. * seed + i + 2. * (correction == 'vtrace')],
              [{'policy_lag': 0}, {'off_policy_correction': correction}],
              {'learning_rate': i}, seed=seed)
  return root


@pytest.mark.parametrize('study', ['best3', 'stability', 'lag'])
def test_runs_that_are_missing_cost_their_samples_alone(gaps, study):
  blocks = document.build(outcomes.read_all(gaps), [study])
  table, differences = _tables(blocks)
  name = 'policy_lag=0, off_policy_correction=none'
  if study == 'stability':
    assert [row[1] for row in table.rows] == ['6', '8']
    (row,) = differences.rows
    assert row[2:] == ['6', '-2', '-2 to -2', 'lower']
  elif study == 'best3':
    # Of the samples 7, 6 and 4, over both seeds.
    assert _rows(table)[name][1:4] == ['6', '12', '10.7']
  else:
    # The best sample with seed 1, which is not the seed that chooses.
    assert table.rows[0][1].startswith('17 (')
  (text,) = [block.text for block in blocks
             if 'left out' in getattr(block, 'text', '')]
  assert text.startswith(f'{name}: 2 of 14 runs are left out')
  assert text.endswith(f'missing: {gaps}/none_1_1, {gaps}/none_5_0.')


@pytest.mark.parametrize('num_samples', [2, 3])
def test_a_run_that_is_missing_is_named_where_samples_are_few(
    tmp_path, num_samples):
  """So few have no second round."""
  for seed in 1, 2, 3:
    for rate in range(num_samples):
      if seed < 3 or not rate:
        trial_runs.write(tmp_path, f'{seed}_{rate}', [1.], seed=seed,
                         sample={'learning_rate': rate})
  (text,) = [block.text for block in document.build(
      outcomes.read_all(tmp_path), ['stability'])
             if 'left out' in getattr(block, 'text', '')]
  assert text.endswith(f'missing: {tmp_path}/3_0.')


def test_a_second_round_is_not_called_left_out(sweep):
  for study in 'best3', 'stability':
    assert 'left out' not in str(
        document.build(outcomes.read_all(sweep), [study]))


@pytest.mark.parametrize('study', ['best3', 'stability'])
def test_nor_is_a_second_round_of_fewer_than_half(tmp_path, study):
  """Whichever samples it is of."""
  for i in range(8):
    for seed in (1, 2) if i < 3 else (1,):
      trial_runs.write(tmp_path, f'{i}_{seed}', [float(i)],
                       sample={'epsilon': i}, seed=seed)
  assert 'left out' not in str(
      document.build(outcomes.read_all(tmp_path), [study]))


def test_what_the_user_chose_to_try_is_no_sample(tmp_path):
  """Seeds are drawn, and rates of a grid are not: means are over the grid."""
  for seed in range(5):
    for rate in (1., 2., 60.):
      for correction in _CORRECTIONS:
        trial_runs.write(
            tmp_path, f'{correction}_{rate}_{seed}',
            [seed + rate + 2. * (correction == 'vtrace')],
            [{'off_policy_correction': correction}, {'learning_rate': rate}],
            seed=seed)
  means, (difference,) = _stability(tmp_path)
  assert [row[1:3] for row in means] == [['5', '23'], ['5', '25']]
  assert difference[2:] == ['5', '-2', '-2 to -2', 'lower']


def _write_tried(root, without=()):
  """Five drawn samples of epsilon, with three rates that were chosen."""
  for i in range(5):
    for rate in (1., 2., 60.):
      for correction in _CORRECTIONS:
        name = f'{correction}_{i}_{rate:g}'
        if name not in without:
          trial_runs.write(
              root, name, [i + rate + 2. * (correction == 'vtrace')],
              [{'off_policy_correction': correction}, {'learning_rate': rate}],
              {'epsilon': i})


def test_a_drawn_sample_counts_once_whatever_is_tried_with_it(tmp_path):
  """What was chosen makes no more samples: means are over the rates."""
  _write_tried(tmp_path)
  means, (difference,) = _stability(tmp_path)
  assert [row[1:3] for row in means] == [['5', '23'], ['5', '25']]
  assert difference[2:] == ['5', '-2', '-2 to -2', 'lower']


def test_a_drawn_sample_counts_with_all_rates_or_not_at_all(tmp_path):
  _write_tried(tmp_path, without=['none_0_60'])
  means, (difference,) = _stability(tmp_path)
  assert [row[1:3] for row in means] == [['4', '23.5'], ['5', '25']]
  assert difference[2:] == ['4', '-2', '-2 to -2', 'lower']
  text = str(document.build(outcomes.read_all(tmp_path), ['stability']))
  assert f'missing: {tmp_path}/none_0_1, {tmp_path}/none_0_2.' in text


def test_grids_that_have_nothing_in_common_are_compared(tmp_path):
  for seed in range(4):
    for correction, rate in (('none', 1.), ('vtrace', 2.)):
      trial_runs.write(
          tmp_path, f'{correction}_{seed}', [seed + rate],
          [{'off_policy_correction': correction}, {'learning_rate': rate}],
          seed=seed)
  _, (difference,) = _stability(tmp_path)
  assert difference[2:] == ['4', '-1', '-1 to -1', 'lower']


def test_the_order_of_flags_makes_no_other_variant(tmp_path):
  variant = [{'off_policy_correction': 'none'},
             {'batch_size': 2, 'num_actors': 4}]
  turned = [{'num_actors': 4, 'batch_size': 2},
            {'off_policy_correction': 'none'}]
  sample = {'epsilon': 1., 'discounting': .5}
  for seed in range(4):
    trial_runs.write(tmp_path, f'{seed}', [1.], turned if seed % 2 else variant,
                     dict(reversed(sample.items())) if seed % 2 else sample,
                     seed=seed)
  ((mean,),) = _stability(tmp_path)
  assert mean[:2] == [
      'off_policy_correction=none, batch_size=2, num_actors=4', '4']


def test_returns_on_different_games_are_not_drawn_together(tmp_path, drawn):
  for level, games, num_pictures in (
      ('pong', ['pong'], 1), ('atari57', atari57.GAMES, 0)):
    logdir = tmp_path / level
    # All games have an episode in the last tenth.
    trial_runs.write(
        logdir, 'a', [(game, 5.) for _ in range(20) for game in games],
        [{'policy_lag': 1}], level=level, total=100_000)
    blocks = document.build(outcomes.read_all(logdir), ['best3'])
    assert len(_tables(blocks)) == 1
    assert num_pictures == len(
        blocks_lib.of_kind(blocks, blocks_lib.Picture))


@pytest.fixture(scope='module', name='lagged')
def _lagged(tmp_path_factory):
  """At a lag of 100 the second rate is the better one, and vtrace by 5."""
  root = tmp_path_factory.mktemp('lagged')
  rng = np.random.default_rng(0)
  for lag in (0, 100):
    for rate in (.1, .2):
      for seed in range(10):
        noise = rng.normal()
        for correction in _CORRECTIONS:
          value = 50. + noise + 10. * (rate == .2) * (lag == 100) + 5. * (
              correction == 'vtrace' and lag == 100)
          trial_runs.write(
              root, f'{lag}_{correction}_{rate}_{seed}', [value],
              [{'policy_lag': lag}, {'off_policy_correction': correction},
               {'learning_rate': rate}], seed=seed)
  return root


def test_return_against_lag_with_intervals_over_seeds(lagged, drawn):
  blocks = document.build(outcomes.read_all(lagged), ['lag'])
  table, differences = _tables(blocks)
  assert table.header == ['lag', 'off_policy_correction=none',
                          'off_policy_correction=vtrace']
  assert [row[0] for row in table.rows] == ['0', '100']
  mean = float(table.rows[1][2].split()[0])
  assert abs(mean - 65.) < 1.  # At the better of the two rates.
  assert table.rows[1][2].endswith('5 seeds)')
  rows = _rows(differences)
  assert rows['off_policy_correction=none, lag 100'][2:] == [
      '5', '-5', '-5 to -5', 'lower']
  # All hyperparameters at their best, and each by itself.
  assert len(blocks_lib.of_kind(blocks, blocks_lib.Picture)) == 3


def test_the_best_sample_is_not_chosen_by_the_seed_that_counts():
  """Samples that are luck alone are worth nothing, however many there are."""
  rng = np.random.default_rng(0)
  means = []
  for _ in range(400):
    finals = rng.normal(size=(20, 10))
    samples = {
        (('learning_rate', i),): {
            seed: outcomes.Outcome(
                '', '', (), (), frozenset(), seed, {}, final, 1, 1, {})
            for seed, final in enumerate(row)} for i, row in enumerate(finals)}
    chosen = lag._choose(samples, None, (range(0, 10, 2), range(1, 10, 2)))
    assert set(chosen) == {1, 3, 5, 7, 9}
    means.append(np.mean(list(chosen.values())))
  # The best of 20 means of 5 seeds is at 0.84.
  assert abs(np.mean(means)) < 4 * np.std(means) / np.sqrt(400) < .2


def test_every_second_seed_of_all_chooses():
  """The first one does, though some variants lack it."""
  lines = {'a': {0: {'x': {5: 1, 3: 1}}, 10: {'x': {8: 1}, 'y': {1: 1}}},
           'b': {0: {'y': {3: 1, 4: 1}}}}
  assert lag._halves(lines) == ([1, 4, 8], [3, 5])


def test_what_is_chosen_for_is_not_what_chooses():
  """Halves that choose for each other are not independent.

  With equal samples a half that has a high mean of one is the reason why the
  other half shows that one too.
  """
  rng = np.random.default_rng(1)
  told, count = 0, 400
  for _ in range(count):
    shown = []
    for _ in range(2):
      finals = rng.normal(size=(3, 10))
      shown.append(lag._choose({
          (('learning_rate', i),): {
              seed: outcomes.Outcome(
                  '', '', (), (), frozenset(), seed, {}, final, 1, 1, {})
              for seed, final in enumerate(row)}
          for i, row in enumerate(finals)},
                              None, (range(0, 10, 2), range(1, 10, 2))))
    told += study_tables.difference(*shown)[-1] != 'cannot be told'
  assert told / count < .08


@pytest.mark.parametrize('missing, pairs', [
    ([(0, 1)], 5), ([(0, 6)], 4),
    # All runs of a seed.
    ([(i, 1) for i in range(3)], 5), ([(i, 6) for i in range(3)], 4)])
def test_a_missing_run_costs_no_pairs_of_other_seeds(
    tmp_path, missing, pairs):
  """Whichever half of the seeds it is of, the halves stay what they are."""
  for correction in _CORRECTIONS:
    for i, seed in itertools.product(range(3), range(1, 11)):
      if correction == 'none' or (i, seed) not in missing:
        trial_runs.write(
            tmp_path, f'{correction}_{i}_{seed}', [float(seed)],
            [{'policy_lag': 0}, {'off_policy_correction': correction}],
            {'learning_rate': i}, seed=seed)
  _, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['lag']))
  ((_, _, found, *_),) = differences.rows
  assert found == str(pairs)


def test_there_is_no_best_by_one_seed_alone(tmp_path, drawn):
  """The best of luck would be shown for what hyperparameters are worth."""
  for i in range(4):
    for seed in range(3 if i < 2 else 1):
      trial_runs.write(
          tmp_path, f'{i}_{seed}', [float(i)], [{'policy_lag': 10}],
          {'learning_rate': i}, seed=seed)
  blocks = document.build(outcomes.read_all(tmp_path), ['lag'])
  (table,) = _tables(blocks)
  assert table.rows == [['10', tables.MISSING]]
  text = str(blocks)
  assert 'nothing to show: all runs, lag 10. Give the sweep more' in text
  # The others, each sample by itself, are there.
  assert len(blocks_lib.of_kind(blocks, blocks_lib.Picture)) == 5


def test_a_difference_of_three_seeds_cannot_be_told(tmp_path):
  for seed in range(3):
    for correction in _CORRECTIONS:
      trial_runs.write(
          tmp_path, f'{correction}_{seed}',
          [seed + 2. * (correction == 'vtrace')],
          [{'off_policy_correction': correction}], seed=seed)
  _, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))
  (row,) = differences.rows
  assert row[2:] == ['3', '-2', tables.MISSING, 'cannot be told']


def test_a_difference_that_few_of_many_pairs_make_cannot_be_told(tmp_path):
  """Four of 24 that learned, while nobody else learned anything."""
  for i in range(24):
    for correction in _CORRECTIONS:
      learned = correction == 'vtrace' and i < 4
      trial_runs.write(
          tmp_path, f'{correction}_{i}', [-500. + 60. * (i + 1) * learned],
          [{'off_policy_correction': correction}], {'epsilon': i})
  _, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['stability']))
  ((*_, mean, interval, told),) = differences.rows
  assert mean == '-25'
  assert all(float(end) < 0. for end in interval.split(' to '))
  assert told == 'cannot be told'


def test_what_goes_together_with_a_lag_is_told_apart(tmp_path):
  """No run is left out, whichever way the sweep names its variants."""
  for lag in (0, 10):
    for correction in _CORRECTIONS:
      trial_runs.write(
          tmp_path, f'{correction}_{lag}', [lag + 5. * (correction == 'none')],
          [{'policy_lag': lag, 'off_policy_correction': correction}])
  table, differences = _tables(
      document.build(outcomes.read_all(tmp_path), ['lag']))
  assert table.header == ['lag', 'off_policy_correction=none',
                          'off_policy_correction=vtrace']
  assert [[cell.split()[0] for cell in row] for row in table.rows] == [
      ['0', '5', '0'], ['10', '15', '10']]
  assert [row[3] for row in differences.rows] == ['5', '5']


def test_what_goes_together_or_not_is_the_same_variant(tmp_path):
  """Seeds of a second sweep, which names the same settings otherwise."""
  for seed in range(6):
    trial_runs.write(
        tmp_path, f'{seed}', [float(seed)],
        [{'policy_lag': 3, 'off_policy_correction': 'none'}] if seed % 2 else
        [{'policy_lag': 3}, {'off_policy_correction': 'none'}], seed=seed)
  (table,) = _tables(document.build(outcomes.read_all(tmp_path), ['lag']))
  ((_, cell),) = table.rows
  assert cell.startswith('2.5 (') and cell.endswith('6 seeds)')


def test_a_variant_is_one_line_however_it_is_named_at_other_lags(tmp_path):
  for lag, names in enumerate((
      [{'policy_lag': 0, 'batch_size': 2, 'num_actors': 4}],
      [{'policy_lag': 1}, {'num_actors': 4}, {'batch_size': 2}],
      [{'batch_size': 2}, {'policy_lag': 2}, {'num_actors': 4}])):
    trial_runs.write(tmp_path, f'{lag}', [float(lag)], names)
  (table,) = _tables(document.build(outcomes.read_all(tmp_path), ['lag']))
  assert table.header == ['lag', 'batch_size=2, num_actors=4']
  assert [[cell.split()[0] for cell in row] for row in table.rows] == [
      ['0', '0'], ['1', '1'], ['2', '2']]


@pytest.mark.parametrize('lag, entries, is_named', [
    (3, [(2, .5), (5, 2.5), (9, 3.), (12, 3.)], False),
    (3, [(2, .5), (5, 2.5), (9, 3.), (12, 1.)], True),
    # Of the first updates there is nothing else to expect.
    (3, [(2, .5), (4, .5), (9, 3.)], False),
    # Without an update there is no lag.
    (3, [(2, .5), (5, 2.5), (9, 3.), (9, 0.)], False),
    (0, [(2, 0.), (9, 0.)], False),
    (3, [(9, 3.), (12, None), (14, 'x')], False),
    (3, [], False)])
def test_runs_that_began_without_lag_again_are_named(
    tmp_path, lag, entries, is_named):
  for name in 'a', 'b':
    trial_runs.write(
        tmp_path, name, [1.], [{'policy_lag': lag}], seed=ord(name),
        policy_lag=lag)
  # The other has no such file.
  (tmp_path / 'a' / 'metrics.jsonl').write_text(''.join(
      json.dumps(dict(frames=1, learner_steps=updates, policy_lag_mean=mean))
      + '\n' for updates, mean in entries))
  text = str(document.build(outcomes.read_all(tmp_path), ['lag']))
  assert (f'1 of 2 runs were resumed, and began without lag again. They count '
          f'all the same: {tmp_path}/a.' in text) == is_named
  assert ('were resumed' in text) == is_named


def test_lag_needs_runs_that_have_one(sweep, tmp_path):
  trial_runs.write(tmp_path, 'a', [1.], [{'policy_lag': 1}])
  trial_runs.write(tmp_path, 'damaged', [1.], [{'policy_lag': None}])
  for directory in sweep, tmp_path:
    with pytest.raises(ValueError, match='varies policy_lag'):
      document.build(outcomes.read_all(directory), ['lag'])


def _main(**values):
  with flagsaver.flagsaver():
    report.main(flags.FLAGS(['report'] + [
        f'--{name}={value}' for name, value in values.items()]))


def test_the_binary_writes_text_pictures_and_rows(
    sweep, tmp_path, capsys, drawn):
  _main(logdirs=f'{sweep}/*', study='best3,stability', report_dir=tmp_path)
  assert capsys.readouterr().out == f'{tmp_path}/study.md\n'
  text = (tmp_path / 'study.md').read_text()
  assert text.startswith('# The variants of a sweep\n')
  for name in ('best_3', 'stability'):
    path = f'study/gym_CartPole-v1_{name}.png'
    assert f']({path})' in text
    assert np.array(Image.open(tmp_path / path)).std() > 10
  rows = list(csv.DictReader(io.StringIO(
      (tmp_path / 'study.csv').read_text())))
  assert len(rows) == 4 * (24 + 4 * 3)
  row = {row['run']: row for row in rows}[f'{sweep}/none_0.5_3_1']
  assert (row['off_policy_correction'], row['replay_proportion'],
          row['learning_rate'], row['seed'], float(row['final_return'])) == (
              'none', '0.5', '0.03', '1', _first_return('none', .5, 3))


def test_what_is_unfinished_or_silent_is_named(tmp_path):
  trial_runs.write(tmp_path, 'good', [1.])
  trial_runs.write(tmp_path, 'silent', [])
  text = str(document.build(outcomes.read_all(tmp_path), ['best3']))
  assert f'1 of 2 runs have not all of their frames: {tmp_path}/silent' in text
  assert f'and are left out: {tmp_path}/silent' in text


def test_a_run_that_died_before_its_first_batch_is_named(tmp_path):
  """All that a process leaves then is what the sweep has written before."""
  for seed in 1, 2:
    trial_runs.write(tmp_path / 'sweep', f'{seed}', [1.], seed=seed)
  (tmp_path / 'sweep' / '1' / 'config.json').unlink()
  (tmp_path / 'sweep' / '1' / 'episodes.csv').unlink()
  _main(logdirs=f'{tmp_path}/sweep/*', report_dir=tmp_path,
        study='best3,stability,best_of_sweep')
  assert ('1 of 2 runs have no episode to count, and are left out: '
          f'{tmp_path}/sweep/1.') in (tmp_path / 'study.md').read_text()
  read = outcomes.read_all(tmp_path / 'sweep')
  assert [outcome.final for outcome in read] == [None, 1.]


def test_mixed_agents_are_named(tmp_path):
  for seed in 1, 2:
    trial_runs.write(tmp_path, f'{seed}', [1.], seed=seed, unroll_length=seed)
  text = 'runs of one variant differ in unroll_length'
  found = outcomes.read_all(tmp_path)
  assert text in str(document.build(found, ['stability']))
  # Which keeps them apart.
  assert text not in str(document.build(found, ['best_of_sweep']))


def test_steps_that_an_update_sums_over_stand_beside_the_figures(tmp_path):
  def text(names):
    return str(document.build(outcomes.read_all(tmp_path), names))

  def write(name, **settings):
    trial_runs.write(tmp_path, name, [1.], [{'architecture': name}],
                     architecture=name, unroll_length=20, **settings)

  write('impala', batch_size=8)
  write('a2c_sync_step', batch_size=8)
  for study in ['stability'], ['best3', 'best_of_sweep']:
    assert text(study).count(
        'gym:CartPole-v1: an update sums its losses over 160 steps '
        '(batch_size=8, unroll_length=20).') == 1
  assert 'differ in size' not in text(['stability'])
  write('a3c', batch_size=1)
  assert (
      '160 steps (batch_size=8, unroll_length=20) with '
      '"architecture=a2c_sync_step", "architecture=impala"; 20 steps '
      '(batch_size=1, unroll_length=20) with "architecture=a3c". So updates of '
      'these differ in size at the same learning rate') in text(['stability'])


def test_as_many_steps_in_other_batches_make_updates_of_one_size(tmp_path):
  for length in (20, 40):
    trial_runs.write(tmp_path, f'{length}', [1.], [{'unroll_length': length}],
                     unroll_length=length, batch_size=160 // length)
  text = str(document.build(outcomes.read_all(tmp_path), ['stability']))
  assert '160 steps (batch_size=4, unroll_length=40) with' in text
  assert 'differ in size' not in text


@pytest.mark.parametrize('study, expected', [
    ('best4', 'Error: --study=best4 is no study. Expected best3, stability'),
    ('lag', 'Error: --study=lag needs runs whose sweep varies policy_lag')])
def test_errors_are_one_line(sweep, tmp_path, study, expected):
  with pytest.raises(SystemExit) as error:
    _main(logdirs=f'{sweep}/*', study=study, report_dir=tmp_path / 'new')
  assert str(error.value).startswith(expected)
  assert '\n' not in str(error.value)
  assert not (tmp_path / 'new').exists()


def test_runs_with_seeds_of_their_own_are_compared_by_that_of_their_sweep(
    tmp_path):
  """No two samples have a seed in common, and none is left out for that."""
  for i, (rate, replay, seed) in enumerate(itertools.product(
      (.1, .2, .3, .4), _REPLAY, (1, 2, 3))):
    trial_runs.write(
        tmp_path, f'{i}', [10 * rate + replay], [{'replay_proportion': replay}],
        {'learning_rate': rate}, seed=seed + round(10_000 * rate),
        sweep_seed=seed)
  blocks = document.build(outcomes.read_all(tmp_path), ['stability', 'best3'])
  assert 'left out' not in str(blocks)
  samples = [table for table in _tables(blocks) if table.header[0] == 'variant']
  assert [[row[1] for row in table.rows] for table in samples] == [
      ['4', '4']] * 2
