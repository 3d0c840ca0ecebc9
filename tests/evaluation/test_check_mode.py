"""--mode=check: what it says of levels that can and cannot be played."""

import os
import pathlib
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent.config import flags as config_flags
from scalable_agent.evaluation import check_mode
from scalable_agent.process import signals
from scalable_agent.training import run_config

pytestmark = pytest.mark.usefixtures('bounded')

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FAKE = str(_ROOT / 'tests/environments/fake_deepmind_lab')

# What a user's own environments may look like.
_OWN = '''
import gymnasium
import numpy as np

class Broken(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(0., 1., (3,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)

  def reset(self, seed=None, options=None):
    self._steps = 0
    return np.zeros(3, np.float32), {}

  def step(self, action):
    self._steps += 1
    if self._steps == 9:
      return np.zeros(4, np.float32), 0., False, False, {}
    return np.zeros(3, np.float32), 0., False, False, {}

gymnasium.register('Broken-v0', Broken)
'''


def _config(**values):
  with flagsaver.flagsaver():
    flags.FLAGS(['experiment', '--mode=check'] + [
        f'--{name}={value}' for name, value in values.items()])
    return run_config.resolve(config_flags.given())


def _run(*arguments, folder=_ROOT):
  """Runs the binary; returns its exit code, lines of output, and the rest."""
  result = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.experiment', '--mode=check',
       *arguments],
      capture_output=True, text=True, timeout=300, cwd=folder,
      env=dict(os.environ, PYTHONPATH=os.pathsep.join(
          [str(_ROOT), str(folder)])))
  return result.returncode, result.stdout.splitlines(), result.stderr


@pytest.fixture
def fake(monkeypatch):
  """Has this process, and those that it starts, import the fake engine."""
  monkeypatch.syspath_prepend(_FAKE)
  monkeypatch.setenv(
      'PYTHONPATH', os.pathsep.join([_FAKE, str(_ROOT), *sys.path]))
  yield
  sys.modules.pop('deepmind_lab', None)


def _checked(capsys, **values):
  """Checks in this process; returns what it said, and rows by level."""
  result = check_mode.check(_config(**values), signals.Stop())
  rows = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert rows[0][:2] == ['level', 'plays']
  return result, {row[0]: row[1:] for row in rows[1:]}


def test_a_level_that_plays(tmp_path):
  status, lines, errors = _run(
      '--level_name=gym:CartPole-v1', f'--logdir={tmp_path / "none"}')
  assert status == 0, errors
  assert len(lines) == 2
  level, plays, size, dtype, words, rate, first, second, memory = (
      lines[1].split())
  assert (level, plays, size, dtype, words) == (
      'gym:CartPole-v1', 'yes', '4', 'float32', '–')
  assert float(rate.replace(',', '')) > 1
  assert float(first) > 0 and float(second) > 0
  assert 1 < float(memory.replace(',', '')) < 1000
  assert not (tmp_path / 'none').exists()


def test_a_level_that_breaks(tmp_path):
  (tmp_path / 'mine.py').write_text(_OWN)
  status, lines, errors = _run('--level_name=gym:mine:Broken-v0',
                               folder=tmp_path)
  assert status == 1
  assert 'Traceback' not in errors
  assert lines[1].split()[:2] == ['gym:mine:Broken-v0', 'no']
  assert lines[2].startswith('gym:mine:Broken-v0: environment 0')
  assert 'step 9' in lines[2] and 'float32 (4,)' in lines[2]


def test_a_level_that_nobody_knows(tmp_path):
  status, lines, _ = _run('--level_name=gym:NoSuch-v0')
  assert status == 1
  assert lines[1].split()[:2] == ['gym:NoSuch-v0', 'no']
  assert 'NoSuch' in lines[2]


def test_a_run_in_the_log_directory_does_not_matter(tmp_path):
  (tmp_path / 'config.json').write_text('broken')
  config = _config(level_name='pong', logdir=tmp_path)
  assert config.level_name == 'pong'


@pytest.mark.usefixtures('fake')
def test_levels_and_their_test_twins(capsys):
  plays, rows = _checked(
      capsys, level_name='rooms_collect_good_objects_train')
  assert plays
  assert list(rows) == ['rooms_collect_good_objects_train',
                        'rooms_collect_good_objects_test']
  assert all(row[:3] == ['yes', '72x96x3', 'uint8'] for row in rows.values())


@pytest.mark.usefixtures('fake')
def test_instructions_are_counted(capsys):
  _, rows = _checked(capsys, level_name='language_execute_random_task')
  assert int(rows['language_execute_random_task'][3]) > 0


@pytest.mark.usefixtures('fake')
def test_images_that_are_missing_and_their_stand_in(capsys, caplog):
  level = 'psychlab_continuous_recognition'
  plays, rows = _checked(capsys, level_name=level)
  assert not plays and rows[level][0] == 'no'
  assert '--dataset_path is not set' in ' '.join(rows[f'{level}:'])
  caplog.clear()
  plays, rows = _checked(capsys, level_name=level, dataset_path='dummy')
  assert plays and rows[level][0] == 'yes'
  assert 'Scores there mean nothing' in caplog.text


@pytest.mark.usefixtures('fake')
def test_a_suite_goes_on_after_what_cannot_be_played(monkeypatch):
  seen = []

  def check_level(config, level_name):
    seen.append((level_name, config.mode, config.level_name))
    return check_mode.LevelCheck(
        level_name, 'broken' if len(seen) == 2 else '')

  monkeypatch.setattr(check_mode, 'check_level', check_level)
  assert not check_mode.check(_config(level_name='dmlab30'), signals.Stop())
  assert len(seen) == 32  # Two levels have test twins.
  assert seen[:2] == [
      ('rooms_collect_good_objects_train', 'train',
       'rooms_collect_good_objects_train'),
      ('rooms_collect_good_objects_test', 'test',
       'rooms_collect_good_objects_train')]


@pytest.mark.parametrize('interrupts', [True, False])
def test_it_stops_within_a_level_or_after_it(interrupts, monkeypatch, capsys):
  """And says what it has found before."""
  stop = signals.Stop()

  def check_level(config, level_name):
    if level_name == 'amidar':
      stop.set()
      if interrupts:
        stop.interrupt()
    return check_mode.LevelCheck(level_name)

  monkeypatch.setattr(check_mode, 'check_level', check_level)
  assert check_mode.check(_config(level_name='atari57'), stop)
  _, *rows = capsys.readouterr().out.splitlines()
  assert [row.split()[0] for row in rows] == (
      ['alien'] if interrupts else ['alien', 'amidar'])
