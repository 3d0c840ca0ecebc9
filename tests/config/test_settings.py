"""How settings are declared, and what follows from their scopes."""

import dataclasses
import math

import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import settings
from scalable_agent.config.settings import setting

# -- Declarations -------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Example:
  amount: int = setting(
      3, 'An amount.', settings.LEARNERS | settings.AGENT, settings.POSITIVE)
  kind: str = setting('a', 'A kind.', settings.NOWHERE, choices=('a', 'b'),
                      only_with=dict(amount=3))
  places: list = setting(['x'], 'Places.', settings.ACTORS, needs='amount')
  shape: str = settings.derived('A shape.', settings.IDENTITY)


def test_a_declaration_says_everything():
  described = settings.describe(_Example)
  assert list(described) == ['amount', 'kind', 'places', 'shape']
  assert described['amount'] == settings.Setting(
      name='amount', type=int, default=3, help='An amount.',
      scopes=settings.LEARNERS | settings.AGENT, check=settings.POSITIVE,
      choices=(), needs=None, only_with={}, agent=None, is_path=False,
      is_derived=False)
  assert described['kind'].choices == ('a', 'b')
  assert described['kind'].only_with == dict(amount=3)
  assert (described['places'].default, described['places'].needs) == (
      ['x'], 'amount')
  assert described['shape'].is_derived and not described['kind'].is_derived


def test_fields_have_the_declared_defaults():
  example = _Example(shape='round')
  assert (example.amount, example.kind, example.places) == (3, 'a', ['x'])
  assert example.places is not _Example(shape='round').places
  with pytest.raises(TypeError, match='shape'):
    _Example()  # Nothing can be the default of what is derived.


def test_a_field_without_scopes_is_refused():
  with pytest.raises(TypeError, match='scopes'):
    setting(1, 'Says nothing about its scopes.')
  with pytest.raises(TypeError, match='scopes are None'):
    setting(1, 'Neither does this.', None)

  @dataclasses.dataclass(frozen=True)
  class Plain(_Example):
    plain: int = 1

  with pytest.raises(TypeError, match='Plain.plain is declared without scopes'):
    settings.describe(Plain)


@pytest.mark.parametrize('needed', [
    dict(needs='second'), dict(only_with=dict(second=1))])
def test_a_setting_can_only_need_another_one(needed):

  @dataclasses.dataclass(kw_only=True)
  class Alone:
    first: int = setting(1, 'First.', settings.NOWHERE, **needed)

  with pytest.raises(TypeError, match="needs 'second'"):
    settings.describe(Alone)


@pytest.mark.parametrize('check, good, bad', [
    (settings.NOT_NEGATIVE, (0, .5, math.inf), (-1, -.1, math.nan)),
    (settings.ONE_OR_MORE, (1, 7), (0, -1, math.nan)),
    (settings.POSITIVE, (.1, math.inf), (0, -1, math.nan)),
    (settings.FRACTION, (0, .5, 1), (-.1, 1.1, math.nan)),
    (settings.FINITE_NOT_NEGATIVE, (0, 3.), (-1, math.inf, math.nan)),
    (settings.FINITE_POSITIVE, (.1, 3.), (0, -1, math.inf, math.nan)),
])
def test_ranges(check, good, bad):
  assert all(check.holds(value) for value in good)
  assert not any(check.holds(value) for value in bad)


# -- Those that there are -----------------------------------------------------


def test_every_field_is_a_setting_with_scopes_help_and_a_default():
  fields = [field.name for field in dataclasses.fields(config_lib.Config)]
  assert list(config_lib.SETTINGS) == fields
  for name, declared in config_lib.SETTINGS.items():
    assert isinstance(declared.scopes, settings.Scope), name
    assert '.' in declared.help, name
    if not declared.is_derived:
      settings.check_value(declared, declared.default)


# As these were kept by hand, but for replay, which was in none of them.
_WEIGHTS = {'level_name', 'suite', 'network', 'use_lstm', 'width', 'height',
            'num_action_repeats', 'full_action_set', 'channel_multiplier',
            'subtract_background',
            'frame_stack', 'agent', 'num_atoms', 'v_min', 'v_max',
            'policy_uniform'}
_AGENT = _WEIGHTS - {'level_name', 'suite'} | {
    'network', 'use_lstm', 'batch_size', 'unroll_length',
    'num_action_repeats', 'width', 'height', 'full_action_set',
    'total_environment_frames', 'learning_rate', 'decay', 'momentum', 'epsilon',
    'gradient_norm_clip', 'entropy_cost', 'baseline_cost', 'discounting',
    'reward_clipping', 'clip_rho_threshold', 'clip_pg_rho_threshold',
    'vtrace_lambda', 'precision', 'replay_proportion', 'replay_capacity',
    'replay_state', 'train_on_new', 'entropy_on_replay',
    'trust_region_threshold', 'channel_multiplier', 'off_policy_correction',
    'q_estimate', 'policy_lag',
    'max_policy_lag', 'learning_rate_schedule', 'target_update_period',
    'retrace_lambda', 'policy_gradient', 'beta_loo_clip', 'steps_per_update',
    'replay_steps', 'replay_min_steps', 'replay_uniform'}
_LOSS = {'entropy_cost', 'baseline_cost', 'discounting', 'reward_clipping',
         'clip_rho_threshold', 'clip_pg_rho_threshold', 'vtrace_lambda',
         'off_policy_correction', 'q_estimate', 'trust_region_threshold'}


@pytest.mark.parametrize('scope, expected', [
    (config_lib.IDENTITY, _WEIGHTS),
    (config_lib.ACTORS, _WEIGHTS - {'suite'} | {
        'precision', 'unroll_length', 'inference', 'architecture'}),
    (config_lib.LEARNERS, _AGENT | _WEIGHTS | {'learner_hosts'}),
    (config_lib.AGENT, _AGENT | {
        'architecture', 'warm_start', 'shares_replay', 'num_actors'}),
    (config_lib.WORKERS, _LOSS),
    (config_lib.REPLAY, {
        'level_name', 'num_action_repeats', 'width', 'height',
        'full_action_set', 'frame_stack', 'unroll_length', 'replay_state'}),
])
def test_scopes(scope, expected):
  names = config_lib.names(scope)
  assert set(names) == expected
  assert list(names) == [name for name in config_lib.SETTINGS if name in names]


def test_what_decides_which_weights_fit_learners_have_alike():
  assert set(config_lib.names(config_lib.IDENTITY)) <= set(
      config_lib.names(config_lib.LEARNERS))


def test_the_level_is_named_before_the_suite_that_follows_from_it():
  """So that a refusal names the one that there is a flag for."""
  names = config_lib.names(config_lib.LEARNERS)
  assert names.index('level_name') < names.index('suite')


# -- Values that make a difference --------------------------------------------


def _effective(**values):
  return config_lib.effective_values(values, config_lib.LEARNERS)


def test_what_is_missing_has_its_default():
  values = _effective(batch_size=7)
  assert set(values) == set(config_lib.names(config_lib.LEARNERS))
  assert values['batch_size'] == 7
  assert values['learning_rate'] == .00048
  assert values['replay_proportion'] == 0


def test_what_needs_another_setting_makes_no_difference_without_it():
  for other in ({}, dict(replay_proportion=0), dict(replay_proportion=0.)):
    assert _effective(replay_capacity=5, **other) == _effective(**other)
    assert _effective(**other)['replay_capacity'] is None
  assert _effective(
      replay_capacity=5, replay_proportion=.5)['replay_capacity'] == 5
  assert _effective(replay_proportion=.5)['replay_capacity'] == 10_000


def test_a_configuration_is_such_values():
  config = config_lib.resolve(
      dict(level_name='pong', replay_proportion=.5, replay_capacity=99))
  values = config_lib.effective_values(vars(config), config_lib.AGENT)
  assert values == {
      name: None if config_lib.SETTINGS[name].agent == 'reactor' or
      name == 'num_actors' else getattr(config, name)
      for name in config_lib.names(config_lib.AGENT)}


def test_environments_are_a_part_of_the_agent_as_workers_of_a3c_alone():
  def number(**values):
    return config_lib.effective_values(
        dict(values, num_actors=16), config_lib.AGENT)['num_actors']

  assert number(architecture='a3c') == number(
      architecture='a3c', task=-1) == 16
  # Whose number the learner does not know.
  assert number(architecture='a3c', task=0) is None
  for other in 'impala', 'a2c_sync_step', 'a2c_sync_trajectory':
    assert number(architecture=other) is None


def test_what_is_another_agents_makes_no_difference():
  mine = _effective(agent='reactor')
  assert mine == _effective(agent='reactor', vtrace_lambda=.5)
  assert mine['vtrace_lambda'] is None and mine['retrace_lambda'] == 1
  assert _effective() == _effective(retrace_lambda=.5)
  assert _effective()['retrace_lambda'] is None
