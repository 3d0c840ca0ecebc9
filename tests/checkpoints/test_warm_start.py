"""A run that starts with the weights and slots of another one's checkpoint."""

import glob
import logging as python_logging
import os
import shutil

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import checkpoint
from scalable_agent.checkpoints import checkpoint_files
from tests import learners
from tests import test_experiment
from tests.test_experiment import run_main  # pylint: disable=unused-import

pytestmark = pytest.mark.usefixtures('bounded')


def _config(warm_start):
  return config_lib.resolve(
      dict(level_name='pong', warm_start=warm_start)).to_json()


def _start(logdir, warm_start='', seed=1, agent=None):
  """A learner as a run starts it; returns it and what saves it."""
  os.makedirs(logdir, exist_ok=True)
  learner = learners.make_learner(
      agent or learners.SmallAgent(), loss_fn=learners.small_loss, seed=seed)
  checkpointer = checkpoint.Checkpointer(
      str(logdir), learner, _config(warm_start))
  checkpointer.restore()
  if warm_start:
    checkpointer.warm_start(warm_start)
  return learner, checkpointer


def _train(learner, checkpointer, seed, num_updates=1):
  for _ in range(num_updates):
    learner.step(learner.place(learners.make_batch(seed)))
  checkpointer.save()


def _newest(logdir):
  return checkpoint_files.find(str(logdir))[-1]


def _trained(learner):
  """Weights and slots, copies."""
  return [variable.numpy() for variable in learner.variables()[:-2]]


def _same(one, other):
  return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope='module', name='donor')
def _donor(tmp_path_factory):
  """A trained learner, and the path of its checkpoint."""
  logdir = tmp_path_factory.mktemp('donor')
  learner, checkpointer = _start(logdir, seed=7)
  _train(learner, checkpointer, 3, num_updates=3)
  return learner, _newest(logdir)


def test_weights_and_slots_are_the_donors_and_counters_are_not(donor, tmp_path):
  learner, path = donor
  mine, checkpointer = _start(tmp_path)
  _train(mine, checkpointer, 0)
  copied, _ = _start(tmp_path, path)
  assert _same(_trained(copied), _trained(learner))
  assert (copied.frames, copied.steps) == (mine.frames, mine.steps) == (80, 1)
  assert (learner.frames, learner.steps) == (240, 3)


def test_it_happens_once(donor, tmp_path):
  """However often the run is killed before it saves, and started after."""
  learner, path = donor
  mine, checkpointer = _start(tmp_path)
  _train(mine, checkpointer, 0)
  for _ in range(2):  # Killed between the copy and the next save.
    copied, checkpointer = _start(tmp_path, path)
    assert _same(_trained(copied), _trained(learner))
  _train(copied, checkpointer, 1)
  again, checkpointer = _start(tmp_path, path)
  assert _same(_trained(again), _trained(copied))
  assert (again.frames, again.steps) == (160, 2)
  # Another one is taken again.
  other, checkpointer = _start(tmp_path / 'other', seed=9)
  checkpointer.save()
  third, _ = _start(tmp_path, _newest(tmp_path / 'other'))
  assert _same(_trained(third), _trained(other))


def test_it_happens_once_from_whichever_directory(donor, tmp_path, monkeypatch):
  _, path = donor
  monkeypatch.chdir(os.path.dirname(path))
  mine, checkpointer = _start(tmp_path, os.path.basename(path))
  _train(mine, checkpointer, 0)
  monkeypatch.chdir(tmp_path)
  again, _ = _start(tmp_path, path)
  assert _same(_trained(again), _trained(mine))


def test_a_run_that_was_saved_can_do_without_the_donor(tmp_path):
  """Even before its first update."""
  donor, checkpointer = _start(tmp_path / 'donor', seed=7)
  checkpointer.save()
  path = _newest(tmp_path / 'donor')
  _, checkpointer = _start(tmp_path / 'run', path)
  checkpointer.save()
  shutil.rmtree(tmp_path / 'donor')
  again, _ = _start(tmp_path / 'run', path)
  assert again.steps == 0 and _same(_trained(again), _trained(donor))


class _Changed(learners.SmallAgent):
  """An agent of one other weight."""

  def __init__(self, name, size):
    self._weight = {name: np.zeros([size], np.float32)}

  def initial_params(self, seed):
    return {**super().initial_params(seed), **self._weight}


@pytest.mark.parametrize('agent, expected', [
    (_Changed('layer/b', 256), 'layer/b is [100] there and [256] here'),
    (_Changed('also', 7), 'also is missing there and [7] here')])
def test_another_network_is_refused_in_a_line(donor, tmp_path, agent, expected):
  with pytest.raises(config_lib.ConfigError) as caught:
    _start(tmp_path, donor[1], agent=agent)
  message = str(caught.value)
  assert message.startswith(f'--warm_start={donor[1]} cannot work: the weight ')
  assert expected in message and '\n' not in message


def test_names_may_have_dots(tmp_path):
  """As those of users' networks."""
  agent = _Changed('layer.0/.S..b', 7)
  donor, checkpointer = _start(tmp_path / 'donor', seed=7, agent=agent)
  checkpointer.save()
  copied, _ = _start(tmp_path / 'run', _newest(tmp_path / 'donor'), agent=agent)
  assert _same(_trained(copied), _trained(donor))


def _start_reactor(logdir, warm_start='', **settings):
  learner = learners.make_reactor_learner(learners.make_reactor_agent())
  config = config_lib.resolve(dict(
      settings, level_name='pong', agent='reactor', warm_start=warm_start))
  checkpointer = checkpoint.Checkpointer(
      str(logdir), learner, config.to_json())
  if warm_start:
    checkpointer.warm_start(warm_start)
  return learner, checkpointer


@pytest.mark.parametrize('name, there, here', [
    ('v_min', -2., -3.), ('v_max', 30., 10.), ('num_atoms', 51, 21),
    ('policy_uniform', .1, .01)])
def test_weights_that_would_mean_something_else_are_refused_in_a_line(
    tmp_path, name, there, here):
  """Their names and shapes are the same."""
  _, checkpointer = _start_reactor(tmp_path, **{name: there})
  checkpointer.save()
  path = _newest(tmp_path)
  with pytest.raises(config_lib.ConfigError) as caught:
    _start_reactor(tmp_path / 'run', path, **{name: here})
  assert str(caught.value) == (
      f'--warm_start={path} cannot work: it was trained with --{name}={there}, '
      f'and with --{name}={here} its weights would mean something else. Give '
      f'--{name}={there}, or another checkpoint.')


def test_settings_that_weights_do_not_depend_on_may_differ(tmp_path):
  donor, checkpointer = _start_reactor(
      tmp_path, v_max=5., learning_rate=.1, frame_stack=4)
  for variable in donor.variables()[:-2]:
    variable.assign(variable + 1)  # All begin with the same weights.
  checkpointer.save()
  copied, _ = _start_reactor(tmp_path / 'run', _newest(tmp_path), v_max=5.)
  assert _same(_trained(copied), _trained(donor))


def test_what_is_no_checkpoint_is_refused_in_a_line(donor, tmp_path):
  for path in (str(tmp_path), donor[1] + '.index', 'no/such/ckpt-5'):
    with pytest.raises(config_lib.ConfigError) as caught:
      _start(tmp_path, path)
    assert f'--warm_start={path} cannot work: there is no ' in str(caught.value)


def test_a_damaged_checkpoint_is_refused_in_a_line(donor, tmp_path):
  for path in glob.glob(donor[1] + '.*'):
    with open(path, 'rb') as source:
      content = source.read()
    (tmp_path / os.path.basename(path)).write_bytes(
        content if path.endswith('.index') else content[:-2000])
  with pytest.raises(config_lib.ConfigError) as caught:
    _start(tmp_path / 'run', str(tmp_path / os.path.basename(donor[1])))
  assert 'cannot work: it cannot be read: ' in str(caught.value)
  assert '\n' not in str(caught.value)


def test_a_run_starts_warm_and_resumes_its_own(tmp_path, run_main, caplog):
  caplog.set_level(python_logging.INFO)
  flags = (*test_experiment._CARTPOLE, '--total_environment_frames=160')
  assert run_main(f'--logdir={tmp_path / "donor"}', *flags).code == 0
  path = tmp_path / 'donor' / 'ckpt-160'
  flags = (f'--logdir={tmp_path / "run"}', f'--warm_start={path}')
  assert run_main(*flags, *test_experiment._CARTPOLE,
                  '--total_environment_frames=80').code == 0
  assert f'Weights and slots are those of {path}' in caplog.text
  assert test_experiment._checkpoint_frames(tmp_path / 'run') == [0, 80]
  first = test_experiment._metrics(tmp_path / 'run')[0]
  assert (first['frames'], first['learner_steps']) == (80, 1)
  caplog.clear()
  # The same path, however it is written.
  same = f'{tmp_path}/run/../donor/ckpt-160'
  assert run_main(*flags, *test_experiment._CARTPOLE, f'--warm_start={same}',
                  '--total_environment_frames=160').code == 0
  assert 'Weights and slots' not in caplog.text
  assert f'Resuming from {tmp_path / "run"}/ckpt-80' in caplog.text
