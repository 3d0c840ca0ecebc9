"""Settings that cannot work, alone or together, are refused in one line."""

import math
import string
import sys

from hypothesis import given
from hypothesis import strategies as st
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import losses
from scalable_agent import suites
from scalable_agent.config import learning
from scalable_agent.machine import cores as machine_cores
from scalable_agent.networks import torsos
from tests.config.command_line import message_of
from tests.config.command_line import resolve

# -- Checks -------------------------------------------------------------------


@pytest.mark.parametrize('name, values, good', [
    *[(name, (0, -1), 1) for name in (
        'batch_size', 'unroll_length', 'num_action_repeats',
        'total_environment_frames', 'test_num_episodes', 'width', 'height',
        'keep_checkpoints', 'inference_minimum_batch_size',
        'replay_capacity', 'channel_multiplier')],
    *[(name, (-1,), 0) for name in (
        'num_learner_devices', 'intra_op_threads', 'num_pools',
        'pool_batch_size', 'environment_threads', 'inference_timeout_ms',
        'evaluate_every_frames', 'policy_lag', 'max_policy_lag')],
    *[(name, (-1., 'nan'), 0) for name in (
        'clip_rho_threshold', 'clip_pg_rho_threshold',
        'trust_region_threshold')],
    *[(name, (-1., 'nan', 'inf'), 0) for name in (
        'gradient_norm_clip', 'learning_rate', 'entropy_cost', 'baseline_cost',
        'momentum')],
    *[(name, (-.1, 1.1, 'nan'), .5) for name in (
        'discounting', 'decay', 'vtrace_lambda')],
    ('replay_proportion', (-.25, 1., 2., 'nan', .51, .999999999999), .5),
    *[(name, (0, -1., 'nan'), .1) for name in (
        'epsilon', 'log_interval_secs', 'save_checkpoint_secs',
        'batch_timeout_secs', 'environment_timeout_secs')],
    ('epsilon', ('inf',), .1),
    ('seed', (-1, -3, 2_000_000_001, 2**31 - 1, 3_000_000_000), 0),
    ('seed', (10**30,), 2_000_000_000),
    ('num_action_repeats', (10_001, 3_000_000_000), 10_000),
    *[(name, (4097, 100_000), 4096) for name in ('width', 'height')],
    ('task', (-2,), -1),
    ('num_actors', (0, -2, 33), 34),
    ('queue_capacity', (31, 1, -1), 32),
    ('pool_batch_size', (3, 17), 4),
    ('inference_maximum_batch_size', (0, 15), 16),
])
def test_values_that_cannot_work(name, values, good):
  """The message names flag and value; a value that can work gets none."""
  others = dict(level_name='pong', num_pools=2)
  for value in values:
    shown = type(config_lib.SETTINGS[name].default)(value)
    assert f'--{name}={shown} cannot work: ' in message_of(
        **dict(others, **{name: value}))
  assert getattr(resolve(**dict(others, **{name: good})), name) == good


@pytest.mark.parametrize('name, value, mode, others', [
    ('video_dir', '/v', 'test', ('train', 'export', 'check')),
    ('export_dir', '/e', 'export', ('train', 'test', 'check')),
    ('checkpoint', 'best', 'test', ('train',))])
def test_what_is_of_another_mode_is_refused(name, value, mode, others):
  values = {'level_name': 'pong', name: value}
  assert getattr(resolve(**values, mode=mode), name) == value
  for other in others:
    assert message_of(**values, mode=other).startswith(
        f'--{name}={value} cannot work: ')


def test_every_check_of_a_single_value_is_made():
  """Those above and the rest; what is declared is what is tested."""
  for name, declared in config_lib.SETTINGS.items():
    if declared.check is None:
      continue
    value = 'x://no/torso[' if declared.type is str else declared.type(-1e9)
    assert not declared.check.holds(value)
    assert message_of(level_name='pong', **{name: value}) == (
        f'--{name}={value} cannot work: {declared.check.expected}.')


@pytest.mark.parametrize('network, works', [
    ('deep', True), ('shallow', True), ('vector', True), ('auto', True),
    ('my_networks:Padded', True), ('package.my_networks:Padded', True),
    ('depe', False), ('', False), ('my_networks:', False), (':Padded', False),
    ('my_networks.Padded', False), ('a:b:c', False)])
def test_a_network_is_named_or_a_class_of_the_users(network, works):
  if works:
    assert resolve(level_name='pong', network=network).network == network
  else:
    message = message_of(level_name='pong', network=network)
    assert f'--network={network} cannot work: ' in message
    assert 'shallow' in message and 'package.module:Name' in message


def test_what_is_declared_of_networks_and_losses_is_all_there_is():
  """The declarations cannot import either, which load TensorFlow."""
  assert learning.TORSOS == tuple(torsos.TORSOS)
  for torso in torsos.TORSOS:
    assert resolve(level_name='pong', network=torso).network == torso
  assert (config_lib.SETTINGS['reward_clipping'].choices ==
          losses.REWARD_CLIPPINGS)


@pytest.mark.parametrize('typo, meant', [
    ('pogn', 'pong'), ('SpaceInvaders', 'space_invaders'),
    ('rooms_watermase', 'rooms_watermaze'), ('dmlab-30', 'dmlab30'),
    ('', 'gym:')])
def test_a_level_name_that_is_mistyped_gets_the_nearest(
    monkeypatch, typo, meant):
  monkeypatch.setitem(sys.modules, 'deepmind_lab', None)
  message = message_of(level_name=typo)
  assert f'--level_name={typo} ' in message
  assert meant in message


@pytest.mark.parametrize('name, values', [
    ('train_on_new', dict(train_on_new=False)),
    ('replay_state', dict(replay_state='recomputed')),
    ('entropy_on_replay', dict(
        replay_proportion=.5, train_on_new=False, entropy_on_replay=False)),
    ('trust_region_threshold', dict(
        trust_region_threshold=.1, off_policy_correction='none')),
    ('trust_region_threshold', dict(
        trust_region_threshold=.1, q_estimate='baseline')),
    ('trust_region_threshold', dict(
        trust_region_threshold=.1, clip_rho_threshold=0.)),
    ('trust_region_threshold', dict(
        trust_region_threshold=.1, clip_rho_threshold=math.inf))])
def test_settings_of_replay_that_cannot_work_together(name, values):
  assert f'--{name}={values[name]} cannot work: ' in message_of(
      level_name='pong', **values)
  for left_out in set(values) - {'replay_proportion'}:
    rest = {key: value for key, value in values.items() if key != left_out}
    assert resolve(level_name='pong', **rest)


def test_no_unroll_may_be_dropped_where_whole_episodes_are_replayed():
  values = dict(level_name='pong', use_lstm=True, replay_proportion=.5,
                replay_state='recomputed', max_policy_lag=9)
  assert message_of(**values) == (
      '--max_policy_lag=9 cannot work: with --replay_state=recomputed a '
      'dropped unroll takes its whole episode out of replay, leave it at 0.')
  for name in 'replay_proportion', 'replay_state', 'max_policy_lag':
    resolve(**{key: value for key, value in values.items() if key != name})


@pytest.mark.parametrize('mode', ['test', 'export', 'check'])
def test_a_replay_job_trains(mode):
  job = dict(level_name='pong', job_name='replay', replay_host='localhost:1')
  assert message_of(**job, mode=mode) == (
      '--job_name=replay cannot work: it serves runs that train, leave out '
      f'--mode={mode}.')
  resolve(**job)


def test_a_replay_job_has_no_lstm():
  """It need not be told that its learners have none either."""
  job = dict(level_name='lasertag_one_opponent_small', job_name='replay',
             replay_host='a:1', insecure_network=True)
  assert resolve(**job).use_lstm
  learner = dict(job, job_name='learner', replay_proportion=.5)
  assert resolve(**learner, use_lstm=False)
  assert '--replay_state=stored cannot work: ' in message_of(**learner)


def test_replay_of_all_but_a_few():
  """The paper's 96 % of a batch of 128 is 123 unrolls (LASER, 5.1)."""
  config = resolve(level_name='pong', batch_size=128,
                   replay_proportion=.9609375)
  assert (config.num_replayed_unrolls, config.num_new_unrolls) == (123, 5)


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


def test_others_may_have_the_queue_of_a_learner():
  """All jobs may get the same flags."""
  for values in dict(job_name='learner'), dict(job_name='actor'):
    assert resolve(**dict(_TWO_LEARNERS, **values), queue_capacity=16
                  ).queue_capacity == 16


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


def test_an_actor_job_says_which_it_is():
  """Else it would train a run of its own."""
  assert '--task=-1 cannot work: an actor job needs' in message_of(
      level_name='pong', job_name='actor')


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
    ('collective_hosts', 'a:9000,a:9000', {}),
    ('collective_hosts', 'a:9000,b:8001', {}),
    ('insecure_network', False, {}),
])
def test_learners_that_cannot_work(name, value, others):
  message = message_of(**dict(_TWO_LEARNERS, **{name: value}, **others))
  assert f'--{name}=' in message
  assert 'cannot work' in message


@pytest.mark.parametrize('name', ['learner_hosts', 'collective_hosts'])
@pytest.mark.parametrize('address', [
    'b', 'b:0', 'b:65536', 'b:²', 'http://b:9000', 'b..c:9000', '.b:9000'])
def test_addresses_of_several_learners(name, address):
  assert f'--{name}: {address!r} is no address' in message_of(
      **dict(_TWO_LEARNERS, **{name: f'a:8000,{address}'}))


def test_a_port_of_learners_that_leaves_no_room_for_theirs():
  assert "--collective_hosts: 'b:65600' is no address" in message_of(
      **dict(_TWO_LEARNERS, learner_hosts='a:8000,b:64600'))


def test_a_job_without_learners():
  for job_name in ('learner', 'actor'):
    assert '--learner_hosts=[] cannot work' in message_of(
        level_name='pong', task=0, job_name=job_name, learner_hosts='')


def _with_cores(monkeypatch, cores):
  monkeypatch.setattr(machine_cores, 'count', lambda: cores)


@pytest.mark.parametrize('values, largest', [
    # One pool, which hands out half of its environments at a time.
    (dict(num_actors=8), 4),
    (dict(num_actors=8, num_pools=2), 8),
    (dict(num_actors=8, num_pools=2, pool_batch_size=2), 4),
    # A pool hands out what is ready, if only one environment is.
    (dict(level_name='gym:CartPole-v1', num_actors=8), 1),
    (dict(level_name='gym:CartPole-v1', num_actors=8, pool_batch_size=2), 1),
    (dict(level_name='gym:CartPole-v1', num_actors=8, num_pools=4), 4),
    (dict(level_name='synthetic:', num_actors=8, num_pools=2), 2),
    (dict(level_name='seekavoid_arena_01'), 1),
    (dict(level_name='seekavoid_arena_01', num_pools=4), 4),
    (dict(level_name='atari57', num_actors=57), 29),
    (dict(architecture='a2c_sync_trajectory', num_actors=8, batch_size=8), 8),
    (dict(architecture='a2c_sync_step', num_actors=8, batch_size=8), 8),
    # There all environments step together.
    (dict(level_name='gym:CartPole-v1', architecture='a2c_sync_step',
          num_actors=8, batch_size=8), 8),
])
def test_a_batch_of_the_policy_that_may_not_fill(monkeypatch, values, largest):
  """Calls of the policy would wait for the time-out."""
  _with_cores(monkeypatch, 2)
  values = dict(dict(level_name='pong'), **values)
  message = message_of(inference_minimum_batch_size=largest + 1, **values)
  assert (f'--inference_minimum_batch_size={largest + 1} cannot work: only a '
          f'batch of {largest} is sure to fill, ') in message
  config = resolve(**values)
  layout = suites.choose_layout(config, config.num_actors)
  assert (f'--num_pools is {layout.num_pools} and the fewest environments that '
          'a pool hands out at a time are '
          f'{largest // layout.num_pools}.') in message
  assert f'Set it to {largest} or less' in message
  assert resolve(inference_minimum_batch_size=largest, **values
                ).inference_minimum_batch_size == largest


@pytest.mark.parametrize('values, minimum, num_pools', [
    (dict(level_name='pong', num_actors=8), 8, 2),
    # There may be no number of pools that this divides.
    (dict(level_name='gym:CartPole-v1', num_actors=8, pool_batch_size=2), 8,
     None),
    (dict(level_name='gym:CartPole-v1', num_actors=9), 8, 9),
    (dict(level_name='gym:CartPole-v1', num_actors=8), 3, 4),
    # No other number of pools divides 57 and makes as many wait.
    (dict(level_name='atari57', num_actors=57), 40, 57),
    (dict(level_name='gym:CartPole-v1', architecture='a2c_sync_step',
          num_actors=8, batch_size=8), 9, None),
    (dict(level_name='gym:CartPole-v1', num_actors=8), 9, None),
])
def test_what_is_advised_for_a_batch_of_the_policy_works(
    monkeypatch, values, minimum, num_pools):
  """More pools, where any number of them has so many environments waiting."""
  _with_cores(monkeypatch, 2)
  values = dict(values, inference_minimum_batch_size=minimum)
  advice = message_of(**values).partition(' or less')[2]
  assert advice == (', or raise --num_pools.' if num_pools else '.')
  if num_pools:
    resolve(**dict(values, num_pools=num_pools))


def test_batches_of_the_policy_for_callers_that_are_not_known(monkeypatch):
  """Actor jobs that ask a learner, or no threads that share the policy."""
  _with_cores(monkeypatch, 2)
  values = dict(level_name='pong', num_actors=8,
                inference_minimum_batch_size=100)
  for others in (dict(mode='test'), dict(task=0), dict(
      task=0, inference='learner'), dict(task=0, job_name='actor')):
    resolve(**values, **others)
  # A learner can tell that a batch may not be as large as it has to be.
  learner = dict(values, task=0, inference='learner')
  message = message_of(inference_maximum_batch_size=99, **learner)
  assert '--inference_maximum_batch_size=99 cannot work' in message
  assert '--inference_minimum_batch_size=100' in message
  resolve(inference_maximum_batch_size=100, **learner)


def test_a_batch_of_the_policy_need_not_hold_environments_that_step(
    monkeypatch):
  """Of Atari with more than one core half of a pool steps meanwhile."""
  values = dict(level_name='pong', num_actors=2048)
  _with_cores(monkeypatch, 2)
  resolve(**values)
  _with_cores(monkeypatch, 1)
  assert 'hold the 2048 environments' in message_of(**values)


def test_a_batch_of_the_policy_holds_whole_games(monkeypatch):
  """Two environments of a game come together, so that 57 can become 58."""
  _with_cores(monkeypatch, 2)
  values = dict(level_name='atari57', num_actors=114, pool_batch_size=57)
  message = message_of(inference_maximum_batch_size=57, **values)
  assert '--inference_maximum_batch_size=57 cannot work' in message
  assert 'hold the 58 environments' in message
  assert '(--num_actors=114)' in message
  resolve(inference_maximum_batch_size=58, **values)


def test_a_batch_of_the_policy_holds_all_that_wait_for_an_update():
  """After it, batched A2C lets all act, however few the pool hands out."""
  values = dict(level_name='gym:CartPole-v1', batch_size=4, pool_batch_size=2,
                architecture='a2c_sync_trajectory')
  message = message_of(inference_maximum_batch_size=2, **values)
  assert 'hold the 4 environments' in message
  resolve(inference_maximum_batch_size=4, **values)
  resolve(inference_maximum_batch_size=2, **dict(
      values, architecture='impala', num_actors=4))


_small = st.integers(-2, 40)


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
  layout = suites.choose_layout(config, config.num_actors)
  assert layout.maximum_batch_size in (
      [config.pool_batch_size] if config.pool_batch_size else
      [layout.size, layout.size / 2])
  assert layout.size % layout.maximum_batch_size == 0
  assert layout.maximum_batch_size <= config.inference_maximum_batch_size
  assert (config.inference_minimum_batch_size <=
          config.inference_maximum_batch_size)
  assert (config.inference_minimum_batch_size <=
          layout.num_pools * layout.minimum_batch_size)


# -- Replay jobs --------------------------------------------------------------


def test_a_replay_job_neither_plays_nor_trains_nor_writes():
  config = config_lib.resolve(dict(
      level_name='pong', job_name='replay', replay_host='a:1'))
  assert config.is_replay_job and config.shares_replay
  assert not (config.is_learner or config.is_actor_job or
              config.writes_logdir or config.makes_environments)
  assert config.num_learners == 1
  # So it needs none for each level.
  assert config_lib.resolve(dict(
      level_name='atari57', job_name='replay', replay_host='a:1')).is_replay_job


@pytest.mark.parametrize('values, message', [
    (dict(replay_host=''), '--replay_host= cannot work: --job_name=replay'),
    (dict(task=1), '--task=1 cannot work: there is one replay job'),
    (dict(job_name='learner'), '--replay_proportion=0.0 cannot work: nothing '
     'would be drawn from the replay that agents share'),
    (dict(job_name='learner', replay_proportion=.5, use_lstm=True),
     '--replay_state=stored cannot work: with --replay_host'),
    (dict(job_name='learner', replay_proportion=.5, task=0,
          learner_hosts=['b:1', 'c:2'], insecure_network=True),
     '--replay_host=a:1 cannot work: several learners of one agent')])
def test_what_cannot_share_replay_is_refused(values, message):
  with pytest.raises(config_lib.ConfigError) as error:
    config_lib.resolve(dict(dict(
        level_name='pong', job_name='replay', replay_host='a:1'), **values))
  assert str(error.value).startswith(message)


@pytest.mark.parametrize('values', [
    dict(), dict(task=0), dict(task=0, job_name='actor'),
    dict(use_lstm=True, replay_state='recomputed')])
def test_learners_and_their_actors_may_share_replay(values):
  config = config_lib.resolve(dict(dict(
      level_name='pong', replay_host='a:1', replay_proportion=.5), **values))
  assert not config.is_replay_job and config.shares_replay


def test_a_replay_job_may_be_called_the_first():
  assert config_lib.resolve(dict(
      level_name='pong', job_name='replay', replay_host='a:1',
      task=0)).is_replay_job


def test_a_replay_job_recomputes_states_of_networks_it_does_not_know():
  config = config_lib.resolve(dict(
      level_name='pong', job_name='replay', replay_host='a:1',
      replay_state='recomputed', insecure_network=True))
  assert config.is_replay_job and not config.use_lstm


@pytest.mark.parametrize('name', ['a[b', 'a]b', '[ab]', *(
    f'a{c}b' for c in string.punctuation if c not in '/[]')])
def test_log_directories_that_tensorflow_would_not_find_are_refused(
    name, tmp_path):
  (tmp_path / name).mkdir()
  path = tmp_path / name / 'ckpt-0.index'
  path.touch()
  is_found = tf.io.gfile.glob(str(path)) == [str(path)]
  if is_found and not set(name) & set('*?[]'):  # Which may find others too.
    config_lib.resolve(dict(logdir=str(tmp_path / name)))
  else:
    with pytest.raises(config_lib.ConfigError, match='--logdir='):
      config_lib.resolve(dict(logdir=str(tmp_path / name)))
