"""The settings of Reactor: its defaults, and whose settings are refused."""

import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import reactor
from tests.config import command_line

_GYM = ('--level_name=gym:CartPole-v1', '--v_min=0', '--v_max=100')


def test_defaults_are_the_papers():
  config = command_line.resolve('--agent=reactor', '--level_name=pong')
  assert (config.unroll_length, config.batch_size) == (32, 4)
  assert (config.learning_rate, config.learning_rate_schedule) == (
      .00005, 'constant')
  assert (config.momentum, config.decay, config.epsilon) == (0., .999, 1e-8)
  assert (config.frame_stack, config.network, config.use_lstm) == (
      1, 'auto', True)
  assert (config.entropy_cost, config.gradient_norm_clip) == (.01, 0.)
  assert (config.replay_steps, config.replay_min_steps) == (1_000_000, 10_000)
  # These are the suite's.
  assert (config.reward_clipping, config.discounting, config.width) == (
      'abs_one', .99, 84)
  assert config.frames_per_step == 20


def test_defaults_on_gym():
  config = command_line.resolve('--agent=reactor', *_GYM)
  assert (config.replay_steps, config.replay_min_steps) == (100_000, 1000)
  assert (config.v_min, config.v_max, config.batch_size) == (0., 100., 4)


def test_what_is_given_wins():
  config = command_line.resolve(
      '--agent=reactor', '--level_name=pong', '--batch_size=8', '--nouse_lstm',
      '--network=deep', '--frame_stack=4', '--replay_steps=50000')
  assert (config.batch_size, config.use_lstm, config.network) == (
      8, False, 'deep')
  assert (config.frame_stack, config.replay_steps) == (4, 50_000)


def test_impala_has_other_defaults():
  config = command_line.resolve('--level_name=pong')
  assert (config.batch_size, config.frame_stack, config.learning_rate) == (
      32, 4, .0006)


_OTHERS = dict(
    vtrace_lambda=.5, replay_proportion=.5, replay_capacity=9, baseline_cost=.1,
    clip_rho_threshold=2., clip_pg_rho_threshold=2., max_policy_lag=3,
    replay_state='recomputed', train_on_new='false', entropy_on_replay='false',
    q_estimate='baseline',
    off_policy_correction='one_step', trust_region_threshold=.1,
    architecture='a2c_sync_step', replay_host='a:1', replay_agents=2)


def test_these_are_all_that_impala_has_alone():
  assert set(_OTHERS) == {
      name for name, declared in config_lib.SETTINGS.items()
      if declared.agent == 'impala'}


@pytest.mark.parametrize('name', _OTHERS)
def test_settings_of_impala_are_refused(name):
  message = command_line.message_of(
      '--agent=reactor', '--level_name=pong', f'--{name}={_OTHERS[name]}')
  assert message.startswith(f'--{name}=')
  assert message.endswith(
      'cannot work: it is a setting of --agent=impala, and this is '
      '--agent=reactor.')


@pytest.mark.parametrize('agent, flag', [
    ('reactor', 'vtrace_lambda=1.0'), ('reactor', 'architecture=impala'),
    ('impala', 'retrace_lambda=1.0')])
def test_they_are_refused_where_they_say_what_is_so_by_default_too(agent, flag):
  assert 'it is a setting of --agent=' in command_line.message_of(
      f'--agent={agent}', '--level_name=pong', f'--{flag}')


@pytest.mark.parametrize('flag', [
    'retrace_lambda=0.5', 'v_max=3', 'replay_steps=50000',
    'policy_gradient=tislr', 'replay_uniform=1'])
def test_settings_of_reactor_are_refused(flag):
  message = command_line.message_of('--level_name=pong', f'--{flag}')
  assert message.endswith(
      'cannot work: it is a setting of --agent=reactor, and this is '
      '--agent=impala.')


@pytest.mark.parametrize('given', [(), ('--v_max=100',), ('--v_min=0',)])
@pytest.mark.parametrize('flags', [
    ('--level_name=gym:CartPole-v1',), ('--level_name=dmlab30',),
    ('--level_name=pong', '--reward_clipping=none')])
def test_rewards_that_are_not_clipped_need_a_range_of_returns(flags, given):
  message = command_line.message_of('--agent=reactor', *flags, *given)
  assert 'give --v_min and --v_max' in message
  assert flags[0].partition('=')[2] in message


def test_rewards_that_are_clipped_need_none():
  for level_name in 'gym:CartPole-v1', 'seekavoid_arena_01', 'pong':
    config = command_line.resolve(
        '--agent=reactor', f'--level_name={level_name}',
        '--reward_clipping=abs_one')
    assert (config.v_min, config.v_max) == (-10., 10.)


@pytest.mark.parametrize('flags, named', [
    (('--v_min=10',), '--v_min=10.0'), (('--v_max=-11',), '--v_min=-10.0'),
    (('--v_max=inf',), '--v_min=-10.0'), (('--v_min=nan',), '--v_min=nan'),
    (('--replay_steps=5000',), '--replay_min_steps=10000'),
    (('--v_min=1e8', '--v_max=100000001'), '--v_min=100000000.0'),
    (('--total_environment_frames=40000',), '--replay_min_steps=10000'),
    (('--total_environment_frames=45000', '--profile_updates=100:2000'),
     '--profile_updates=100:2000'),
    (('--policy_uniform=0',), '--policy_uniform=0.0'),
    (('--replay_uniform=0',), '--replay_uniform=0.0'),
    (('--num_atoms=1',), '--num_atoms=1'),
    ((f'--num_atoms={10**19}',), f'--num_atoms={10**19}'),
    (('--momentum=1',), '--momentum=1.0'), (('--decay=1',), '--decay=1.0'),
    (('--frame_stack=2',), '--frame_stack=2'),
    (('--steps_per_update=inf',), '--steps_per_update=inf')])
def test_what_cannot_work(flags, named):
  assert command_line.message_of(
      '--agent=reactor', '--level_name=pong', *flags).startswith(
          f'{named} cannot work: ')


def test_replay_may_have_to_be_full_before_the_first_update():
  assert command_line.resolve(
      '--agent=reactor', '--level_name=pong', '--replay_steps=10000'
      ).replay_min_steps == 10_000


def test_every_learner_fills_a_replay_of_its_own():
  flags = ('--agent=reactor', '--level_name=pong', '--replay_min_steps=7000',
           '--insecure_network', '--task=0')
  for hosts, count in ('a:1', 1), ('a:1,b:2', 2):
    config = command_line.resolve(*flags, f'--learner_hosts={hosts}')
    assert config.frames_before_updates == 7000 * 4 * count


def test_unrolls_may_come_one_by_one():
  assert command_line.resolve(
      '--agent=reactor', '--level_name=pong', '--queue_capacity=1',
      '--total_environment_frames=40001').batch_size == 4


def test_the_help_has_the_defaults_of_reactor():
  for name, value in reactor.DEFAULTS.items():
    text = config_lib.SETTINGS[name].help
    said = dict(
        use_lstm='yes', epsilon='1e-8', learning_rate='0.00005').get(
            name, f'{value:g}' if isinstance(value, float) else str(value))
    default = config_lib.SETTINGS[name].default
    assert value == default or f'Reactor: {said}' in text, (name, text)


def test_a_clip_of_infinity_can_work():
  assert command_line.resolve(
      '--agent=reactor', '--level_name=pong', '--beta_loo_clip=inf'
  ).beta_loo_clip == float('inf')
