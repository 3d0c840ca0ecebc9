"""Log directories: whose they are, and that nothing of others is lost."""

import dataclasses
import json
import os

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import config as config_lib
from scalable_agent import experiment
from scalable_agent.training import logdir as logdir_lib

FLAGS = flags.FLAGS

_FACTS = dict(num_actions=6, observation_shapes=[(84, 84, 4)])


def _config(tmp_path, **values):
  values = dict(dict(
      level_name='pong', logdir=tmp_path / 'new' / 'run'), **values)
  with flagsaver.flagsaver():
    FLAGS(['experiment', *(f'--{k}={v}' for k, v in values.items())])
    return experiment.config_from_flags()


def _written(config):
  with open(os.path.join(config.logdir, 'config.json')) as f:
    return f.read()


def test_prepare_writes_values_and_facts(tmp_path):
  config = _config(tmp_path)
  assert logdir_lib.prepare(config, _FACTS) == []
  assert os.listdir(config.logdir) == ['config.json']
  assert json.loads(_written(config)) == dict(
      dataclasses.asdict(config), num_actions=6,
      observation_shapes=[[84, 84, 4]])
  # The same run again finds nothing different, tuples in JSON or not.
  assert logdir_lib.prepare(config, _FACTS) == []


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
  logdir_lib.prepare(first, _FACTS)
  written = _written(first)
  second = _config(tmp_path, **{name: now})
  for function in logdir_lib.prepare, logdir_lib.check:
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
  logdir_lib.prepare(config, _FACTS)
  with pytest.raises(config_lib.ConfigError, match='holds a run with'):
    logdir_lib.prepare(config, facts)


def test_identity_is_tested():
  assert set(logdir_lib.IDENTITY) == {
      'suite', 'level_name', 'network', 'use_lstm', 'width', 'height',
      'num_action_repeats', 'full_action_set'}


def test_harmless_changes_are_told_and_written(tmp_path):
  logdir_lib.prepare(_config(tmp_path), _FACTS)
  changed = _config(tmp_path, learning_rate=.1, num_actors=8)
  for function in logdir_lib.check, logdir_lib.prepare:
    assert sorted(function(changed, _FACTS)) == [
        'learning_rate was 0.0006, is now 0.1',
        'num_actors was 32, is now 8']
  assert json.loads(_written(changed))['learning_rate'] == .1
  assert logdir_lib.check(changed, _FACTS) == []


def test_mode_and_the_spelling_of_the_logdir_may_differ(tmp_path):
  config = _config(tmp_path)
  logdir_lib.prepare(config, _FACTS)
  again = _config(tmp_path, mode='test', logdir=config.logdir + '/../run')
  assert logdir_lib.check(again, _FACTS) == []


def test_fields_of_other_versions_are_ignored(tmp_path):
  config = _config(tmp_path)
  logdir_lib.prepare(config, _FACTS)
  found = json.loads(_written(config))
  del found['vtrace_lambda']
  found['of_the_future'] = 1
  with open(os.path.join(config.logdir, 'config.json'), 'w') as f:
    json.dump(found, f)
  assert logdir_lib.prepare(config, _FACTS) == []


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
    with pytest.raises(config_lib.ConfigError) as caught:
      logdir_lib.prepare(config, _FACTS)
    assert path in str(caught.value) and '\n' not in str(caught.value)
    assert _written(config) == content


@pytest.mark.parametrize('logdir', ['file/run', 'file'])
def test_a_directory_that_cannot_be_is_named(tmp_path, logdir):
  (tmp_path / 'file').write_text('here')
  config = _config(tmp_path, logdir=tmp_path / logdir)
  with pytest.raises(config_lib.ConfigError) as caught:
    logdir_lib.prepare(config, _FACTS)
  assert f'--logdir={config.logdir} cannot be written' in str(caught.value)
  assert (tmp_path / 'file').read_text() == 'here'


def test_a_config_json_is_whole_at_any_time(tmp_path, monkeypatch):
  """A crash before the renaming leaves the old file."""
  config = _config(tmp_path)
  logdir_lib.prepare(config, _FACTS)
  before = _written(config)

  def fail(*unused_args):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'replace', fail)
  with pytest.raises(config_lib.ConfigError, match='No space left on device'):
    logdir_lib.prepare(_config(tmp_path, learning_rate=.1), _FACTS)
  assert _written(config) == before
