"""Configuration: suites, the paper's values, checks, and log directories."""

import dataclasses
import json
import os

from absl import flags
from absl.testing import flagsaver
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import experiment

FLAGS = flags.FLAGS
FIELDS = {field.name for field in dataclasses.fields(config_lib.Config)}


def resolve(*arguments, **values):
  """Resolves what a command line says, given as text or by keyword."""
  arguments += tuple(f'--{name}={value}' for name, value in values.items())
  with flagsaver.flagsaver():
    FLAGS(['experiment', *arguments])
    return experiment.config_from_flags()


def message_of(*arguments, **values):
  """The message of the error that a command line gets; it is one line."""
  with pytest.raises(config_lib.ConfigError) as caught:
    resolve(*arguments, **values)
  assert '\n' not in str(caught.value)
  return str(caught.value)


# -- Suites -------------------------------------------------------------------


@pytest.mark.parametrize('level_name, suite', [
    ('pong', 'atari'),
    ('space_invaders', 'atari'),
    ('gym:CartPole-v1', 'gym'),
    ('gym:pong', 'gym'),
    ('synthetic:', 'synthetic'),
    ('synthetic:step_ms=5,std=0.5', 'synthetic'),
    ('explore_goal_locations_small', 'dmlab'),
    ('dmlab30', 'dmlab'),
    ('psychlab_visual_search', 'dmlab'),
    ('contributed/dmlab30/rooms_watermaze', 'dmlab'),
])
def test_suite_of(level_name, suite):
  assert config_lib.suite_of(level_name) == suite


def test_all_57_games_are_atari():
  assert len(atari57.GAMES) == 57
  assert {config_lib.suite_of(game) for game in atari57.GAMES} == {'atari'}


@pytest.mark.parametrize('typo, meant', [
    ('pogn', 'pong'), ('Pong', 'pong'), ('SpaceInvaders', 'space_invaders'),
    ('space-invaders', 'space_invaders'), ('montezumas_revenge',
                                           'montezuma_revenge'),
    ('CartPole-v1', 'gym:'), ('', 'gym:')])
def test_unknown_level_names_what_may_be_meant(typo, meant):
  message = message_of(level_name=typo)
  assert f'--level_name={typo} ' in message
  assert meant in message


@settings(deadline=None)
@given(st.text(max_size=20))
def test_suite_of_answers_any_name(level_name):
  """Every string has a suite or a ConfigError, never another exception."""
  try:
    assert config_lib.suite_of(level_name) in config_lib.SUITE_DEFAULTS
  except config_lib.ConfigError as e:
    assert level_name in str(e)


# -- Values -------------------------------------------------------------------

# Table G.1, but for num_actors, which the paper does not fix per machine.
_TABLE_G1 = dict(
    width=84, height=84, num_action_repeats=4, unroll_length=20, batch_size=32,
    discounting=.99, baseline_cost=.5, entropy_cost=.01, learning_rate=.0006,
    momentum=0., epsilon=.01, gradient_norm_clip=40.,
    reward_clipping='abs_one', total_environment_frames=200_000_000,
    network='shallow', use_lstm=False, full_action_set=False,
    clip_rho_threshold=1., clip_pg_rho_threshold=1., vtrace_lambda=1.)


def _values_of(config, names):
  return {name: getattr(config, name) for name in names}


def test_atari_is_table_g1():
  config = resolve(level_name='pong')
  assert _values_of(config, _TABLE_G1) == _TABLE_G1
  assert config.decay == .99
  assert config.frames_per_step == 32 * 20 * 4


def test_gym_is_table_g1_without_atari_preprocessing():
  expected = dict(
      _TABLE_G1, num_action_repeats=1, reward_clipping='none', network='auto',
      total_environment_frames=10_000_000)
  del expected['width'], expected['height']
  config = resolve(level_name='gym:CartPole-v1')
  assert _values_of(config, expected) == expected
  assert config.frames_per_step == 32 * 20


def test_dmlab_is_table_d3_and_the_released_code():
  expected = dict(
      width=96, height=72, num_action_repeats=4, unroll_length=100,
      batch_size=2, num_actors=4, entropy_cost=.00025, learning_rate=.00048,
      epsilon=.1, gradient_norm_clip=0., reward_clipping='abs_one',
      total_environment_frames=10**9, network='deep', use_lstm=True,
      discounting=.99, baseline_cost=.5, decay=.99, momentum=0.)
  config = resolve(level_name='explore_goal_locations_small')
  assert _values_of(config, expected) == expected


def test_every_default_of_a_suite_is_a_field_and_tested():
  for suite, defaults in config_lib.SUITE_DEFAULTS.items():
    assert set(defaults) <= FIELDS
    assert set(defaults) <= set(_TABLE_G1) | {'num_actors'}, suite


def test_the_help_names_every_default_of_a_suite():
  for suite, name in (('atari', 'Atari'), ('gym', 'gym')):
    for flag, value in config_lib.SUITE_DEFAULTS[suite].items():
      if value != FLAGS[flag].default:
        assert name in FLAGS[flag].help, flag


@pytest.mark.parametrize('suite, level_name', [
    ('atari', 'pong'), ('gym', 'gym:CartPole-v1')])
def test_given_flags_win(suite, level_name):
  """Also where the value is the flag's own default, which says "not given"."""
  for name in config_lib.SUITE_DEFAULTS[suite]:
    default = FLAGS[name].default
    assert getattr(resolve(level_name=level_name, **{name: default}),
                   name) == default


@pytest.mark.parametrize('cores, batch_size, num_pools, expected', [
    (1, 32, 0, 32), (2, 32, 0, 32), (4, 32, 0, 64), (64, 32, 0, 128),
    (2, 4, 0, 16), (2, 32, 3, 33), (2, 1, 1, 4)])
def test_actors_follow_cores_and_batch(
    monkeypatch, cores, batch_size, num_pools, expected):
  monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: range(cores))
  for level_name in ('pong', 'gym:CartPole-v1', 'synthetic:'):
    assert resolve(level_name=level_name, batch_size=batch_size,
                   num_pools=num_pools).num_actors == expected
  assert resolve(level_name='pong', num_actors=7).num_actors == 7
  # As released, whatever the machine.
  assert resolve(level_name='explore_goal_locations_small').num_actors == 4


@pytest.mark.parametrize('architecture', ['a2c_sync_step',
                                          'a2c_sync_trajectory'])
def test_batched_a2c_has_an_actor_for_every_unroll(architecture):
  config = resolve(level_name='pong', architecture=architecture, batch_size=12)
  assert config.num_actors == 12
  message = message_of(level_name='pong', architecture=architecture,
                       batch_size=12, num_actors=24)
  assert '--batch_size=12 cannot work' in message
  assert f'--architecture={architecture}' in message
  assert '--num_actors=24' in message


def test_batched_a2c_refuses_pools_that_cannot_meet():
  step = dict(level_name='pong', architecture='a2c_sync_step', batch_size=12)
  assert '--num_pools=2 ' in message_of(num_pools=2, **step)
  assert '--pool_batch_size=6 ' in message_of(pool_batch_size=6, **step)
  resolve(num_pools=1, pool_batch_size=12, **step)
  trajectory = dict(step, architecture='a2c_sync_trajectory', num_pools=2)
  assert '--pool_batch_size=3 ' in message_of(pool_batch_size=3, **trajectory)
  resolve(pool_batch_size=6, **trajectory)
  resolve(**dict(trajectory, level_name='gym:CartPole-v1', pool_batch_size=3))


def test_queue_capacity_follows_the_batch():
  assert resolve(level_name='pong').queue_capacity == 32
  assert resolve(level_name='pong', batch_size=5).queue_capacity == 5
  assert resolve(level_name='pong', batch_size=5,
                 queue_capacity=9).queue_capacity == 9


def test_to_json_is_everything():
  config = resolve(level_name='pong')
  assert json.loads(config.to_json()) == dataclasses.asdict(config)


# -- Checks -------------------------------------------------------------------


@pytest.mark.parametrize('name, values, good', [
    *[(name, (0, -1), 1) for name in (
        'batch_size', 'unroll_length', 'num_action_repeats',
        'total_environment_frames', 'test_num_episodes', 'width', 'height',
        'keep_checkpoints', 'inference_minimum_batch_size')],
    *[(name, (-1,), 0) for name in (
        'num_learner_devices', 'intra_op_threads', 'num_pools',
        'pool_batch_size',
        'environment_threads', 'inference_timeout_ms')],
    *[(name, (-1., 'nan'), 0) for name in (
        'clip_rho_threshold', 'clip_pg_rho_threshold')],
    *[(name, (-1., 'nan', 'inf'), 0) for name in (
        'gradient_norm_clip', 'learning_rate', 'entropy_cost', 'baseline_cost',
        'momentum')],
    *[(name, (-.1, 1.1, 'nan'), .5) for name in (
        'discounting', 'decay', 'vtrace_lambda')],
    *[(name, (0, -1., 'nan'), .1) for name in (
        'epsilon', 'log_interval_secs', 'save_checkpoint_secs',
        'batch_timeout_secs')],
    ('epsilon', ('inf',), .1),
    ('num_actors', (0, -2, 33), 34),
    ('queue_capacity', (31, 1, -1), 32),
    ('pool_batch_size', (3, 17), 4),
    ('inference_maximum_batch_size', (0, 15), 16),
])
def test_values_that_cannot_work(name, values, good):
  """The message names flag and value; a value that can work gets none."""
  others = dict(level_name='pong', num_pools=2)
  for value in values:
    shown = type(FLAGS[name].default)(value)
    assert f'--{name}={shown} cannot work: ' in message_of(
        **dict(others, **{name: value}))
  assert getattr(resolve(**dict(others, **{name: good})), name) == good


def test_a_batch_has_to_divide_among_the_learner_devices():
  message = message_of(level_name='pong', batch_size=9, num_learner_devices=2)
  assert '--batch_size=9 ' in message
  assert '--num_learner_devices=2' in message
  resolve(level_name='pong', batch_size=9, num_learner_devices=3)


_small = st.integers(-2, 40)


@settings(deadline=None)
@given(batch_size=_small, queue_capacity=_small, num_learner_devices=_small,
       num_actors=_small, num_pools=_small, pool_batch_size=_small,
       inference_minimum_batch_size=_small, inference_maximum_batch_size=_small)
def test_what_resolves_can_work(**numbers):
  """No accepted combination starves the learner or leaves a remainder."""
  try:
    config = resolve(level_name='pong', **numbers)
  except config_lib.ConfigError as e:
    assert any(f'--{name}=' in str(e) for name in numbers)
    return
  assert config.queue_capacity >= config.batch_size >= 1
  assert config.batch_size % max(config.num_learner_devices, 1) == 0
  pools = max(config.num_pools, 1)
  assert config.num_actors >= pools and config.num_actors % pools == 0
  handed_out = config.pool_batch_size or config.num_actors // pools
  assert config.num_actors // pools % handed_out == 0
  assert handed_out <= config.inference_maximum_batch_size
  assert (config.inference_minimum_batch_size <=
          config.inference_maximum_batch_size)


# -- Log directories ----------------------------------------------------------

_FACTS = dict(num_actions=6, observation_shapes=[(84, 84, 4)])


def _config(tmp_path, **values):
  return resolve(**dict(dict(
      level_name='pong', logdir=tmp_path / 'new' / 'run'), **values))


def _written(config):
  with open(os.path.join(config.logdir, 'config.json')) as f:
    return f.read()


def test_prepare_logdir_writes_values_and_facts(tmp_path):
  config = _config(tmp_path)
  assert config_lib.prepare_logdir(config, _FACTS) == []
  assert os.listdir(config.logdir) == ['config.json']
  assert json.loads(_written(config)) == dict(
      dataclasses.asdict(config), num_actions=6,
      observation_shapes=[[84, 84, 4]])
  # The same run again finds nothing different, tuples in JSON or not.
  assert config_lib.prepare_logdir(config, _FACTS) == []


@pytest.mark.parametrize('name, before, now', [
    ('level_name', 'pong', 'breakout'),
    ('level_name', 'pong', 'gym:CartPole-v1'),
    ('network', 'shallow', 'deep'),
    ('use_lstm', 'False', 'True'),
    ('width', 84, 80),
    ('height', 84, 80),
    ('num_action_repeats', 4, 1),
    ('full_action_set', 'False', 'True'),
])
def test_another_run_is_refused(tmp_path, name, before, now):
  """What decides on the weights' meaning has to stay; nothing is written."""
  first = _config(tmp_path, **{name: before})
  config_lib.prepare_logdir(first, _FACTS)
  written = _written(first)
  second = _config(tmp_path, **{name: now})
  for function in config_lib.prepare_logdir, config_lib.check_logdir:
    with pytest.raises(config_lib.ConfigError) as caught:
      function(second, _FACTS)
    message = str(caught.value)
    assert f'--logdir={first.logdir} ' in message and '\n' not in message
    assert 'suite=' in message or (
        f'{name}={before}' in message and f'{name}={now}' in message)
  assert _written(first) == written
  assert os.listdir(first.logdir) == ['config.json']


@pytest.mark.parametrize('facts', [
    dict(_FACTS, num_actions=4),
    dict(_FACTS, observation_shapes=[(84, 84, 1)])])
def test_environments_that_changed_are_refused(tmp_path, facts):
  config = _config(tmp_path)
  config_lib.prepare_logdir(config, _FACTS)
  with pytest.raises(config_lib.ConfigError, match='holds a run with'):
    config_lib.prepare_logdir(config, facts)


def test_identity_is_tested():
  assert set(config_lib.IDENTITY) == {
      'suite', 'level_name', 'network', 'use_lstm', 'width', 'height',
      'num_action_repeats', 'full_action_set'}


def test_harmless_changes_are_told_and_written(tmp_path):
  config_lib.prepare_logdir(_config(tmp_path), _FACTS)
  changed = _config(tmp_path, learning_rate=.1, num_actors=8)
  for function in config_lib.check_logdir, config_lib.prepare_logdir:
    assert sorted(function(changed, _FACTS)) == [
        'learning_rate was 0.0006, is now 0.1',
        'num_actors was 32, is now 8']
  assert json.loads(_written(changed))['learning_rate'] == .1
  assert config_lib.check_logdir(changed, _FACTS) == []


def test_mode_and_the_spelling_of_the_logdir_may_differ(tmp_path):
  config = _config(tmp_path)
  config_lib.prepare_logdir(config, _FACTS)
  again = _config(tmp_path, mode='test', logdir=config.logdir + '/../run')
  assert config_lib.check_logdir(again, _FACTS) == []


def test_fields_of_other_versions_are_ignored(tmp_path):
  config = _config(tmp_path)
  config_lib.prepare_logdir(config, _FACTS)
  found = json.loads(_written(config))
  del found['vtrace_lambda']
  found['of_the_future'] = 1
  with open(os.path.join(config.logdir, 'config.json'), 'w') as f:
    json.dump(found, f)
  assert config_lib.prepare_logdir(config, _FACTS) == []


def test_check_logdir_writes_nothing(tmp_path):
  config = _config(tmp_path)
  assert config_lib.check_logdir(config, _FACTS) == []
  assert not os.path.exists(config.logdir)


def test_a_broken_config_json_is_named_and_left(tmp_path):
  config = _config(tmp_path)
  os.makedirs(config.logdir)
  path = os.path.join(config.logdir, 'config.json')
  for content in '{"level_name": ', '[]', 'null':
    with open(path, 'w') as f:
      f.write(content)
    with pytest.raises(config_lib.ConfigError) as caught:
      config_lib.prepare_logdir(config, _FACTS)
    assert path in str(caught.value) and '\n' not in str(caught.value)
    assert _written(config) == content


@pytest.mark.parametrize('logdir', ['file/run', 'file'])
def test_a_directory_that_cannot_be_is_named(tmp_path, logdir):
  (tmp_path / 'file').write_text('here')
  config = _config(tmp_path, logdir=tmp_path / logdir)
  with pytest.raises(config_lib.ConfigError) as caught:
    config_lib.prepare_logdir(config, _FACTS)
  assert f'--logdir={config.logdir} cannot be written' in str(caught.value)
  assert (tmp_path / 'file').read_text() == 'here'


def test_a_config_json_is_whole_at_any_time(tmp_path, monkeypatch):
  """A crash before the renaming leaves the old file."""
  config = _config(tmp_path)
  config_lib.prepare_logdir(config, _FACTS)
  before = _written(config)

  def fail(*unused_args):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'replace', fail)
  with pytest.raises(config_lib.ConfigError, match='No space left on device'):
    config_lib.prepare_logdir(_config(tmp_path, learning_rate=.1), _FACTS)
  assert _written(config) == before
