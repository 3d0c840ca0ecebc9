"""Log directories: whose they are, and that nothing of others is lost."""

import dataclasses
import errno
import json
import logging
import os
import signal
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.training import logdir as logdir_lib
from tests import failing_files

FLAGS = flags.FLAGS

_FACTS = dict(num_actions=6, observation_shapes=[(84, 84, 4)])


def _config(tmp_path, **values):
  values = dict(dict(
      level_name='pong', logdir=tmp_path / 'new' / 'run'), **values)
  with flagsaver.flagsaver():
    FLAGS(['experiment', *(f'--{k}={v}' for k, v in values.items())])
    return config_lib.resolve(config_flags.given())


def _written(config):
  with open(os.path.join(config.logdir, 'config.json')) as f:
    return f.read()


def _prepare(config, facts):
  """What a run does until it has its first checkpoint."""
  with logdir_lib.claim(config):
    changed = logdir_lib.check(config, facts)
    logdir_lib.write(config, facts)
    with open(os.path.join(config.logdir, 'ckpt-0.index'), 'w'):
      pass
  return changed


def test_write_keeps_values_and_facts(tmp_path):
  config = _config(tmp_path)
  assert _prepare(config, _FACTS) == []
  assert sorted(os.listdir(config.logdir)) == [
      'ckpt-0.index', 'config.json']
  assert json.loads(_written(config)) == dict(
      dataclasses.asdict(config), num_actions=6,
      observation_shapes=[[84, 84, 4]])
  # The same run again finds nothing different, tuples in JSON or not.
  assert _prepare(config, _FACTS) == []


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
  _prepare(first, _FACTS)
  written = _written(first)
  second = _config(tmp_path, **{name: now})
  for function in _prepare, logdir_lib.check:
    with pytest.raises(config_lib.ConfigError) as caught:
      function(second, _FACTS)
    message = str(caught.value)
    assert f'--logdir={first.logdir} ' in message and '\n' not in message
    assert 'suite=' in message or (
        f'{name}={before}' in message and f'{name}={now}' in message)
  assert _written(first) == written
  assert sorted(os.listdir(first.logdir)) == [
      'ckpt-0.index', 'config.json']


def test_a_run_without_a_checkpoint_lays_no_claim(tmp_path):
  """Such as one whose environments failed before their first step."""
  first = _config(tmp_path)
  with logdir_lib.claim(first):
    logdir_lib.write(first, _FACTS)
  second = _config(tmp_path, level_name='gym:CartPole-v1')
  with logdir_lib.claim(second):
    assert logdir_lib.check(second, dict(_FACTS, num_actions=2)) == []


def test_two_runs_cannot_claim_a_directory(tmp_path):
  """The second is told who has it; test mode needs no claim."""
  config = _config(tmp_path)
  with logdir_lib.claim(config):
    with pytest.raises(config_lib.ConfigError) as caught:
      with logdir_lib.claim(config):
        pass
    logdir_lib.check(config, _FACTS)
  assert str(caught.value).startswith(f'--logdir={config.logdir} is in use: '
                                      f'process {os.getpid()} on ')
  assert '\n' not in str(caught.value)
  with logdir_lib.claim(config):
    pass


def test_the_claim_ends_with_its_process(tmp_path):
  """However it ends, and whatever it has started."""
  config = _config(tmp_path)
  os.makedirs(config.logdir)
  path = os.path.join(config.logdir, logdir_lib.LOCK_FILE)
  code = ('import subprocess, sys, time\n'
          'from scalable_agent.files import locks\n'
          f'locks.acquire({path!r}, "somebody")\n'
          'child = subprocess.Popen(["sleep", "100"])\n'
          'print(child.pid, flush=True)\n'
          'time.sleep(100)\n')
  with subprocess.Popen([sys.executable, '-c', code],
                        stdout=subprocess.PIPE) as process:
    child = int(process.stdout.readline())
    try:
      with pytest.raises(config_lib.ConfigError, match='somebody trains there'):
        with logdir_lib.claim(config):
          pass
      process.kill()
      process.wait()
      with logdir_lib.claim(config):
        pass
    finally:
      process.kill()
      os.kill(child, signal.SIGKILL)


def test_a_claim_clears_away_what_the_killed_left(tmp_path):
  config = _config(tmp_path)
  temporary = os.path.join(config.logdir, 'ckpt-80_temp')
  os.makedirs(temporary)
  leftovers = [os.path.join(temporary, 'part-00000-of-00001.data'),
               os.path.join(config.logdir, 'metrics.jsonl.here.7.tmp'),
               os.path.join(config.logdir, 'replay_agent.01234567.tmp')]
  for path in leftovers:
    with open(path, 'w') as f:
      f.write('half')
  with logdir_lib.claim(config):
    assert os.listdir(config.logdir) == ['lock']


@pytest.mark.parametrize('name', [
    'config.json', 'checkpoint', 'metrics.jsonl', 'episodes.csv',
    'evaluations.csv'])
def test_what_is_in_the_place_of_a_file_is_named(tmp_path, name):
  """Before a run has trained what it could not write."""
  config = _config(tmp_path)
  path = os.path.join(config.logdir, name)
  os.makedirs(path)
  with pytest.raises(config_lib.ConfigError) as caught:
    with logdir_lib.claim(config):
      pass
  assert str(caught.value).startswith(f'{path} is no file')
  assert os.listdir(config.logdir) == [name]


@pytest.mark.parametrize('number, works', [
    (errno.ENOLCK, True), (errno.EOPNOTSUPP, True), (errno.ENOSYS, True),
    (errno.EACCES, False), (errno.ENOSPC, False)])
def test_only_where_there_are_no_locks_a_run_goes_without(
    tmp_path, monkeypatch, number, works):
  def flock(*unused_args):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(logdir_lib.locks.fcntl, 'flock', flock)
  config = _config(tmp_path)
  if works:
    with logdir_lib.claim(config):
      pass
    return
  with pytest.raises(config_lib.ConfigError, match='lock cannot be locked'):
    with logdir_lib.claim(config):
      pass


@pytest.mark.parametrize('name, content, is_new', [
    ('metrics.jsonl', '', True), ('metrics.jsonl', '{"frames": 80}\n', False),
    ('episodes.csv', 'frames,level,episode_return,episode_frames\n', True),
    ('episodes.csv', 'frames,level,episode_return,episode_frames\n8,a,1,4\n',
     False)])
def test_logs_without_a_checkpoint_are_refused(tmp_path, name, content, is_new):
  """They would be cut to nothing."""
  (tmp_path / name).write_text(content)
  if is_new:
    logdir_lib.check_is_new(str(tmp_path))
    return
  with pytest.raises(config_lib.ConfigError, match=name):
    logdir_lib.check_is_new(str(tmp_path))
  assert (tmp_path / name).read_text() == content


def test_a_directory_for_everybody_is_warned_of(tmp_path, caplog):
  config = _config(tmp_path, logdir=tmp_path)
  for mode, count in (0o755, 0), (0o775, 0), (0o777, 1):
    tmp_path.chmod(mode)
    with caplog.at_level(logging.WARNING), logdir_lib.claim(config):
      pass
    assert caplog.text.count('can be written by everybody') == count


@pytest.mark.parametrize('facts', [
    dict(_FACTS, num_actions=4),
    dict(_FACTS, observation_shapes=[(84, 84, 1)])])
def test_environments_that_changed_are_refused(tmp_path, facts):
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  with pytest.raises(config_lib.ConfigError, match='holds a run with'):
    _prepare(config, facts)


def test_identity_is_tested():
  assert set(logdir_lib.IDENTITY) == {
      'suite', 'level_name', 'agent', 'network', 'channel_multiplier',
      'subtract_background', 'use_lstm', 'width', 'height', 'frame_stack',
      'num_action_repeats', 'full_action_set', 'policy_uniform', 'num_atoms',
      'v_min', 'v_max'}


def test_harmless_changes_are_told_and_written(tmp_path):
  _prepare(_config(tmp_path), _FACTS)
  changed = _config(tmp_path, learning_rate=.1, num_actors=8)
  for function in logdir_lib.check, _prepare:
    assert sorted(function(changed, _FACTS)) == [
        'learning_rate was 0.0006, is now 0.1',
        'num_actors was 32, is now 8']
  assert json.loads(_written(changed))['learning_rate'] == .1
  assert logdir_lib.check(changed, _FACTS) == []


def test_mode_and_the_spelling_of_the_logdir_may_differ(tmp_path):
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  again = _config(tmp_path, mode='test', logdir=config.logdir + '/../run')
  assert logdir_lib.check(again, _FACTS) == []


def test_fields_of_other_versions_are_ignored(tmp_path):
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  found = json.loads(_written(config))
  del found['vtrace_lambda']
  found['of_the_future'] = 1
  with open(os.path.join(config.logdir, 'config.json'), 'w') as f:
    json.dump(found, f)
  assert _prepare(config, _FACTS) == []


def test_a_run_that_is_older_than_a_setting_has_its_default(tmp_path):
  """It would go on with inputs that its weights have never seen."""
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  found = json.loads(_written(config))
  del found['subtract_background']
  with open(os.path.join(config.logdir, 'config.json'), 'w') as f:
    json.dump(found, f)
  with pytest.raises(config_lib.ConfigError, match=(
      'holds a run with subtract_background=False, this one has '
      'subtract_background=True')):
    logdir_lib.check(_config(tmp_path, subtract_background='True'), _FACTS)
  assert logdir_lib.check(config, _FACTS) == []


def test_check_writes_nothing(tmp_path):
  config = _config(tmp_path)
  assert logdir_lib.check(config, _FACTS) == []
  assert not os.path.exists(config.logdir)


def test_a_broken_config_json_is_named_and_left(tmp_path):
  config = _config(tmp_path)
  os.makedirs(config.logdir)
  path = os.path.join(config.logdir, 'config.json')
  for content in '{"level_name": ', '[]', 'null':
    with open(path, 'w') as f:
      f.write(content)
    with open(os.path.join(config.logdir, 'ckpt-0.index'), 'w'):
      pass
    with pytest.raises(config_lib.ConfigError) as caught:
      _prepare(config, _FACTS)
    assert path in str(caught.value) and '\n' not in str(caught.value)
    assert _written(config) == content


def test_checkpoints_without_a_config_json_are_nobodys(tmp_path):
  """A run with settings of another one would go on with its weights."""
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  assert logdir_lib.read_config(config.logdir, 'train')
  os.remove(os.path.join(config.logdir, 'config.json'))
  # Tests and exports have flags to say it.
  assert logdir_lib.read_config(config.logdir, 'test') == {}
  with pytest.raises(config_lib.ConfigError, match='no config.json') as caught:
    logdir_lib.read_config(config.logdir, 'train')
  assert '\n' not in str(caught.value)


def test_a_config_json_that_cannot_be_read_now_is_not_one_that_is_missing(
    tmp_path, monkeypatch):
  """Else the run would go on with other settings."""
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  with monkeypatch.context() as patched:
    failing_files.fail(patched, 'config.json')
    with pytest.raises(config_lib.ConfigError, match='Input/output error'):
      logdir_lib.read_config(config.logdir, 'train')


@pytest.mark.parametrize('logdir', ['file/run', 'file'])
def test_a_directory_that_cannot_be_is_named(tmp_path, logdir):
  (tmp_path / 'file').write_text('here')
  config = _config(tmp_path, logdir=tmp_path / logdir)
  with pytest.raises(config_lib.ConfigError) as caught:
    _prepare(config, _FACTS)
  assert f'--logdir={config.logdir} cannot be written' in str(caught.value)
  assert (tmp_path / 'file').read_text() == 'here'


def test_a_config_json_is_whole_at_any_time(tmp_path, monkeypatch):
  """A crash before the renaming leaves the old file."""
  config = _config(tmp_path)
  _prepare(config, _FACTS)
  before = _written(config)

  def fail(*unused_args):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'replace', fail)
  with pytest.raises(config_lib.ConfigError, match='No space left on device'):
    _prepare(_config(tmp_path, learning_rate=.1), _FACTS)
  assert _written(config) == before


def test_a_config_json_is_on_the_disk_before_it_has_its_name(
    tmp_path, monkeypatch):
  """Otherwise a machine that fails may leave an empty one."""
  config, done = _config(tmp_path), []
  os.makedirs(config.logdir)
  fsync, replace = os.fsync, os.replace
  monkeypatch.setattr(
      os, 'fsync', lambda file: [done.append('fsync'), fsync(file)])
  monkeypatch.setattr(
      os, 'replace', lambda *paths: [done.append('replace'), replace(*paths)])
  logdir_lib.write(config, _FACTS)
  assert done == ['fsync', 'replace', 'fsync']
