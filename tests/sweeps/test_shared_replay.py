"""The replay job of a sweep: started, started again, ended."""

import os
import signal
import sys
import time
import types

import psutil
import pytest

from scalable_agent import config as config_lib
from scalable_agent.files import locks
from scalable_agent.sweeps import grid
from scalable_agent.sweeps import run_processes
from scalable_agent.sweeps import shared_replay
from scalable_agent.sweeps import trials
from scalable_agent.training import run_config

_JOB = '''
import sys, time
print('begins', *sys.argv[1:], flush=True)
time.sleep(60)
'''


def _config(**values):
  return config_lib.resolve(dict(dict(
      level_name='gym:CartPole-v1', replay_host='localhost:1',
      replay_proportion=.5), **values))


@pytest.fixture(name='job')
def _job(tmp_path, monkeypatch):
  """A `SharedReplay` whose process is a program of the test's."""
  def make(text=_JOB):
    (tmp_path / 'job.py').write_text(text)
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))
    monkeypatch.setattr(trials, 'EXPERIMENT', 'job')
    monkeypatch.setattr(run_processes, '_REST_SECONDS', .01)
    return shared_replay.SharedReplay(str(tmp_path), _config(), [], [])
  return make


def _run(logdir, frames=0, state='running'):
  """A run of 80 frames, of which a checkpoint has some."""
  logdir.mkdir()
  (logdir / f'ckpt-{frames}.index').touch()
  return types.SimpleNamespace(
      logdir=str(logdir), total_frames=80, state=state)


def _output(tmp_path):
  return (tmp_path / 'replay_job' / 'output.log').read_text()


def _check_until(job, condition):
  deadline = time.monotonic() + 60
  while not condition():
    assert time.monotonic() < deadline, 'not in time'
    job.check()
    time.sleep(.02)


def _processes():
  """The processes of the job; other tests may have left some of their own."""
  return [p for p in psutil.Process().children()
          if p.status() != psutil.STATUS_ZOMBIE and 'job' in p.cmdline()]


def test_it_runs_as_long_as_the_block(job, tmp_path):
  with job() as running:
    assert not (tmp_path / 'replay_job').exists()
    _check_until(running, lambda: (tmp_path / 'replay_job').exists() and
                 'begins' in _output(tmp_path))
    (process,) = _processes()
  assert not _processes()
  assert not process.is_running()
  arguments = _output(tmp_path).split()
  assert arguments[1:3] == ['--job_name=replay', '--replay_host=localhost:1']


def test_it_is_started_again_but_not_for_ever(job, tmp_path):
  with job() as running:
    for i in range(3):
      _check_until(running, lambda: os.path.exists(
          tmp_path / 'replay_job' / 'output.log') and
                   _output(tmp_path).count('begins') == i + 1)
      _processes()[0].send_signal(signal.SIGKILL)
    with pytest.raises(config_lib.ConfigError) as error:
      _check_until(running, lambda: False)
  assert str(error.value).startswith(
      'The replay job crashed 3 times, the last time killed by SIGKILL (see ')
  assert not _processes()


def test_crashes_of_a_job_that_has_worked_do_not_add_up(
    job, tmp_path, monkeypatch):
  """In two weeks it may die more often than at a start that cannot work."""
  monkeypatch.setattr(shared_replay, '_STEADY_SECONDS', .2)
  with job() as running:
    for i in range(4):
      _check_until(running, lambda: os.path.exists(
          tmp_path / 'replay_job' / 'output.log') and
                   _output(tmp_path).count('begins') == i + 1)
      time.sleep(.25)
      running.check()
      _processes()[0].send_signal(signal.SIGKILL)
    _check_until(running, lambda: _output(tmp_path).count('begins') == 5)


def test_what_it_said_last_is_told(job, tmp_path):
  with job('import sys; sys.exit("Error: no memory")') as running:
    with pytest.raises(config_lib.ConfigError, match=': Error: no memory'):
      _check_until(running, lambda: False)


def test_two_programs_do_not_keep_one_job(
    job, tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(shared_replay, '_PATIENCE_SECONDS', .5)
  (tmp_path / 'replay_job').mkdir()
  lock = locks.acquire(str(tmp_path / 'replay_job' / 'launcher.lock'))
  with job() as running:
    running.check()
    with pytest.raises(config_lib.ConfigError, match='is in use'):
      _check_until(running, lambda: False)
  assert caplog.messages == [
      f'Another program keeps the replay job in {tmp_path}/replay_job. It has '
      '0.5 s to end.']
  os.close(lock)


def test_a_job_that_is_about_to_end_is_waited_for(job, tmp_path):
  """That of a program that was killed, and started again at once."""
  (tmp_path / 'replay_job').mkdir()
  lock = locks.acquire(str(tmp_path / 'replay_job' / 'launcher.lock'))
  with job() as running:
    running.check()
    os.close(lock)
    _check_until(running, lambda: os.path.exists(
        tmp_path / 'replay_job' / 'output.log') and
                 'begins' in _output(tmp_path))


def test_each_other_program_has_time_of_its_own(job, monkeypatch):
  """Also one that comes between a crash of the job and its next start."""
  with job() as running:
    # Which of two programs gets a lock cannot be arranged from outside.
    run = types.SimpleNamespace(
        state='elsewhere', logdir='/a', poll=lambda: None, crashes=0,
        terminate=lambda: None, wait=lambda: None)
    running._run, running._started_time = run, time.monotonic()
    running.check()
    run.state = 'running'
    running.check()
    monkeypatch.setattr(shared_replay, '_PATIENCE_SECONDS', 0.)
    run.state = 'elsewhere'
    running.check()
    with pytest.raises(config_lib.ConfigError, match='is in use'):
      running.check()


def test_its_flags_are_those_of_the_runs(tmp_path):
  """As the job itself reads them."""
  config = _config(
      unroll_length=7, replay_capacity=99, use_lstm=True, seed=5,
      replay_state='recomputed', auth_token_file='/a b', insecure_network=True)
  job = shared_replay.SharedReplay(
      str(tmp_path), config, [_run(tmp_path / name) for name in 'abc'],
      ['--auth_token_file=/a b', '--insecure_network=True', '--batch_size=8',
       '--replay_proportion=0.5', '--memory_gb=1', '--logdir=/c'])
  command = job._run._prepare()
  assert command[:3] == [sys.executable, '-m', 'scalable_agent.experiment']
  given = dict(argument.removeprefix('--').split('=', 1)
               for argument in command[3:])
  assert given['logdir'] == str(tmp_path / 'replay_job')
  assert float(given['memory_gb']) != 1.
  values = {
      name: type(config_lib.SETTINGS[name].default)(
          value == 'True' if value in ('True', 'False') else value)
      for name, value in given.items()}
  found = run_config.resolve(values)
  assert found.is_replay_job and found.replay_agents == 3
  for name in (*config_lib.names(config_lib.REPLAY), 'replay_capacity', 'seed',
               'replay_host', 'auth_token_file', 'insecure_network'):
    assert getattr(found, name) == getattr(config, name), name


def test_only_runs_that_still_train_are_awaited(tmp_path):
  """By a job that is started again, or where evaluations alone are left."""
  runs = [_run(tmp_path / 'begun', 40),
          _run(tmp_path / 'waiting', state='waiting'),
          _run(tmp_path / 'evaluates', 80),
          _run(tmp_path / 'done', 88, 'done'),
          _run(tmp_path / 'failed', 40, 'failed')]
  job = shared_replay.SharedReplay(str(tmp_path), _config(), runs, [])
  assert job._run._prepare()[-1] == '--replay_agents=2'
  (tmp_path / 'begun' / 'ckpt-80.index').touch()
  assert job._run._prepare()[-1] == '--replay_agents=1'


@pytest.mark.parametrize('name, value', [
    ('unroll_length', 7), ('replay_capacity', 9),
    ('level_name', 'gym:Acrobot-v1')])
def test_runs_that_differ_cannot_share(name, value):
  with pytest.raises(config_lib.ConfigError) as error:
    shared_replay.check_alike(
        [_config(), _config(entropy_cost=1.), _config(**{name: value})])
  default = getattr(_config(), name)
  assert str(error.value).startswith(
      f'Shared replay cannot work: {name} is {default} in one run and {value}')


def _trials(*factors):
  samples = [dict(epsilon=.1, discounting=.9), dict(epsilon=.2, discounting=1.)]
  return grid.combine(factors, samples)


_RATES = [dict(learning_rate=.1), dict(learning_rate=.2, entropy_cost=.1)]
_THRESHOLDS = [dict(trust_region_threshold=0.),
               dict(trust_region_threshold=.03)]


def test_agents_of_other_hyperparameters_share():
  """Whether they are varied or drawn; what all have does not matter."""
  shared_replay.check_one_condition(
      _trials(_RATES, _THRESHOLDS[:1]))


@pytest.mark.parametrize('trials, message', [
    (_trials(_RATES, _THRESHOLDS),
     'Shared replay cannot work: the sweep compares '
     'trust_region_threshold=0.0 with trust_region_threshold=0.03, '),
    # Both have another name in a report.
    (_trials([dict(each, batch_size=8) for each in _RATES]),
     'Shared replay cannot work: the sweep compares learning_rate=0.1, '
     'batch_size=8 with ')])
def test_conditions_do_not_share(trials, message):
  with pytest.raises(config_lib.ConfigError) as error:
    shared_replay.check_one_condition(trials)
  assert str(error.value).startswith(message)
  assert 'Make one sweep for each, with another --seed and --logdir.' in str(
      error.value)


def test_a_port_is_chosen_unless_one_is_given():
  assert shared_replay.choose_host('a:1', '') == 'a:1'
  host, port = shared_replay.choose_host('', 'impala').split(':')
  assert host == 'localhost' and 1024 <= int(port) < 65536
