"""Configuration: suites, the paper's values, and checks."""

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
    ('atari57', 'atari'),
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
    ('atari-57', 'atari57'),
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


def test_atari57_is_table_g1_for_the_multi_task_agent():
  expected = dict(
      _TABLE_G1, network='deep', full_action_set=True,
      total_environment_frames=57 * 200_000_000)
  config = resolve(level_name='atari57')
  assert _values_of(config, expected) == expected
  config = resolve(level_name='atari57', network='shallow',
                   total_environment_frames=10**6)
  assert config.network == 'shallow'
  assert config.total_environment_frames == 10**6


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
  for suite, name in (('atari', 'Atari'), ('atari57', 'atari57'),
                      ('gym', 'gym')):
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


@pytest.mark.parametrize('cores, num_pools, expected', [
    (1, 0, 57), (2, 0, 57), (4, 0, 57), (8, 0, 114), (64, 0, 114), (2, 2, 114)])
def test_atari57_has_as_many_actors_of_each_game(
    monkeypatch, cores, num_pools, expected):
  monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: range(cores))
  assert resolve(
      level_name='atari57', num_pools=num_pools).num_actors == expected
  # Not of all as many, but all are there.
  assert resolve(level_name='atari57', num_actors=60).num_actors == 60


def test_atari57_refuses_what_leaves_games_out():
  assert '57 games' in message_of(level_name='atari57', num_actors=56)
  assert '57 games' in message_of(
      level_name='atari57', num_actors=112, num_pools=2)
  assert '--full_action_set=False cannot work' in message_of(
      level_name='atari57', full_action_set=False)
  resolve(level_name='atari57', mode='test', num_actors=8)
  # An actor job has one game, a learner job none.
  for job in ('actor', 'learner'):
    resolve(level_name='atari57', task=0, job_name=job)


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


def test_batched_a2c_refuses_replay():
  assert '--replay_proportion=0.5 ' in message_of(
      level_name='pong', architecture='a2c_sync_step', replay_proportion=.5)


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
        'keep_checkpoints', 'inference_minimum_batch_size',
        'replay_capacity')],
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
    ('replay_proportion', (-.25, 1., 2., 'nan', .51, .999999999999), .5),
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


def test_replay_takes_a_share_of_every_batch():
  config = resolve(level_name='pong', replay_proportion=.75)
  assert (config.num_new_unrolls, config.num_replayed_unrolls) == (8, 24)
  assert config.frames_per_step == 8 * 20 * 4
  assert resolve(level_name='pong', replay_proportion=.75,
                 queue_capacity=8).queue_capacity == 8
  assert '--queue_capacity=7 ' in message_of(
      level_name='pong', replay_proportion=.75, queue_capacity=7)
  config = resolve(**dict(_TWO_LEARNERS, replay_proportion=.75))
  assert (config.num_new_unrolls, config.num_replayed_unrolls) == (4, 12)
  assert config.frames_per_step == 8 * 20 * 4


@pytest.mark.parametrize('proportion, shown', [(.5, '1.5'), (.1, '0.3')])
def test_replay_of_a_part_of_an_unroll(proportion, shown):
  message = message_of(
      level_name='pong', batch_size=3, replay_proportion=proportion)
  assert f'--replay_proportion={proportion} ' in message
  assert f'of 3 unrolls in a batch, that is {shown}' in message


def test_a_third_is_as_good_as_a_float_can_say():
  config = resolve(level_name='pong', batch_size=9, replay_proportion=1 / 3)
  assert config.num_replayed_unrolls == 3


_TWO_LEARNERS = dict(level_name='pong', learner_hosts='a:8000,b:8001', task=1,
                     insecure_network=True)


def test_learners_share_a_batch():
  config = resolve(**_TWO_LEARNERS)
  assert config.num_learners == 2
  assert config.collective_hosts == ['a:9000', 'b:9001']
  assert (config.batch_size, config.learner_batch_size) == (32, 16)
  assert config.queue_capacity == 16
  assert config.frames_per_step == 32 * 20 * 4
  assert resolve(**_TWO_LEARNERS, collective_hosts='c:1,d:2'
                ).collective_hosts == ['c:1', 'd:2']


def test_pools_are_of_the_jobs_that_have_them():
  """A learner job has none, and an actor job's have --envs_per_actor."""
  values = dict(level_name='pong', task=0, num_actors=3, envs_per_actor=8,
                num_pools=2, pool_batch_size=4)
  assert resolve(**values, job_name='learner').pool_batch_size == 4
  assert resolve(**values, job_name='actor').num_environments == 8
  assert '--num_actors=3' in message_of(**dict(values, task=-1))
  assert '--envs_per_actor=9' in message_of(
      **dict(values, envs_per_actor=9), job_name='actor')


def test_one_learner_has_the_whole_batch():
  """That of one job, that of several machines, and neither actors nor tests."""
  for values in (dict(task=-1), dict(job_name='actor', insecure_network=False),
                 dict(learner_hosts='a:8000', task=0), dict(mode='test')):
    config = resolve(**dict(_TWO_LEARNERS, **values))
    assert config.num_learners == 1
    assert config.learner_batch_size == config.queue_capacity == 32


@pytest.mark.parametrize('values, expected', [
    (dict(job_name='learner', task=0), True),
    (dict(job_name='learner', task=0, inference='learner'), False),
    (dict(job_name='actor', task=0), False),
    (dict(task=-1), False),
    (dict(task=-1, mode='test'), False),
])
def test_who_leaves_acting_to_others(values, expected):
  config = resolve(level_name='pong', **values)
  assert config.leaves_acting_to_others == expected


def test_the_first_learner_alone_writes():
  for values, writes in (
      (dict(task=0), True), (dict(task=1), False), (dict(task=-1), True),
      (dict(task=0, job_name='actor'), False), (dict(mode='test'), False)):
    assert resolve(
        **dict(_TWO_LEARNERS, **values)).writes_logdir == writes, values


@pytest.mark.parametrize('name, value, others', [
    ('batch_size', 33, {}),
    ('batch_size', 34, dict(num_learner_devices=2)),
    ('queue_capacity', 15, {}),
    ('task', 2, {}),
    ('collective_hosts', 'a:9000', {}),
    ('collective_hosts', 'a:9000,b', {}),
    ('collective_hosts', 'a:9000,b:65536', {}),
    ('collective_hosts', 'a:9000,a:9000', {}),
    ('collective_hosts', 'a:9000,b:8001', {}),
    ('insecure_network', False, {}),
])
def test_learners_that_cannot_work(name, value, others):
  message = message_of(**dict(_TWO_LEARNERS, **{name: value}, **others))
  assert f'--{name}=' in message
  assert 'cannot work' in message


def test_learner_hosts_without_a_port():
  assert "--learner_hosts: 'b' is no address" in message_of(
      **dict(_TWO_LEARNERS, learner_hosts='a:8000,b'))


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
