"""What runs of a sweep have come to."""

import pytest

from scalable_agent import dmlab30
from scalable_agent.studies import outcomes
from tests.studies import trial_runs


def test_final_is_the_last_tenth_of_the_frames(tmp_path):
  """Not of the episodes: the 10 of 100 that end after frame 900."""
  path = trial_runs.write(tmp_path, 'a', [1.] * 90 + [2.] * 10)
  assert outcomes.read(path).final == 2.
  path = trial_runs.write(tmp_path, 'b', [1.] * 89 + [2.] * 11)
  assert outcomes.read(path).final == 2.
  path = trial_runs.write(tmp_path, 'c', [1.] * 91 + [2.] * 9)
  assert outcomes.read(path).final == pytest.approx(1.9)


def test_a_few_long_episodes_at_the_end_are_final(tmp_path):
  path = trial_runs.write(tmp_path, 'a', [1.] * 90)
  with open(tmp_path / 'a' / 'episodes.csv', 'a') as f:
    f.write('1900,gym:CartPole-v1,5,900\n2000,gym:CartPole-v1,7,100\n')
  config = tmp_path / 'a' / 'config.json'
  config.write_text(config.read_text().replace('1000', '2000'))
  assert outcomes.read(path).final == 6.


def test_of_an_unfinished_run_it_is_the_last_tenth_so_far(tmp_path):
  path = trial_runs.write(tmp_path, 'a', [1.] * 90 + [2.] * 10, total=1000)
  config = tmp_path / 'a' / 'config.json'
  config.write_text(config.read_text().replace('1000', '5000'))
  outcome = outcomes.read(path)
  assert (outcome.final, outcome.frames, outcome.total_frames) == (
      2., 1000, 5000)


def test_of_a_run_that_went_on_it_is_all_after_nine_tenths_of_its_frames(
    tmp_path):
  """As with a --total_environment_frames that was lowered since."""
  path = trial_runs.write(tmp_path, 'a', [1.] * 19 + [2.], total=1000)
  config = tmp_path / 'a' / 'config.json'
  config.write_text(config.read_text().replace('1000', '500'))
  # Eleven episodes end after frame 450.
  assert outcomes.read(path).final == pytest.approx(12 / 11)


def test_a_run_without_final_episodes_has_no_final_return(tmp_path):
  path = trial_runs.write(tmp_path, 'a', [])
  assert outcomes.read(path).final is None
  # One of the 30 levels lacks an episode.
  levels = [(name, 0.) for name in dmlab30.LEVEL_MAPPING]
  path = trial_runs.write(tmp_path, 'b', levels[1:] * 10, level='dmlab30')
  assert outcomes.read(path).final is None


def test_that_of_a_suite_is_its_capped_score(tmp_path):
  human = [(name, 2. * dmlab30.HUMAN_SCORES[dmlab30.LEVEL_MAPPING[name]])
           for name in dmlab30.LEVEL_MAPPING]
  path = trial_runs.write(tmp_path, 'a', human * 12, level='dmlab30')
  assert outcomes.read(path).final == pytest.approx(100.)


def test_hyperparameters_make_samples_and_the_rest_variants(tmp_path):
  path = trial_runs.write(
      tmp_path, 'a', [1.], seed=7,
      variant=[{'policy_lag': 10}, {'learning_rate': .1},
               {'architecture': 'a3c', 'num_actors': 4}],
      sample={'epsilon': .01})
  outcome = outcomes.read(path)
  assert outcome.variant == (
      (('policy_lag', 10),), (('architecture', 'a3c'), ('num_actors', 4)))
  assert outcome.sample == (('learning_rate', .1), ('epsilon', .01))
  assert outcome.drawn == {('epsilon', .01)}
  assert outcome.seed == 7
  assert outcomes.describe(outcome.variant) == (
      'policy_lag=10, architecture=a3c, num_actors=4')


def test_another_agent_is_another_variant(tmp_path):
  """Also where its sweep varies other settings, or none."""
  def variant_of(name, agent, variant):
    path = trial_runs.write(tmp_path, name, [1.], variant=variant, agent=agent)
    return outcomes.describe(outcomes.read_beside_others(path).variant)

  assert variant_of('a', 'reactor', []) == 'agent=reactor'
  assert variant_of('b', 'reactor', [{'retrace_lambda': .5}]) == (
      'agent=reactor, retrace_lambda=0.5')
  assert variant_of('c', 'impala', []) == 'all runs'
  for agent in 'impala', 'reactor':
    assert variant_of(agent, agent, [{'agent': agent}]) == f'agent={agent}'


def test_variants_are_kept_apart(tmp_path):
  """Also where they differ in what is about the machine alone."""
  for name, variant in (('a', [{'num_actors': 4}]), ('b', [{'num_actors': 16}]),
                        ('c', [])):
    for seed in (1, 2):
      trial_runs.write(tmp_path, f'{name}{seed}', [float(seed)], variant,
                       {'epsilon': .1}, seed=seed)
  found = outcomes.by_variant(outcomes.read_all(tmp_path))
  assert [(variant, [list(seeds) for seeds in samples.values()])
          for variant, samples in found.items()] == [
              (((('num_actors', 4),),), [[1, 2]]),
              (((('num_actors', 16),),), [[1, 2]]), ((), [[1, 2]])]


def test_two_of_one_seed_are_refused(tmp_path):
  """Either would stand in for both."""
  for name, seed in (('a', 1), ('b', 2), ('c', 1)):
    trial_runs.write(tmp_path, name, [1.], seed=seed)
  with pytest.raises(ValueError, match=f'{tmp_path}/a and {tmp_path}/c are of'):
    outcomes.by_variant(outcomes.read_all(tmp_path))


def test_settings_that_nobody_compares_are_found(tmp_path):
  variants = [{'policy_lag': 0}], [{'policy_lag': 9}]
  for i in range(4):
    trial_runs.write(
        tmp_path, f'{i}', [1.], variants[i % 2], {'epsilon': .1 * i}, seed=i,
        epsilon=.1 * i, policy_lag=9 * (i % 2), unroll_length=5)
  assert outcomes.mixed_settings(outcomes.read_all(tmp_path)) == []
  trial_runs.write(tmp_path, 'other', [1.], variants[1], {'epsilon': 1.},
                   seed=9, epsilon=1., policy_lag=9, unroll_length=6)
  assert outcomes.mixed_settings(outcomes.read_all(tmp_path)) == [
      'unroll_length']


def test_workers_of_a3c_that_nobody_compares_are_found(tmp_path):
  """But not the environments of others."""
  for architecture in 'impala', 'a3c':
    for seed, count in ((1, 4), (2, 16)):
      trial_runs.write(
          tmp_path, f'{architecture}_{seed}', [1.],
          [{'architecture': architecture}], seed=seed,
          architecture=architecture, num_actors=count)
    assert outcomes.mixed_settings(outcomes.read_all(tmp_path)) == (
        ['num_actors'] if architecture == 'a3c' else [])


@pytest.mark.parametrize('text', [
    '{', '{}', '[]', '{"variant": 3}', '\xff',
    '{"variant": [{"a": []}], "sample": {}}',
    '{"variant": [], "sample": {}, "sweep_seed": []}'])
def test_damage_is_told_in_one_line(tmp_path, text):
  path = trial_runs.write(tmp_path, 'a', [1.])
  (tmp_path / 'a' / 'sweep.json').write_text(text, encoding='latin-1')
  with pytest.raises(ValueError, match='sweep.json cannot be read') as error:
    outcomes.read(path)
  assert '\n' not in str(error.value)


def test_other_runs_are_refused(tmp_path):
  path = trial_runs.write(tmp_path, 'a', [1.], marked=False)
  with pytest.raises(ValueError, match='no run of a sweep'):
    outcomes.read(path)
  assert outcomes.read_all(tmp_path) == []
