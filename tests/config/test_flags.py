"""The flags are the settings; their names, types and defaults are a contract.
"""

import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags

FLAGS = flags.FLAGS

_DEFAULTS = dict(
    logdir='/tmp/agent', mode='train', checkpoint='latest', video_dir='',
    export_dir='', memory_gb=0., profile_updates='', test_num_episodes=10,
    evaluate_every_frames=0,
    task=-1, job_name='learner', replay_host='', replay_agents=0,
    learner_hosts=['localhost:8000'],
    collective_hosts=[], envs_per_actor=1, inference='actor',
    auth_token_file='', tls_cert='', tls_key='', tls_ca='',
    insecure_network=False, total_environment_frames=10**9, num_actors=4,
    batch_size=2, unroll_length=100, num_action_repeats=4, seed=1,
    architecture='impala', policy_lag=0, max_policy_lag=0, warm_start='',
    off_policy_correction='vtrace', q_estimate='target',
    learning_rate_schedule='linear', entropy_cost=.00025, baseline_cost=.5,
    agent='impala', frame_stack=4, target_update_period=1000,
    retrace_lambda=1., policy_gradient='beta_loo', beta_loo_clip=1.,
    policy_uniform=.01, num_atoms=51, v_min=-10., v_max=10.,
    steps_per_update=5., replay_steps=1_000_000, replay_min_steps=10_000,
    replay_uniform=.1,
    discounting=.99, reward_clipping='abs_one', clip_rho_threshold=1.,
    clip_pg_rho_threshold=1., vtrace_lambda=1., replay_proportion=0.,
    replay_capacity=10_000, replay_state='stored', train_on_new=True,
    entropy_on_replay=True, trust_region_threshold=0., channel_multiplier=1,
    subtract_background=False,
    environment_timeout_secs=480., environment_start_timeout_secs=3600.,
    dataset_path='', runfiles_path='', level_cache_dir='',
    level_name='explore_goal_locations_small', width=96, height=72,
    full_action_set=False, network='deep', use_lstm=True, precision='float32',
    learning_rate=.00048, decay=.99, momentum=0., epsilon=.1,
    gradient_norm_clip=0., xla='auto', num_learner_devices=0,
    inference_device='', intra_op_threads=0, num_pools=0, pool_batch_size=0,
    environment_threads=0, inference_minimum_batch_size=1,
    inference_maximum_batch_size=1024, inference_timeout_ms=100,
    queue_capacity=0, save_checkpoint_secs=120., keep_checkpoints=3,
    max_failed_saves=10, log_interval_secs=10., batch_timeout_secs=600.)
_CHOICES = dict(
    mode=['train', 'test', 'export', 'check'],
    job_name=['learner', 'actor', 'replay'],
    inference=['actor', 'learner'],
    architecture=['impala', 'a2c_sync_step', 'a2c_sync_trajectory', 'a3c'],
    agent=['impala', 'reactor'], policy_gradient=['beta_loo', 'tislr'],
    off_policy_correction=['vtrace', 'one_step', 'epsilon', 'none'],
    q_estimate=['target', 'baseline'],
    learning_rate_schedule=['linear', 'constant'],
    reward_clipping=['abs_one', 'soft_asymmetric', 'none'],
    replay_state=['stored', 'recomputed'],
    precision=['float32', 'bfloat16'], xla=['auto', 'on', 'off'])
_PARSERS = {bool: flags.BooleanParser, int: flags.IntegerParser,
            float: flags.FloatParser, list: flags.ListParser,
            str: flags.ArgumentParser}


def _own():
  return {flag.name: flag for flag in
          FLAGS.flags_by_module_dict()[config_flags.__name__]}


def test_there_is_a_flag_for_every_setting_that_users_set():
  assert set(_own()) == set(_DEFAULTS)
  assert set(config_lib.SETTINGS) == set(_DEFAULTS) | {
      'suite', 'shares_replay'}


@pytest.mark.parametrize('name', _DEFAULTS)
def test_flag(name):
  flag, default = _own()[name], _DEFAULTS[name]
  assert flag.default == default
  assert type(flag.default) is type(default)  # Not 1 for 1. or True.
  assert flag.help.endswith(config_lib.SETTINGS[name].help)
  if name in _CHOICES:
    assert flag.parser.enum_values == _CHOICES[name]
  else:
    assert type(flag.parser) is _PARSERS[type(default)]


def test_help_shows_the_flags_of_a_program_whose_own_they_are():
  """Wherever they are declared."""
  result = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.experiment', '--help'],
      text=True, capture_output=True, check=False, timeout=60)
  for name in _DEFAULTS:
    assert f'--{name}:' in result.stdout or f'--[no]{name}:' in result.stdout


def test_what_is_given_is_what_the_user_set():
  """All flags have values, and some are no settings."""
  with flagsaver.flagsaver():
    FLAGS(['experiment', '--seed=3', '--verbosity=0', '--nouse_lstm',
           '--learner_hosts=a:1,b:2', '--xla=auto'])
    FLAGS.set_default('logdir', '/tmp/x')
    given = dict(seed=3, use_lstm=False, learner_hosts=['a:1', 'b:2'],
                 xla='auto')
    assert config_flags.given() == given
    assert config_flags.given(dict(seed=4, task=0)) == dict(
        given, seed=4, task=0)
    assert sorted(config_flags.given_arguments(without=('seed',))) == [
        '--learner_hosts=a:1,b:2', '--nouse_lstm', '--xla=auto']
