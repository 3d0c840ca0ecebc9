"""What the user leaves open: the papers' values, and choices by the machine."""

import dataclasses
import json
import subprocess
import sys

from absl import flags
import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.machine import cores as machine_cores
from tests.config.command_line import message_of
from tests.config.command_line import resolve

FLAGS = flags.FLAGS
FIELDS = {field.name for field in dataclasses.fields(config_lib.Config)}


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


# The released code's, which are those of Table D.3 for single tasks.
_RELEASED = dict(
    width=96, height=72, num_action_repeats=4, unroll_length=100,
    batch_size=2, num_actors=4, entropy_cost=.00025, learning_rate=.00048,
    epsilon=.1, gradient_norm_clip=0., total_environment_frames=10**9,
    network='deep', use_lstm=True, discounting=.99, baseline_cost=.5,
    decay=.99, momentum=0.)


@pytest.mark.parametrize('level_name', [
    'seekavoid_arena_01', 'demos/extra_entities', 'my_levels/rooms_watermaze'])
def test_dmlab_is_the_released_code(level_name):
  expected = dict(_RELEASED, reward_clipping='abs_one')
  assert _values_of(resolve(level_name=level_name), expected) == expected


@pytest.mark.parametrize('level_name', [
    'explore_goal_locations_small', 'contributed/dmlab30/rooms_watermaze',
    'rooms_collect_good_objects_train', 'rooms_collect_good_objects_test',
    'contributed/dmlab30/rooms_collect_good_objects_test'])
def test_a_level_of_dmlab30_clips_rewards_as_its_experts_do(level_name):
  """Table D.3 has another clipping for single tasks, which can be given."""
  expected = dict(_RELEASED, reward_clipping='soft_asymmetric')
  assert _values_of(resolve(level_name=level_name), expected) == expected
  assert resolve(level_name=level_name, reward_clipping='abs_one'
                ).reward_clipping == 'abs_one'


# A name that has all of a suite's defaults, and what the help calls it.
_WITH_DEFAULTS = {
    'pong': 'Atari', 'atari57': 'atari57', 'gym:CartPole-v1': 'gym',
    'synthetic:': None, 'dmlab30': 'dmlab30', 'rooms_watermaze': 'dmlab30'}


def _defaults(level_name):
  return suites.find(level_name).defaults(level_name)


@pytest.mark.parametrize('level_name', _WITH_DEFAULTS)
def test_every_default_of_a_suite_is_a_field_and_tested(level_name):
  assert set(_defaults(level_name)) <= FIELDS
  assert set(_defaults(level_name)) <= set(_TABLE_G1) | {'num_actors'}


@pytest.mark.parametrize('level_name, name', [
    pair for pair in _WITH_DEFAULTS.items() if pair[1]])
def test_the_help_names_every_default_of_a_suite(level_name, name):
  defaults = _defaults(level_name)
  if level_name == 'atari57':  # What is no expert's default.
    defaults = dict(defaults.items() - _defaults('pong').items())
  assert defaults
  for flag, value in defaults.items():
    if value != FLAGS[flag].default:
      assert name in FLAGS[flag].help, flag


@pytest.mark.parametrize('level_name', ['pong', 'gym:CartPole-v1'])
def test_given_flags_win(level_name):
  """Also where the value is the flag's own default, which says "not given"."""
  for name in _defaults(level_name):
    default = FLAGS[name].default
    assert getattr(resolve(level_name=level_name, **{name: default}),
                   name) == default


@pytest.mark.parametrize('cores, batch_size, num_pools, expected', [
    (1, 32, 0, 32), (2, 32, 0, 32), (4, 32, 0, 64), (64, 32, 0, 128),
    (2, 4, 0, 16), (2, 32, 3, 33), (2, 1, 1, 4)])
def test_actors_follow_cores_and_batch(
    monkeypatch, cores, batch_size, num_pools, expected):
  monkeypatch.setattr(machine_cores, 'count', lambda: cores)
  for level_name in ('pong', 'gym:CartPole-v1', 'synthetic:'):
    assert resolve(level_name=level_name, batch_size=batch_size,
                   num_pools=num_pools).num_actors == expected
  assert resolve(level_name='pong', num_actors=7).num_actors == 7
  # As released, whatever the machine.
  assert resolve(level_name='explore_goal_locations_small').num_actors == 4


@pytest.mark.parametrize('cores, proportion, expected', [
    (2, .875, 16), (64, .875, 16), (1, .5, 16), (64, .5, 64)])
def test_actors_follow_the_new_unrolls_of_a_batch(
    monkeypatch, cores, proportion, expected):
  """What is replayed keeps nobody busy, and makes new unrolls wait."""
  monkeypatch.setattr(machine_cores, 'count', lambda: cores)
  for level_name in ('pong', 'gym:CartPole-v1', 'synthetic:'):
    assert resolve(level_name=level_name,
                   replay_proportion=proportion).num_actors == expected


def test_actors_of_jobs_follow_no_cores(monkeypatch):
  """An actor job has --envs_per_actor, and a learner job may have no actor."""
  default = config_lib.SETTINGS['num_actors'].default
  monkeypatch.setattr(machine_cores, 'count', lambda: 64)
  for job_name in 'actor', 'learner':
    assert resolve(level_name='pong', task=0, job_name=job_name
                  ).num_actors == default


@pytest.mark.parametrize('cores, num_pools, expected', [
    (1, 0, 57), (2, 0, 57), (4, 0, 57), (8, 0, 114), (64, 0, 114), (2, 2, 114)])
def test_atari57_has_as_many_actors_of_each_game(
    monkeypatch, cores, num_pools, expected):
  monkeypatch.setattr(machine_cores, 'count', lambda: cores)
  assert resolve(
      level_name='atari57', num_pools=num_pools).num_actors == expected
  # Not of all as many, but all are there.
  assert resolve(level_name='atari57', num_actors=60).num_actors == 60


def test_atari57_refuses_what_leaves_games_out():
  assert '57 games' in message_of(level_name='atari57', num_actors=56)
  assert '--full_action_set=False cannot work' in message_of(
      level_name='atari57', full_action_set=False)
  # The second pool goes on with the games where the first one ends.
  resolve(level_name='atari57', num_actors=58, num_pools=2)
  resolve(level_name='atari57', mode='test', num_actors=8)
  # An actor job has some of the games, a learner job none.
  for job in ('actor', 'learner'):
    resolve(level_name='atari57', task=0, job_name=job)


@pytest.mark.parametrize('architecture', ['a2c_sync_step',
                                          'a2c_sync_trajectory'])
def test_batched_a2c_has_an_actor_for_every_unroll(architecture):
  for level_name in 'pong', 'seekavoid_arena_01', 'synthetic:':
    config = resolve(level_name=level_name, architecture=architecture,
                     batch_size=12)
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


def test_a3c_makes_an_update_of_every_unroll(monkeypatch):
  monkeypatch.setattr(machine_cores, 'count', lambda: 3)
  config = resolve(level_name='pong', architecture='a3c')
  assert (config.batch_size, config.queue_capacity, config.num_actors,
          config.num_learner_devices) == (1, 1, 6, 1)
  layout = suites.choose_layout(config, config.num_actors)
  assert (layout.num_pools, layout.size, layout.maximum_batch_size) == (6, 1, 1)
  # As many of each game.
  assert resolve(level_name='atari57', architecture='a3c').num_actors == 57
  assert resolve(level_name='pong', architecture='a3c', task=3,
                 job_name='actor').envs_per_actor == 1


@pytest.mark.parametrize('name, value, others', [
    ('batch_size', 32, {}),
    ('replay_proportion', .5, {}),
    ('policy_lag', 3, {}),
    ('max_policy_lag', 3, {}),
    ('num_pools', 2, {}),
    ('pool_batch_size', 2, {}),
    ('inference_minimum_batch_size', 2, {}),
    ('inference_timeout_ms', 10, {}),
    ('batch_size', 1, dict(num_learner_devices=2)),
    ('envs_per_actor', 2, dict(task=0, job_name='actor')),
    ('inference', 'learner', dict(task=0)),
    ('learner_hosts', 'a:1,b:2', dict(task=0, insecure_network=True)),
])
def test_a3c_refuses_what_it_has_no_use_for(name, value, others):
  message = message_of(
      level_name='pong', architecture='a3c', **{name: value}, **others)
  shown = "['a:1', 'b:2']" if name == 'learner_hosts' else value
  assert message.startswith(f'--{name}={shown} cannot work: '), message


@pytest.mark.parametrize('name', [
    'warm_start', 'dataset_path', 'runfiles_path', 'level_cache_dir',
    'auth_token_file', 'tls_ca'])
def test_paths_are_the_same_from_everywhere(tmp_path, monkeypatch, name):
  monkeypatch.chdir(tmp_path)
  for path, expected in (
      ('', ''), ('data/mine', f'{tmp_path}/data/mine'), ('/data', '/data'),
      ('gs://bucket/maps', 'gs://bucket/maps'), ('dummy', 'dummy')):
    assert getattr(resolve(level_name='pong', **{name: path}), name) == expected


def test_a_lag_that_every_unroll_would_exceed():
  assert '--max_policy_lag=4 ' in message_of(
      level_name='pong', policy_lag=5, max_policy_lag=4)
  resolve(level_name='pong', policy_lag=5, max_policy_lag=5)


def test_queue_capacity_follows_the_new_unrolls_of_a_batch():
  assert resolve(level_name='pong').queue_capacity == 32
  assert resolve(level_name='pong', batch_size=5).queue_capacity == 5
  assert resolve(level_name='pong', replay_proportion=.75).queue_capacity == 8
  assert resolve(level_name='pong', batch_size=5,
                 queue_capacity=9).queue_capacity == 9


def test_to_json_is_everything():
  config = resolve(level_name='pong')
  assert json.loads(config.to_json()) == dataclasses.asdict(config)


def test_frames_are_environment_frames():
  config = resolve(level_name='pong', unroll_length=7, batch_size=4)
  assert config.frames_per_unroll == 7 * 4
  assert config.frames_per_step == 4 * 7 * 4


# -- Without flags ------------------------------------------------------------


def test_a_script_gives_what_it_wants_and_gets_the_rest():
  config = config_lib.resolve({'level_name': 'pong', 'logdir': '/tmp/x'})
  assert config == resolve(level_name='pong', logdir='/tmp/x')
  # What it gives wins over the suite's.
  assert config_lib.resolve(
      dict(level_name='pong', network='deep', width=96)
  ) == resolve(level_name='pong', network='deep', width=96)


def test_configurations_share_no_list():
  first, second = (config_lib.resolve(dict(level_name='pong')) for _ in 'ab')
  first.learner_hosts.append('a:1')
  assert second.learner_hosts == ['localhost:8000']
  assert config_lib.SETTINGS['learner_hosts'].default == ['localhost:8000']


@pytest.mark.parametrize('values, expected', [
    (dict(reward_clippin='none'), "no setting 'reward_clippin' to give. Did "
     'you mean reward_clipping?'),
    (dict(qqq=1), "no setting 'qqq' to give."),
    # It follows from the level.
    (dict(suite='atari'), "no setting 'suite' to give."),
    (dict(mode='tset'), '--mode=tset cannot work: it has to be train or test '
     'or export or check.'),
    (dict(batch_size='8'), '--batch_size=8 cannot work: it has to be a whole '
     'number, and its type is str.'),
    (dict(batch_size=8.), '--batch_size=8.0 cannot work'),
    (dict(batch_size=np.int64(8)), 'and its type is int64.'),
    (dict(batch_size=True), 'a whole number, and its type is bool.'),
    (dict(learning_rate='fast'), 'it has to be a number, and its type is str.'),
    (dict(learning_rate=True), 'it has to be a number, and its type is bool.'),
    (dict(use_lstm=0), '--use_lstm=0 cannot work: it has to be True or False, '
     'and its type is int.'),
    (dict(learner_hosts='a:1'), '--learner_hosts=a:1 cannot work: it has to be '
     'a list, and its type is str.'),
    (dict(logdir=None), '--logdir=None cannot work: it has to be text, and its '
     'type is NoneType.'),
    (dict(logdir=''), '--logdir= cannot work: it has to be a path of '),
    (dict(logdir='gs://b/run'), '--logdir=gs://b/run cannot work: it has to '
     'be a path of the file system, and no URL, '),
    (dict(logdir='caf\udce9'), ' cannot work: it has to be a path of the file '
     'system, and no URL, in UTF-8, and '),
    (dict(export_dir='gs://b/x'), '--export_dir=gs://b/x cannot work: it has '
     'to be a path of the file system, and no URL, '),
    (dict(export_dir='/x[1]'), '--export_dir=/x[1] cannot work: it has to be '),
    (dict(warm_start='/x*/ckpt-4'), '--warm_start=/x*/ckpt-4 cannot work: it'),
    (dict(checkpoint='/x?/ckpt-4'), '--checkpoint=/x?/ckpt-4 cannot work: it'),
    (dict(total_environment_frames=2**63), '=9223372036854775808 cannot work'),
    (dict(video_dir='file:///x'), '--video_dir=file:///x cannot work'),
])
def test_what_flags_would_refuse_is_refused_in_a_script_too(values, expected):
  with pytest.raises(config_lib.ConfigError) as caught:
    config_lib.resolve(dict(dict(level_name='pong'), **values))
  assert expected in str(caught.value) and '\n' not in str(caught.value)


def test_whole_numbers_are_numbers():
  assert config_lib.resolve(
      dict(level_name='pong', learning_rate=1)).learning_rate == 1


def test_it_needs_neither_tensorflow_nor_flags():
  """Nor an emulator, so that mistakes are answered at once."""
  program = (
      'import sys\n'
      'from scalable_agent import config\n'
      'for level in "pong", "gym:x", "synthetic:", "dmlab30", "demos/x":\n'
      '  config.resolve(dict(level_name=level))\n'
      'sys.exit(str([name for name in ("tensorflow", "absl.flags", "ale_py", '
      '"gymnasium", "deepmind_lab", "grpc") if name in sys.modules]))')
  result = subprocess.run([sys.executable, '-c', program], text=True,
                          capture_output=True, check=False, timeout=60)
  assert result.stderr.strip() == '[]'
