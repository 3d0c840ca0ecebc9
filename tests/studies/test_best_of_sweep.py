"""Sweeps as units: their best and mean agents, by condition."""

import numpy as np
import pytest

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import tables
from scalable_agent.studies import best_of_sweep
from scalable_agent.studies import conditions
from scalable_agent.studies import document
from scalable_agent.studies import outcomes
from scalable_agent.studies import pictures
from scalable_agent.studies import tables as study_tables
from tests.studies import trial_runs

_RATES = .1, .2, .3
_SHARED = dict(replay_host='localhost:9000', replay_proportion=.875,
               batch_size=8, shares_replay=True)
_OWN = dict(_SHARED, replay_host='', shares_replay=False)


def _write_sweep(root, name, returns, seed, settings, variant=()):
  """One agent for each list of returns, with a learning rate of its own."""
  for rate, values in zip(_RATES, returns, strict=False):
    trial_runs.write(
        root, f'{name}/{rate}_{seed}', values, variant,
        {'learning_rate': rate}, seed=seed, total=2000, learning_rate=rate,
        **settings)


def _read(*directories):
  return [outcome for directory in directories
          for outcome in outcomes.read_all(directory)]


def _smoothed(values):
  """The mean of each value and the two before it."""
  return np.array([np.mean(values[max(i - 2, 0):i + 1]) for i in range(20)])


def test_a_sweep_counts_once_by_its_best_agent_at_each_point(tmp_path):
  """Two agents change places half-way; returns are of a point each."""
  rising, falling = np.arange(20.), np.arange(20.)[::-1]
  _write_sweep(tmp_path, 'shared', [rising, falling], 1, _SHARED)
  ((name, (sweep,)),) = best_of_sweep._by_condition(
      _read(tmp_path / 'shared')).sweeps.items()
  assert name == 'all runs'
  assert (sweep.seed, sweep.agents, sweep.frames[-1]) == (1, 2, 2000.)

  np.testing.assert_allclose(
      sweep.best, np.maximum(_smoothed(rising), _smoothed(falling)))
  np.testing.assert_allclose(
      sweep.mean, (_smoothed(rising) + _smoothed(falling)) / 2)


def test_on_the_way_is_the_mean_over_all_points(tmp_path):
  """Which is the area under the curve, and not its highest point."""
  _write_sweep(tmp_path, 'shared', [np.arange(20.)], 1, _SHARED)
  table = best_of_sweep._table(
      best_of_sweep._by_condition(_read(tmp_path / 'shared')).sweeps)
  (row,) = table.rows
  found = dict(zip(table.header, row))
  assert found['best agent at the end'] == '18'
  assert found['best agent on the way'] == study_tables.number(
      np.mean(_smoothed(np.arange(20.)))) != '18'


def test_the_curve_is_the_mean_over_sweeps(monkeypatch, tmp_path):
  drawn = {}
  monkeypatch.setattr(
      pictures, 'best_agents', lambda unused_level, by_name: drawn.update(
          by_name))
  for seed, value in ((1, 0.), (2, 10.)):
    _write_sweep(tmp_path, f'{seed}', [[value] * 20], seed, _SHARED)
  # One sweep is at half of its frames.
  (path,) = (tmp_path / '2').glob('*/episodes.csv')
  path.write_text('\n'.join(path.read_text().splitlines()[:11]) + '\n')
  best_of_sweep._draw('level', best_of_sweep._by_condition(
      _read(tmp_path / '1', tmp_path / '2')).sweeps)
  (points,) = drawn.values()
  assert [(frames, value, is_of_all)
          for frames, value, _, is_of_all in points] == [
              (100. * i, *((5., True) if i <= 10 else (0., False)))
              for i in range(1, 21)]


def test_an_agent_that_ends_no_episode_is_as_it_was(tmp_path):
  trial_runs.write(tmp_path, 'a', [1., 5.], total=2000)  # At half, and the end.
  (sweep,) = best_of_sweep._by_condition(_read(tmp_path)).sweeps['all runs']
  assert np.isnan(sweep.best[:9]).all()
  np.testing.assert_allclose(sweep.best[9:19], 1.)
  assert sweep.best[-1] == pytest.approx(7 / 3)


def test_points_that_a_sweep_has_not_reached_are_unknown(tmp_path):
  trial_runs.write(tmp_path, 'sweep/a', [9.] * 20, total=2000)
  trial_runs.write(tmp_path, 'sweep/b', [1.] * 20, total=2000, seed=2)
  path = tmp_path / 'sweep' / 'b' / 'episodes.csv'
  # As after 1500 of its frames; agents of one sweep that help each other.
  path.write_text('\n'.join(path.read_text().splitlines()[:16]) + '\n')
  for name in 'a', 'b':
    path = tmp_path / 'sweep' / name / 'sweep.json'
    path.write_text('{"variant": [{"population": 2}], "sample": {}}')
  ((sweep,),) = best_of_sweep._by_condition(
      _read(tmp_path / 'sweep')).sweeps.values()
  np.testing.assert_array_equal(np.isnan(sweep.best), [False] * 15 + [True] * 5)
  np.testing.assert_array_equal(np.isnan(sweep.mean), np.isnan(sweep.best))
  table = best_of_sweep._table({'name': [sweep]})
  found = dict(zip(table.header, table.rows[0]))
  assert found['frames of an agent'] == '1,500'
  assert found['frames of all'] == '3,000'
  assert found['best agent at the end'] == tables.MISSING
  assert found['best agent on the way'] == '9'


def test_sweeps_are_compared_where_both_are_known(tmp_path):
  """The one whose first episodes end late is no better for it."""
  for seed in range(1, 6):
    returns = np.arange(20.) + seed
    _write_sweep(tmp_path, f'own_{seed}', [returns], seed, _OWN)
    _write_sweep(tmp_path, f'shared_{seed}', [returns], seed, _SHARED)
    # Its curve at a point is smoothed over the two before.
    path = tmp_path / f'shared_{seed}' / f'0.1_{seed}' / 'episodes.csv'
    lines = path.read_text().splitlines()
    path.write_text('\n'.join(lines[:1] + lines[11:]) + '\n')
  sweeps = best_of_sweep._by_condition(
      _read(*sorted(tmp_path.iterdir()))).sweeps
  (row,) = best_of_sweep._differences(sweeps).rows
  assert row[:3] == ['shares_replay=False', 'shares_replay=True', '5']
  # The first two points of ten lack what they are smoothed with.
  assert float(row[3]) == pytest.approx(-(1. + .5) / 10)


def test_agents_with_seeds_of_their_own_are_a_sweep(tmp_path):
  """Whose seed says which sweep of agents that share it is compared with."""
  for seed in 1, 2:
    for i, rate in enumerate(_RATES):
      for name, settings in ('own', _OWN), (f'shared_{seed}', _SHARED):
        trial_runs.write(
            tmp_path, f'{name}/{rate}_{seed}', [rate + seed] * 20,
            sample={'learning_rate': rate}, seed=seed + 1000 * i, total=2000,
            sweep_seed=None if settings is _SHARED else seed, **settings)
  sweeps = best_of_sweep._by_condition(
      _read(*sorted(tmp_path.iterdir()))).sweeps
  for name in 'shares_replay=False', 'shares_replay=True':
    assert [(sweep.seed, sweep.agents, sweep.best[-1])
            for sweep in sweeps[name]] == [(1, 3, 1.3), (2, 3, 2.3)]
  (row,) = best_of_sweep._differences(sweeps).rows
  assert row[2:4] == ['2', '0']


def test_sweeps_are_pairs_by_their_seed_whichever_agents_they_have(tmp_path):
  """As after a second round of the best, where each run has its own seed."""
  for seed in 1, 2, 3, 4:
    for name, chosen in ('a', (0, 2)), ('b', (1, 2)):
      for i in chosen:
        trial_runs.write(
            tmp_path, f'{name}/{i}_{seed}', [float(i)] * 20,
            [dict(batch_size=8 if name == 'a' else 9)], {'learning_rate': i},
            seed=seed + 1000 * i, total=2000, sweep_seed=seed, **_OWN)
  sweeps = best_of_sweep._by_condition(
      _read(*sorted(tmp_path.iterdir()))).sweeps
  (row,) = best_of_sweep._differences(sweeps).rows
  assert row[2] == '4'


def test_conditions_are_what_differs_but_for_hyperparameters(tmp_path):
  """And from what most of them have."""
  for seed in 1, 2:
    _write_sweep(tmp_path, f'shared_{seed}', [[1.], [2.]], seed, _SHARED)
    _write_sweep(tmp_path, 'own', [[3.], [4.]], seed, _OWN)
    _write_sweep(tmp_path, f'trusted_{seed}', [[5.], [6.]], seed,
                 dict(_SHARED, trust_region_threshold=.03))
    # Without replay there is nothing to be said of it.
    _write_sweep(tmp_path, 'none', [[7.], [8.]], seed,
                 dict(batch_size=2, replay_proportion=0.))
  usual, sweeps = best_of_sweep._by_condition(_read(
      *(tmp_path / name for name in (
          'own', 'shared_1', 'shared_2', 'trusted_1', 'trusted_2', 'none'))))
  assert usual == ('batch_size=8, entropy_on_replay=True, '
                   'replay_capacity=10000, replay_proportion=0.875, '
                   'replay_state=stored, train_on_new=True, '
                   'trust_region_threshold=0.0')
  assert {name: [(sweep.seed, sweep.agents) for sweep in found]
          for name, found in sweeps.items()} == dict.fromkeys((
              'shares_replay=False', 'shares_replay=True',
              'shares_replay=True, trust_region_threshold=0.03',
              'batch_size=2, replay_proportion=0.0'), [(1, 2), (2, 2)])


def test_the_steps_of_an_update_are_said_of_each_condition(tmp_path):
  for name, batch_size in (('few', 2), ('many', 16)):
    _write_sweep(tmp_path, name, [[1.], [2.]], 1, dict(
        batch_size=batch_size, unroll_length=20))
  _, text, *_ = (block.text for block in document.build(
      _read(tmp_path / 'few', tmp_path / 'many'), ['best_of_sweep'])
                 if hasattr(block, 'text'))
  assert ('40 steps (batch_size=2, unroll_length=20) with "batch_size=2"; '
          '320 steps (batch_size=16, unroll_length=20) with "batch_size=16"'
          ) in text


def test_a_condition_is_one_however_its_settings_were_given(tmp_path):
  """By --vary, or by a flag of a sweep for each."""
  for state in 'stored', 'recomputed':
    for seed in range(1, 5):
      varied = [dict(replay_state=state)] if seed < 3 else []
      directory = 'varied' if varied else f'{state}_{seed}'
      trial_runs.write(tmp_path, f'{directory}/{state}_{seed}', [1.], varied,
                       seed=seed, replay_state=state, **_OWN)
  _, sweeps = best_of_sweep._by_condition(_read(*sorted(tmp_path.iterdir())))
  assert {name: sorted(sweep.seed for sweep in found)
          for name, found in sweeps.items()} == dict.fromkeys(
              ('replay_state=stored', 'replay_state=recomputed'), [1, 2, 3, 4])


def test_what_is_varied_and_makes_no_difference_tells_conditions_apart(
    tmp_path):
  """Without replay there is no state of it, and the user asked for two."""
  for state in 'stored', 'recomputed':
    trial_runs.write(tmp_path, state, [1.], [dict(replay_state=state)],
                     replay_proportion=0., replay_state=state)
  _, sweeps = conditions.by_condition(_read(tmp_path))
  assert set(sweeps) == {'replay_state=stored', 'replay_state=recomputed'}


def test_conditions_of_one_name_are_refused(tmp_path):
  """Or one would take the place of the other."""
  for directory, size in (('a', 8), ('b', '8')):
    trial_runs.write(tmp_path, f'{directory}/1', [1.], [dict(num_levels=size)])
  with pytest.raises(ValueError, match='num_levels=8.* cannot be told apart'):
    conditions.by_condition(_read(tmp_path / 'a', tmp_path / 'b'))


@pytest.mark.parametrize('settings, usual, names', [
    ([dict(a=1, b=1), dict(a=1, b=2), dict(a=2, b=1)],
     'a=1, b=1', ['usual settings', 'b=2', 'a=2']),
    # No value is that of most.
    ([dict(a=1), dict(a=2)], '', ['a=1', 'a=2']),
    # One has a setting that the other lacks, and nothing else differs.
    ([dict(a=1, b=2), dict(a=1)], '', ['b=2', 'all runs'])])
def test_names_say_what_is_unusual_and_differ(settings, usual, names):
  found, by_condition = conditions._usual_and_names(
      [((), tuple(found.items())) for found in settings])
  assert (found, list(by_condition.values())) == (usual, names)


def test_a_population_is_one_unit_whatever_its_seeds(tmp_path):
  variant = [dict(population=2)]
  for directory, first in (('a', 1), ('b', 11)):
    for i in range(2):
      trial_runs.write(
          tmp_path, f'{directory}/{i}', [float(first + i)], variant,
          {'learning_rate': .1 * (i + 1)}, seed=first + i)
  (sweeps,) = best_of_sweep._by_condition(
      _read(tmp_path / 'a', tmp_path / 'b')).sweeps.values()
  assert [(sweep.seed, sweep.agents, sweep.best[-1]) for sweep in sweeps] == [
      (1, 2, 2.), (11, 2, 12.)]


def test_members_are_of_one_population_whatever_they_have_copied(tmp_path):
  for i, warm_start in enumerate(('', '/tmp/1/ckpt-5')):
    trial_runs.write(
        tmp_path, f'a/{i}', [float(i)], [dict(population=2)],
        {'learning_rate': .1 * (i + 1)}, seed=i, warm_start=warm_start)
  ((sweep,),) = best_of_sweep._by_condition(
      _read(tmp_path / 'a')).sweeps.values()
  assert sweep.agents == 2


def test_two_sweeps_of_one_seed_are_refused(tmp_path):
  """In a comparison by seed they would be one point."""
  for name in 'a', 'b':
    _write_sweep(tmp_path, name, [[1.], [2.]], 3, _SHARED)
  with pytest.raises(ValueError, match=r'two sweeps of the same .*seed \(3\)'):
    conditions.by_condition(_read(tmp_path / 'a', tmp_path / 'b'))


def test_agents_without_a_configuration_are_refused(tmp_path):
  """Nobody knows of what seed they are."""
  for i in range(2):
    trial_runs.write(tmp_path, f'a/{i}', [1.], [dict(population=2)])
    (tmp_path / 'a' / f'{i}' / 'config.json').unlink()
  with pytest.raises(ValueError, match=f'^{tmp_path}/a/0 has no config.json .*'
                     'Leave it out.$'):
    document.build(_read(tmp_path / 'a'), ['best_of_sweep'])


def _write_agents(root, frames, updates, **settings):
  for i, pair in enumerate(zip(frames, updates, strict=True)):
    total, made = pair
    trial_runs.write(
        root, f'a/{i}', [1.], (), {'learning_rate': .1 * (i + 1)}, total=total,
        updates=made, **dict(_SHARED, **settings))


@pytest.mark.parametrize('frames, updates, is_uneven', [
    ((1000, 1000), (50, 50), False), ((1000, 960), (50, 48), False),
    ((1000, 940), (50, 50), True), ((1000, 1000), (50, 47), True),
    ((1000, 1000), (50, None), False)])
def test_agents_that_share_but_are_not_equally_far_are_named(
    tmp_path, frames, updates, is_uneven):
  _write_agents(tmp_path, frames, updates)
  text = (f'In {tmp_path}/a they differ by more than 5 % in their frames or '
          'updates so far.')
  blocks = document.build(_read(tmp_path / 'a'), ['best_of_sweep'])
  assert is_uneven == any(
      text in paragraph.text
      for paragraph in blocks_lib.of_kind(blocks, blocks_lib.Paragraph))


def test_agents_that_share_nothing_need_not_be_equally_far(tmp_path):
  _write_agents(tmp_path, (1000, 100), (50, 5), **_OWN)
  assert best_of_sweep._uneven(_read(tmp_path / 'a')) == []


@pytest.mark.parametrize('updates, expected', [
    ((50, 50), '50'), ((1250, 50), '50 to 1,250'),
    ((50, None), tables.MISSING)])
def test_updates_are_those_of_every_agent(tmp_path, updates, expected):
  _write_agents(tmp_path, (1000, 1000), updates)
  table = best_of_sweep._table(
      best_of_sweep._by_condition(_read(tmp_path / 'a')).sweeps)
  found = dict(zip(table.header, table.rows[0]))
  assert found['updates of an agent'] == expected


def _tables(blocks):
  return blocks_lib.of_kind(blocks, blocks_lib.Table)


def test_sweeps_are_compared_in_pairs_of_a_seed(tmp_path):
  for seed in range(1, 6):
    _write_sweep(tmp_path, f'shared_{seed}', [[2. + seed], [1.]], seed, _SHARED)
    _write_sweep(tmp_path, f'own_{seed}', [[seed], [0.]], seed, _OWN)
  found = _read(*sorted(tmp_path.iterdir()))
  blocks = document.build(found, ['best_of_sweep'])
  table, differences, of_means = _tables(blocks)
  rows = {row[0]: row[1:] for row in table.rows}
  assert rows['shares_replay=True'][:4] == ['5', '2', '2,000', '4,000']
  assert rows['shares_replay=True'][5] == '5'
  assert rows['shares_replay=False'][5] == '3'
  # The means of 5 and 1, and of 3 and 0.
  assert rows['shares_replay=True'][9::2] == ['3', '3']
  assert rows['shares_replay=False'][9::2] == ['1.5', '1.5']
  low, high = map(float, rows['shares_replay=True'][6].split(' to '))
  assert 2. < low < 5. < high < 8.
  assert differences.rows == [[
      'shares_replay=False', 'shares_replay=True', '5', '-2', '-2 to -2',
      'lower']]
  assert of_means.rows == [[
      'shares_replay=False', 'shares_replay=True', '5', '-1.5', '-1.5 to -1.5',
      'lower']]


def test_the_best_of_more_agents_is_not_compared_with_that_of_fewer(tmp_path):
  """It is higher by chance alone."""
  for seed in range(1, 7):
    _write_sweep(tmp_path, f'shared_{seed}', [[2.], [1.], [3.]][:seed], seed,
                 _SHARED)
    _write_sweep(tmp_path, f'own_{seed}', [[1.], [0.], [2.]], seed, _OWN)
  blocks = document.build(
      _read(*sorted(tmp_path.iterdir())), ['best_of_sweep'])
  _, differences, _ = _tables(blocks)
  ((_, _, pairs, *_),) = differences.rows
  assert pairs == '4'
  assert ('Pairs of "shares_replay=False" and "shares_replay=True" whose '
          'sweeps have not as many agents are left out, 2 in all: the best of '
          'more agents is higher by chance alone.') in str(blocks)


@pytest.mark.parametrize('study', ['best3', 'stability', 'lag'])
def test_agents_that_depend_on_each_other_are_no_samples(tmp_path, study):
  _write_sweep(tmp_path, 'shared', [[1.], [2.]], 1, _SHARED)
  trial_runs.write(tmp_path, 'population/0', [1.], [dict(population=2)])
  for directory in 'shared', 'population':
    with pytest.raises(ValueError, match=f'--study={study} takes .*{directory}.'
                       '*best_of_sweep'):
      document.build(_read(tmp_path / directory), [study])
