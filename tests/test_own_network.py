"""A user's own network and environment: the documented examples as programs.

They are in a package that only PYTHONPATH or the current folder leads to, and
in this process `sys.path`.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests import test_experiment
from tests import your_own
from tests.jobs import test_jobs
from tests.test_experiment import Preloaded
from tests.test_experiment import run_main  # pylint: disable=unused-import

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_LEVEL = ('--level_name=synthetic:step_ms=0,episode_steps=20', '--height=24',
          '--width=24')
_FLAGS = (*_LEVEL, '--num_actors=8', '--environment_threads=2',
          '--batch_size=4', '--log_interval_secs=0.2')
_FRAMES = 2000
# The example's linear layer for these frames. No network of the project has one
# of this shape: unpadded convolutions leave the shallow one 32 inputs.
_LINEAR_SHAPE = 3 * 3 * 32, 256


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Holds the user's package, and is where programs look for modules."""
  assert importlib.util.find_spec('my_project') is None
  folder = tmp_path_factory.mktemp('users')
  for heading in ('Your own network', 'Your own environment'):
    _, name, code = your_own.example(heading)
    path = folder / name
    assert path.parent.name == 'my_project'
    path.parent.mkdir(exist_ok=True)
    path.write_text(code)
  with pytest.MonkeyPatch.context() as monkeypatch:
    monkeypatch.setenv('PYTHONPATH', str(folder))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
  for name in [name for name in sys.modules
               if name.partition('.')[0] == 'my_project']:
    del sys.modules[name]


@pytest.fixture(scope='module')
def network(folder):
  flag, name, _ = your_own.example('Your own network')
  assert (folder / name).exists()
  assert flag == '--network=my_project.torso:Name'
  return flag


@pytest.fixture(scope='module')
def trained(tmp_path_factory, network):
  """The log directory of a finished run."""
  with Preloaded(tmp_path_factory.mktemp('trained') / 'run', *_FLAGS, network,
                 f'--total_environment_frames={_FRAMES}') as program:
    test_jobs._assert_ends_well(program)
  return program.logdir


@pytest.fixture
def logdir(trained, tmp_path):
  """A copy of it."""
  return shutil.copytree(trained, tmp_path / 'run')


def _linear(logdir):
  """The weights of the example's linear layer in the newest checkpoint."""
  # The optimizer's slots have this shape too, and other names.
  weights, = (value for name, value in
              test_experiment._checkpoint_floats(logdir).items()
              if name.startswith('params/') and value.shape == _LINEAR_SHAPE)
  return weights


def test_it_trains_and_resumes(logdir, network, run_main, caplog):
  assert test_experiment._frames(logdir)[-1] == _FRAMES
  assert f'--network={test_experiment._config(logdir)["network"]}' == network
  before = _linear(logdir)
  result = run_main(f'--logdir={logdir}', *_FLAGS, network,
                    f'--total_environment_frames={2 * _FRAMES}')
  assert result.code == 0, result
  assert f'Resuming from {logdir}/ckpt-{_FRAMES}\n' in caplog.text
  frames = test_experiment._frames(logdir)
  test_experiment._check_increasing(frames)
  assert frames[-1] == 2 * _FRAMES
  # The second half has trained the same torso.
  change = np.abs(_linear(logdir) - before)
  assert 0. < change.max() < np.abs(before).max()


def test_one_that_breaks_the_interface_gets_one_line(
    tmp_path, folder, run_main):
  (folder / 'my_project' / 'wide.py').write_text(
      'from my_project import torso\n\n'
      'class Name(torso.Name):\n'
      '  def init(self, initializer):\n'
      '    return super().init(initializer) + 1\n')
  result = run_main(f'--logdir={tmp_path / "run"}', *_FLAGS,
                    '--network=my_project.wide:Name')
  assert result.code == 1
  last = result.errors.splitlines()[-1]
  assert last.startswith('Error: --network=my_project.wide:Name: init returns ')
  assert 'Traceback' not in result.errors


def test_it_plays_in_test_mode(logdir, network, run_main):
  result = run_main(f'--logdir={logdir}', *_FLAGS, network, '--mode=test',
                    '--test_num_episodes=5')
  assert result.code == 0, result
  with open(logdir / 'test_scores.json') as f:
    scores = json.load(f)
  assert scores['frames'] == _FRAMES
  level, = scores['levels'].values()
  # The reward is 1 in an episode's last step.
  assert level['episode_returns'] == [1.] * 5


def test_learner_and_actor_job_train_it_to_the_end(
    tmp_path, network, run_main):
  with test_jobs.Jobs(tmp_path, *_LEVEL, network) as jobs:
    actor = jobs.actor(0)
    result = run_main(f'--logdir={jobs.logdir}', *jobs.learner_flags(),
                      f'--total_environment_frames={_FRAMES}')
    assert result.code == 0, result
    test_jobs._assert_ends_well(actor)
    assert 'Training is done' in actor.output()
    assert jobs.frames() == jobs.checkpoint() == _FRAMES
    assert _linear(jobs.logdir).any()


@pytest.mark.parametrize('mode', ['train', 'test'])
def test_another_network_is_refused(mode, logdir, network, run_main):
  before = test_experiment._contents(logdir)
  error = test_experiment._error_of(run_main(
      f'--logdir={logdir}', *_FLAGS, f'--mode={mode}', '--network=shallow'))
  assert f'--logdir={logdir} holds a run with {network[2:]}' in error
  assert 'network=shallow' in error
  assert test_experiment._contents(logdir) == before


@pytest.mark.usefixtures('folder')
def test_a_name_that_cannot_be_imported_is_refused(tmp_path, run_main):
  error = test_experiment._error_of(run_main(
      f'--logdir={tmp_path / "run"}', *_FLAGS,
      '--network=my_project.tosro:Name'))
  assert error.startswith('Error: --network=my_project.tosro:Name: ')
  assert "No module named 'my_project.tosro'" in error


def test_own_environment_from_the_current_folder(tmp_path, folder):
  level, _, _ = your_own.example('Your own environment')
  assert level == '--level_name=gym:my_project.corridor:Corridor-v0'
  logdir = tmp_path / 'run'
  completed = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.experiment', level,
       f'--logdir={logdir}', '--num_actors=4', '--environment_threads=2',
       '--batch_size=2', '--total_environment_frames=1200'],
      cwd=folder, env=dict(os.environ, PYTHONPATH=str(_ROOT)),
      stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=test_experiment._TIMEOUT_SECONDS)
  assert completed.returncode == 0, completed.stderr[-4000:]
  assert 'Traceback' not in completed.stderr
  assert test_experiment._frames(logdir)[-1] == 1200
  episodes = test_experiment._episodes(logdir)
  assert episodes
  for _, name, episode_return, num_frames in episodes:
    assert f'--level_name={name}' == level
    # Nine squares to the right; 100 steps are the most, and mostly too few.
    assert 9 <= int(num_frames) <= 100
    assert float(episode_return) in (0., 1.)
    assert int(num_frames) == 100 or float(episode_return) == 1.
