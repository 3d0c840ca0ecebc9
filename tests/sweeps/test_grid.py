"""The trials of a sweep."""

import collections

import pytest

from scalable_agent.config import ConfigError
from scalable_agent.sweeps import grid


def _parse_value(name, text):
  if name not in ('policy_lag', 'seed', 'level_name', 'correction', 'logdir'):
    raise ConfigError(f'no {name}')
  return text if name in ('level_name', 'correction') else int(text)


_SAMPLES = [dict(learning_rate=.1), dict(learning_rate=.2)]


def _factors():
  return [grid.parse_vary('policy_lag=0,10', _parse_value),
          grid.parse_variants(['correction=a', 'correction=b policy_lag2=1'],
                              lambda name, text: text)]


def test_every_variant_has_the_same_samples_and_seeds():
  trials = grid.combine(_factors(), _SAMPLES, [5, 6])
  assert len(trials) == 2 * 2 * 2 * 2
  by_variant = collections.defaultdict(list)
  for trial in trials:
    by_variant[str(trial.variant)].append((trial.sample, trial.seed))
  assert len(by_variant) == 4
  expected = [(sample, seed) for seed in (5, 6) for sample in _SAMPLES]
  assert all(found == expected for found in by_variant.values())


def test_trials_that_are_compared_stand_side_by_side():
  trials = grid.combine(_factors(), _SAMPLES, [5, 6])
  assert [(trial.sample, trial.seed) for trial in trials[:5]] == [
      (_SAMPLES[0], 5)] * 4 + [(_SAMPLES[1], 5)]


def test_a_trial_sets_what_it_is_named_by():
  trial = grid.combine(_factors(), _SAMPLES, [5, 6])[-1]
  assert trial.name == (
      'policy_lag=10_correction=b_policy_lag2=1_sample=01_seed=6')
  assert grid.settings_of(trial) == dict(
      policy_lag=10, correction='b', policy_lag2='1', learning_rate=.2, seed=6)


def test_names_say_no_more_than_varies_and_are_good_for_files():
  levels = grid.parse_vary('level_name=pong,gym:a/b-v1', _parse_value)
  assert [trial.name for trial in grid.combine([levels])] == [
      'pong', 'gym_a_b-v1']
  (trial,) = grid.combine([], [], [3])
  assert (trial.name, grid.settings_of(trial)) == ('seed=3', dict(seed=3))


@pytest.mark.parametrize('text, reason', [
    ('policy_lag', 'is empty'), ('policy_lag=', 'is empty'), ('', 'is empty'),
    ('policy_lag=1,1', 'twice'), ('lag=1', 'no lag')])
def test_values_that_cannot_work_are_refused(text, reason):
  with pytest.raises(ConfigError, match=reason):
    grid.parse_vary(text, _parse_value)


@pytest.mark.parametrize('texts, reason', [
    ([''], 'is empty'), (['policy_lag'], 'expected name=value'),
    (['policy_lag=1 policy_lag=2'], 'each name once'),
    (['policy_lag=1', 'policy_lag=1'], 'is equal')])
def test_variants_that_cannot_work_are_refused(texts, reason):
  with pytest.raises(ConfigError, match=reason):
    grid.parse_variants(texts, _parse_value)


@pytest.mark.parametrize('factors, drawn, given, reason', [
    ([[{'a': 1}], [{'a': 2}]], [], [], 'a is varied twice'),
    ([[{'a': 1}, {'b': 2}]], ['b'], [], 'b is varied twice'),
    ([[{'a': 1}]], [], ['a'], '--a is given for all runs'),
    ([], ['a'], ['a'], '--a is given for all runs'),
    ([[{'logdir': 1}]], [], [], 'logdir cannot be varied')])
def test_settings_that_are_set_twice_are_refused(factors, drawn, given, reason):
  grid.check_names([[{'a': 1}, {'a': 2, 'b': 1}]], ['c'], ['d'])
  with pytest.raises(ConfigError, match=reason):
    grid.check_names(factors, drawn, given)


def test_runs_that_would_share_a_directory_are_refused():
  levels = grid.parse_vary('level_name=a/b,a:b', _parse_value)
  with pytest.raises(ConfigError, match='directory a_b'):
    grid.combine([levels])
