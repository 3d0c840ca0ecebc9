"""Exports: what they compute, in a process that has nothing of the package."""

import errno
import importlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent.environments.engines import dmlab
from scalable_agent.evaluation import export
from scalable_agent.evaluation import trained
from scalable_agent.process import signals
from scalable_agent.training import run_config
from tests import your_own
from tests.evaluation import trained_runs
from tests.test_experiment import _contents
from tests.test_experiment import _error_of
from tests.test_experiment import run_main  # pylint: disable=unused-import

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TIMEOUT_SECONDS = 240.
_STEPS, _SEED = 4, 5
_INSTRUCTIONS = [
    'Collect good objects, avoid bad objects',
    # More words than are heard.
    ' '.join(f'word{i}' for i in range(20)) + '\tgo', '']
_SMALL_IMAGES = dict(
    level_name='synthetic:step_ms=0,episode_steps=20', height=24, width=24)

# Feeds what is in a file to exports, and plays a game with the last.
_PROGRAM = '''
import runpy
import sys

sys.modules['scalable_agent'] = None  # So that importing it fails.

import numpy as np
import tensorflow as tf

directory, player, *names = sys.argv[1:]
for name in names:
  fed = np.load(f'{directory}/{name}.npz')
  signatures = tf.saved_model.load(f'{directory}/{name}/export').signatures
  _, num_environments = fed['reward'].shape
  state = signatures['initial_state'](
      batch_size=tf.constant(num_environments), seed=tf.constant(5))
  outputs = []
  for t in range(len(fed['reward'])):
    inputs = {key: tf.constant(fed[key][t]) for key in fed}
    output = signatures['step'](**inputs, **state)
    state = {key: output[key] for key in state}
    outputs.append(output)
  np.savez(f'{directory}/{name}.out.npz', **{
      key: np.stack([output[key] for output in outputs]) for key in output})
returns = runpy.run_path(player)['play'](f'{directory}/pong/export', 1, 3)
print(*returns)
'''


def _export(logdir, **settings):
  """Exports what `trained_runs.make` has left; returns the directory."""
  return export.export(run_config.resolve(
      dict(settings, logdir=str(logdir), mode='export')))


def _feed(facts, num_environments, has_instruction):
  """Random inputs of the signature `step`, arrays [T, B, ...]."""
  rng = np.random.default_rng(num_environments)
  shape = _STEPS, num_environments
  spec = facts.observation_spec[0]
  fed = dict(
      frame=rng.integers(256, size=shape + spec.shape).astype(spec.dtype),
      reward=rng.normal(size=shape).astype(np.float32),
      done=rng.random(shape) < .4)
  if has_instruction:
    fed['instruction'] = np.array(
        [_INSTRUCTIONS[:num_environments]] * _STEPS, bytes)
  return fed


def _expect(agent, weights, fed):
  """What the agent makes of it, step by step: lists of outputs and states."""
  _, size = fed['reward'].shape
  last_action, state = np.zeros([size], np.int32), agent.initial_state(size)
  outputs, states = [], []
  for t in range(_STEPS):
    words = ()
    if 'instruction' in fed:
      words = (np.stack([dmlab.hash_words(text.decode())
                         for text in fed['instruction'][t]]),)
    output, state = agent.step(
        weights, np.array([_SEED, t], np.int32), last_action,
        environments.StepOutput(fed['reward'][t], (), fed['done'][t],
                                (fed['frame'][t], *words)), state)
    last_action = output.action
    outputs.append(output)
    states.append(state)
  return outputs, states


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """A dict of name to `(facts, agent)` of exported runs, and their folder."""
  folder = tmp_path_factory.mktemp('exports')
  flag, path, code = your_own.example('Your own network')
  with pytest.MonkeyPatch.context() as patched:
    users = tmp_path_factory.mktemp('users')
    (users / path).parent.mkdir()
    (users / path).write_text(code)
    patched.syspath_prepend(users)
    importlib.invalidate_caches()
    found = {}
    for name, settings in dict(
        users_torso=dict(_SMALL_IMAGES, network=flag.partition('=')[2],
                         use_lstm=True),
        language=dict(level_name='rooms_watermaze', network='shallow'),
        pong=dict(level_name='pong')).items():
      found[name] = trained_runs.make(folder / name, **settings)
      assert _export(folder / name) == str(folder / name / 'export')
    sys.modules.pop('my_project', None)
    sys.modules.pop('my_project.torso', None)
  return folder, found


@pytest.fixture(scope='module')
def played(runs):
  """What the program has printed; `<name>.out.npz` is what it has computed."""
  folder, found = runs
  for i, (name, (facts, _)) in enumerate(found.items()):
    np.savez(folder / f'{name}.npz', **_feed(facts, i + 2, name == 'language'))
  result = subprocess.run(
      [sys.executable, '-c', _PROGRAM, folder,
       _ROOT / 'launch' / 'play_export.py', *found],
      cwd=folder, text=True, capture_output=True, timeout=_TIMEOUT_SECONDS)
  assert result.returncode == 0, result.stderr[-4000:]
  return result.stdout


@pytest.mark.usefixtures('played')
@pytest.mark.parametrize('name', ['users_torso', 'language', 'pong'])
def test_another_process_computes_the_same(runs, name):
  """Without this package: logits, values, states, and the actions drawn."""
  folder, found = runs
  _, agent = found[name]
  config = config_lib.resolve(dict(
      level_name='pong', logdir=str(folder / name), mode='export'))
  weights = trained.checkpoint.restore_weights(
      trained.chosen_checkpoint.find(config), agent).weights
  outputs, states = _expect(agent, weights, np.load(folder / f'{name}.npz'))
  actual = np.load(folder / f'{name}.out.npz')
  assert ('core_c' in actual) == (name != 'pong')
  for t, (output, state) in enumerate(zip(outputs, states)):
    for key in 'policy_logits', 'baseline':
      np.testing.assert_allclose(
          actual[key][t], getattr(output, key), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(actual['action'][t], output.action)
    np.testing.assert_array_equal(actual['last_action'][t], output.action)
    np.testing.assert_array_equal(actual['seed'][t], [_SEED, t + 1])
    if state:
      for key, value in state._asdict().items():
        np.testing.assert_allclose(
            actual[f'core_{key}'][t], value, rtol=0, atol=1e-5)


def test_instructions_are_heard(runs, played):
  """Else the test above would say nothing of them."""
  del played
  folder, _ = runs
  logits = np.load(folder / 'language.out.npz')['policy_logits']
  assert np.ptp(logits, axis=1).max() > 1e-4


def test_a_process_without_the_package_plays_a_game(played):
  """A whole one of Pong: somebody has got 21 points."""
  returns = [float(word) for word in played.split()]
  assert len(returns) == 1
  assert all(-21 <= value <= 21 and value.is_integer() for value in returns)


def _metadata(directory):
  return json.loads((directory / 'export' / 'metadata.json').read_text())


def test_metadata_says_how_to_play(runs):
  folder, _ = runs
  pong = _metadata(folder / 'pong')
  assert pong.items() >= dict(
      level_name='pong', suite='atari', num_action_repeats=4,
      full_action_set=False, frame=dict(shape=[84, 84, 4], dtype='uint8'),
      has_instruction=False, actions=[0, 1, 2, 3, 4, 5],
      action_meanings=['NOOP', 'FIRE', 'RIGHT', 'LEFT', 'RIGHTFIRE',
                       'LEFTFIRE'],
      frames=0, checkpoint='ckpt-0').items()
  language = _metadata(folder / 'language')
  assert language['has_instruction'] and language['frame']['shape'] == [72, 96,
                                                                        3]
  assert dict(zip(language['action_meanings'], language['actions']))[
      'LOOK_LEFT'] == [-20, 0, 0, 0, 0, 0, 0]
  synthetic = _metadata(folder / 'users_torso')
  assert synthetic['action_meanings'] == list('012345678')


# -- Through the program ------------------------------------------------------


@pytest.fixture
def logdir(tmp_path):
  """The log directory of a tiny run."""
  trained_runs.make(tmp_path / 'run', level_name='synthetic:size=3')
  return tmp_path / 'run'


def test_the_program_exports_to_a_directory(logdir, tmp_path, run_main):
  """And again to the same; with nothing else in the run changed."""
  before = _contents(logdir)
  target = tmp_path / 'somewhere' / 'else'
  for _ in range(2):
    assert run_main('--mode=export', f'--logdir={logdir}',
                    f'--export_dir={target}').code == 0
    assert {'saved_model.pb', 'metadata.json'} < set(os.listdir(target))
    assert os.listdir(tmp_path / 'somewhere') == ['else']
  assert _contents(logdir) == before


@pytest.mark.parametrize('error', [
    signals.Interrupted(), OSError(errno.EIO, 'Input/output error')])
def test_an_export_that_is_cut_short_keeps_the_one_before(
    logdir, tmp_path, monkeypatch, error):
  _export(logdir)
  before = _contents(logdir / 'export')
  replace = os.replace

  def fail(source, target):
    if os.path.basename(source) == 'new':
      raise error
    replace(source, target)

  monkeypatch.setattr(os, 'replace', fail)
  with pytest.raises((signals.Interrupted, config_lib.ConfigError)):
    _export(logdir)
  assert _contents(logdir / 'export') == before


def test_an_export_removes_nothing_but_an_export(logdir, tmp_path, run_main):
  target, beside = tmp_path / 'mine', tmp_path / 'mine.tmp' / 'notes'
  beside.parent.mkdir()
  beside.touch()
  arguments = '--mode=export', f'--logdir={logdir}', f'--export_dir={target}'
  assert run_main(*arguments).code == 0
  (target / 'my_results').touch()
  assert 'something else than an export' in _error_of(run_main(*arguments))
  assert beside.exists() and (target / 'my_results').exists()


@pytest.mark.parametrize('arguments, expected', [
    (['--checkpoint=best'], ['--checkpoint=best', 'has no best checkpoint']),
    (['--checkpoint=/no/ckpt-1'], ['--checkpoint=/no/ckpt-1', 'no file']),
    (['--use_lstm'], ['holds a run with use_lstm=False']),
    (['--export_dir={}'], ['--export_dir=', 'something else than an export']),
    (['--export_dir=/proc/export'], ['--export_dir=/proc/export',
                                     'cannot be written']),
])
def test_what_cannot_be_exported_gets_one_line(
    logdir, run_main, arguments, expected):
  before = _contents(logdir)
  error = _error_of(run_main(
      '--mode=export', f'--logdir={logdir}',
      *(argument.format(logdir) for argument in arguments)))
  for part in expected:
    assert part in error
  assert _contents(logdir) == before


def test_a_directory_that_cannot_be_read_gets_one_line(
    logdir, tmp_path, run_main, monkeypatch):
  """As another user's, whom the tests may be allowed to read."""
  listdir, private = os.listdir, tmp_path / 'private'
  private.mkdir()

  def refuse(path):
    if path == str(private):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return listdir(path)

  monkeypatch.setattr(os, 'listdir', refuse)
  error = _error_of(run_main(
      '--mode=export', f'--logdir={logdir}', f'--export_dir={private}'))
  assert error == (f'Error: --export_dir={private} cannot work: it cannot be '
                   'read: Permission denied.')


def test_nothing_to_export_gets_one_line(tmp_path, run_main):
  error = _error_of(run_main('--mode=export', '--level_name=pong',
                             f'--logdir={tmp_path}'))
  assert f'--logdir={tmp_path} has no checkpoint' in error
