"""A start goes on with the settings of the run in its log directory."""

import json
import os

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.machine import cores as machine_cores
from scalable_agent.training import logdir as logdir_lib
from scalable_agent.training import run_config

_FACTS = dict(num_actions=6, observation_shapes=[[84, 84, 4]])
_GIVEN = dict(
    level_name='pong', learning_rate=.002, use_lstm=True, num_actors=48,
    num_pools=2, seed=7, test_num_episodes=3)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
  monkeypatch.setattr(machine_cores, 'count', lambda: 2)


def _begin(logdir, **values):
  """Leaves a run that was started with some settings; returns its `Config`."""
  config = run_config.resolve(dict(values, logdir=str(logdir)))
  logdir_lib.write(config, _FACTS)
  (logdir / 'ckpt-0.index').touch()
  return config


def _resolve(logdir, **values):
  return run_config.resolve(dict(values, logdir=str(logdir)))


def test_a_value_of_the_wrong_type_is_refused_before_anything_is_read(tmp_path):
  with pytest.raises(config_lib.ConfigError, match='--task=0 cannot work: '):
    run_config.resolve(dict(logdir=str(tmp_path), task='0'))


def test_a_resume_needs_no_other_setting(tmp_path):
  config = _begin(tmp_path, **_GIVEN)
  assert _resolve(tmp_path) == config
  assert logdir_lib.check(config, _FACTS) == []


def test_what_is_given_wins_and_is_told(tmp_path):
  _begin(tmp_path, **_GIVEN)
  config = _resolve(tmp_path, learning_rate=.1, num_pools=3)
  assert (config.learning_rate, config.num_pools) == (.1, 3)
  assert (config.use_lstm, config.num_actors) == (True, 48)
  assert sorted(logdir_lib.check(config, _FACTS)) == [
      'learning_rate was 0.002, is now 0.1', 'num_pools was 2, is now 3']


def test_a_default_that_is_given_wins_too(tmp_path):
  _begin(tmp_path, **_GIVEN)
  default = config_lib.SETTINGS['seed'].default
  assert _resolve(tmp_path, seed=default).seed == default


def test_flags_count_as_given_as_they_say(tmp_path):
  """All flags have values, but only some were set."""
  _begin(tmp_path, **_GIVEN)
  with flagsaver.flagsaver():
    flags.FLAGS(['experiment', f'--logdir={tmp_path}', '--seed=3',
                 '--verbosity=0'])
    config = run_config.resolve(config_flags.given())
  assert (config.learning_rate, config.seed) == (.002, 3)


@pytest.mark.parametrize('mode', ['test', 'export'])
def test_other_modes_take_the_agent_and_leave_the_machine(tmp_path, mode):
  _begin(tmp_path, **_GIVEN, inference_device='gpu:7', xla='on', task=0,
         environment_threads=9)
  config = _resolve(tmp_path, mode=mode)
  assert config.mode == mode
  assert (config.level_name, config.use_lstm, config.learning_rate,
          config.seed, config.test_num_episodes) == ('pong', True, .002, 7, 3)
  assert (config.inference_device, config.xla, config.num_pools,
          config.environment_threads, config.task) == ('', 'auto', 0, 0, -1)
  # What is the machine's is no difference from the run.
  assert logdir_lib.check(config, _FACTS) == []
  changed = _resolve(tmp_path, mode=mode, seed=8, xla='off')
  assert logdir_lib.check(changed, _FACTS) == ['seed was 7, is now 8']


def test_a_run_for_many_environments_is_tested_with_few(tmp_path):
  """Its policy's batches, which are the machine's, do not matter."""
  _begin(tmp_path, level_name='pong', num_actors=2000,
         inference_maximum_batch_size=4096)
  assert _resolve(tmp_path, mode='test').level_name == 'pong'


def test_nothing_of_a_start_is_taken(tmp_path):
  config = _begin(
      tmp_path, level_name='pong', memory_gb=1., profile_updates='3:6')
  assert (config.memory_gb, config.profile_updates) == (1., '3:6')
  config = _resolve(tmp_path, mode='test')
  assert (config.memory_gb, config.profile_updates) == (0., '')
  assert _resolve(tmp_path).mode == 'train'


def test_what_nobody_gave_follows_what_is_given(tmp_path, monkeypatch):
  before = _begin(tmp_path, level_name='pong')
  assert (before.num_actors, before.queue_capacity) == (32, 32)
  assert _resolve(tmp_path, batch_size=64).queue_capacity == 64
  monkeypatch.setattr(machine_cores, 'count', lambda: 64)
  # A machine with other cores goes on with the environments that there were.
  assert _resolve(tmp_path).num_actors == 32


def test_what_somebody_gave_is_not_chosen_anew(tmp_path):
  _begin(tmp_path, level_name='pong', num_actors=40, queue_capacity=100)
  config = _resolve(tmp_path, batch_size=64)
  assert (config.num_actors, config.queue_capacity) == (40, 100)


@pytest.mark.parametrize('mode', ['train', 'test', 'export'])
@pytest.mark.parametrize('given, expected', [
    (dict(level_name='breakout'), 'level_name=pong'),
    # Which cannot be with what is kept of pong, whatever else is wrong.
    (dict(level_name='atari57'), 'level_name=pong'),
    (dict(level_name='gym:CartPole-v1'), 'level_name=pong'),
    (dict(use_lstm=False), 'use_lstm=True'),
    (dict(width=80), 'width=84')])
def test_what_makes_another_run_is_refused(tmp_path, mode, given, expected):
  _begin(tmp_path, **_GIVEN)
  with pytest.raises(config_lib.ConfigError) as caught:
    _resolve(tmp_path, mode=mode, **given)
  assert f'--logdir={tmp_path} holds a run with {expected}' in str(caught.value)


def test_a_directory_that_is_nobodys_has_no_say(tmp_path):
  """There is a configuration, but nothing was ever trained."""
  _begin(tmp_path, **_GIVEN)
  os.remove(tmp_path / 'ckpt-0.index')
  assert _resolve(tmp_path, level_name='breakout').level_name == 'breakout'
  assert _resolve(tmp_path / 'new', level_name='breakout').seed == 1


def test_weights_may_come_without_the_newest_checkpoints(tmp_path):
  """As those do that somebody hands on."""
  _begin(tmp_path, **_GIVEN)
  os.remove(tmp_path / 'ckpt-0.index')
  assert _resolve(tmp_path, mode='test').use_lstm


@pytest.mark.parametrize('job', [
    dict(task=0, job_name='actor'), dict(task=3, job_name='actor'),
    dict(mode='check'),
    dict(task=1, job_name='learner', learner_hosts=['a:1', 'b:2'],
         insecure_network=True, batch_size=2)])
def test_starts_that_do_not_write_it_do_not_read_it(tmp_path, job):
  """For them it is another machine's directory, or the default one."""
  _begin(tmp_path, **_GIVEN)
  config = _resolve(tmp_path, level_name='breakout', **job)
  assert (config.level_name, config.use_lstm) == ('breakout', False)


def test_the_first_learner_resumes_as_one_of_several(tmp_path):
  given = dict(level_name='pong', task=0, learner_hosts=['a:1', 'b:2'],
               insecure_network=True)
  before = _begin(tmp_path, **given)
  assert before.collective_hosts == ['a:1001', 'b:1002']
  assert _resolve(tmp_path) == before
  moved = _resolve(tmp_path, learner_hosts=['c:1', 'd:2'])
  assert moved.collective_hosts == ['c:1001', 'd:1002']


def test_settings_younger_than_the_run_have_their_defaults(tmp_path):
  _begin(tmp_path, **_GIVEN)
  path = tmp_path / 'config.json'
  written = json.loads(path.read_text())
  del written['entropy_cost'], written['checkpoint']
  path.write_text(json.dumps(dict(written, of_the_future=1)))
  assert _resolve(tmp_path).entropy_cost == .01  # Atari's.


@pytest.mark.parametrize('content, expected', [
    ('{', 'config.json is not readable as JSON'),
    ('{"batch_size": "many"}', '--batch_size=many cannot work')])
def test_a_broken_configuration_is_named(tmp_path, content, expected):
  _begin(tmp_path, **_GIVEN)
  (tmp_path / 'config.json').write_text(content)
  with pytest.raises(config_lib.ConfigError, match=expected) as caught:
    _resolve(tmp_path)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('architecture, is_refused', [
    ('a3c', True), ('impala', False)])
def test_a_trial_of_a3c_goes_on_with_as_many_workers(
    tmp_path, architecture, is_refused):
  values = dict(level_name='gym:CartPole-v1', architecture=architecture)
  _begin(tmp_path, **values, num_actors=4)

  def resolve(count):
    return run_config.resolve_trial(
        dict(values, logdir=str(tmp_path), num_actors=count)).num_actors

  assert resolve(4) == 4
  if is_refused:
    with pytest.raises(
        config_lib.ConfigError, match='--num_actors=16 .* was begun with 4'):
      resolve(16)
  else:
    assert resolve(16) == 16


def test_a_trial_goes_on_where_its_configuration_says_little(tmp_path):
  """What is missing there is as it is asked for."""
  _begin(tmp_path, level_name='pong', total_environment_frames=1000)
  path = tmp_path / 'config.json'
  values = dict(level_name='pong', logdir=str(tmp_path), seed=9,
                total_environment_frames=1000)
  written = json.loads(path.read_text())
  del written['seed'], written['total_environment_frames']
  path.write_text(json.dumps(written))
  config = run_config.resolve_trial(values)
  assert (config.seed, config.total_environment_frames) == (9, 1000)
  path.write_text(json.dumps(dict(written, total_environment_frames='x')))
  with pytest.raises(config_lib.ConfigError, match='was begun with x'):
    run_config.resolve_trial(values)
