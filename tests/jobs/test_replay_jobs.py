"""Learners that share a replay job, as their users start them."""

import signal
import socket
import time

import pytest

from tests import ports
from tests import test_experiment
from tests.test_experiment import Preloaded
from tests.test_experiment import Program
from tests.test_experiment import run_main  # pylint: disable=unused-import

_STOP_SECONDS = 10.
# Takes as long on every machine, so that there is time for what happens to it.
_LEVEL = '--level_name=synthetic:step_ms=5,size=4'
_LEARNER = ('--num_actors=4', '--batch_size=4', '--unroll_length=5',
            '--replay_proportion=0.5', '--log_interval_secs=0.2',
            '--intra_op_threads=1', '--environment_threads=1',
            '--total_environment_frames=1000000000')


class _Jobs:
  """Starts jobs that share replay, and ends them with the test."""

  def __init__(self, directory):
    self._directory = directory
    token = directory / 'token'
    token.write_text('correct-horse-battery')
    token.chmod(0o600)
    self._flags = (_LEVEL, f'--replay_host=localhost:{ports.free_port()}',
                   f'--auth_token_file={token}')
    self._programs = []

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    for program in self._programs:
      program.__exit__()

  def learner(self, name, *flags):
    return self._start(Preloaded, name, *_LEARNER, *flags)

  def job(self, *flags):
    # What it loads is asked for.
    return self._start(
        Program, 'replay', '--job_name=replay', '--unroll_length=5',
        '--replay_capacity=40', '--log_interval_secs=0.2', *flags)

  def _start(self, program_class, name, *flags):
    program = program_class(self._directory / name, *self._flags, *flags)
    self._programs.append(program)
    return program


def _says(program, text, count=1):
  program.wait_for(lambda: program.output().count(text) >= count, text)


def _newest(program):
  """The last line of a learner's metrics."""
  return (test_experiment._metrics(program.logdir) or [{}])[-1]


def _goes_on(program, min_unrolls=0):
  """Waits until a learner has made more updates, drawing from others too."""
  before = _newest(program).get('frames', 0)
  program.wait_for(
      lambda: _newest(program).get('frames', 0) > before + 400 and
      _newest(program)['replay_unrolls'] >= min_unrolls, 'goes on')


def _one_error(program):
  assert program.wait() == 1
  assert 'Traceback' not in program.output()
  last = program.output().splitlines()[-1]
  assert last.startswith('Error: ')
  return last


def test_learners_share_a_replay_job_and_outlive_it_and_each_other(tmp_path):
  with _Jobs(tmp_path) as jobs:
    # Learners may come first. They need not be alike but in what an unroll is.
    a = jobs.learner('a', '--entropy_cost=0.1')
    b = jobs.learner('b', '--baseline_cost=0.2', '--discounting=0.5')
    stranger = jobs.learner('stranger', '--unroll_length=7')
    _says(a, 'The replay job at localhost:')
    _says(a, 'has been out of reach')
    assert _newest(a) == {}
    job = jobs.job()
    for learner in a, b:
      _goes_on(learner, min_unrolls=40)
    # It keeps no weights, and needs nothing that does.
    with open(f'/proc/{job.pid}/maps') as f:
      assert 'tensorflow' not in f.read()
    assert 'Replay will take ' in job.output()
    _says(job, '40 of 40 unrolls')
    assert '2 learners; ' in job.output()
    assert ('--unroll_length is 5 at the replay job, 7 at the learner' in
            _one_error(stranger))

    # Both draw from both, about as much of each: their speed is the same.
    before = {learner: len(test_experiment._metrics(learner.logdir))
              for learner in (a, b)}
    for learner in a, b:
      _goes_on(learner)
      shares = [m['replay_others'] for m in test_experiment._metrics(
          learner.logdir)[before[learner]:]]
      assert .3 < sum(shares) / len(shares) < .7
      assert _newest(learner)['replay_mb'] > 0
      assert _newest(learner)['replay_age_mean'] < 40
    assert abs(_newest(a)['frames'] - _newest(b)['frames']) < 2000

    # Killed and started again, it is empty, and the learners come back.
    job.signal(signal.SIGKILL)
    job.wait()
    for learner in a, b:
      _says(learner, 'Lost the replay job')
    job = jobs.job()
    for learner in a, b:
      _says(learner, 'Connected to the replay job', 2)
      assert 'which has been restarted' in learner.output()
      _goes_on(learner)

    # A learner that is killed holds up nobody, and comes back as itself.
    b.signal(signal.SIGKILL)
    b.wait()
    _goes_on(a)
    _says(job, 'gone or inserts nothing')
    # One that sleeps does, until it wakes.
    b = jobs.learner('b', '--baseline_cost=0.2', '--discounting=0.5')
    _says(b, ' frames/s')  # Its metrics of before are cut by now.
    _goes_on(b)
    b.signal(signal.SIGSTOP)
    still = _stands_still(a)
    b.signal(signal.SIGCONT)
    assert still
    _goes_on(a)

    # The job first, while both are connected.
    for program in job, a, b:
      program.signal(signal.SIGTERM)
      assert program.wait(_STOP_SECONDS) == 0, program.output()[-4000:]
      assert 'Traceback' not in program.output()
      assert program.processes() == []


def _stands_still(learner):
  """Waits until a learner has logged nothing new for a while."""
  for _ in range(60):
    before = _newest(learner)['frames']
    time.sleep(1.5)
    if _newest(learner)['frames'] == before:
      return True
  return False


def test_learners_with_an_lstm_replay_episodes_of_each_other(tmp_path):
  flags = ('--level_name=gym:scalable_agent.environments.t_maze:TMaze-v0',
           '--replay_state=recomputed')
  with _Jobs(tmp_path) as jobs:
    # An episode of the T-maze is in many unrolls.
    job = jobs.job('--replay_capacity=400', *flags)
    learners = [jobs.learner(name, '--use_lstm', *flags) for name in 'ab']
    for learner in learners:
      learner.wait_for(lambda learner=learner: any(
          metrics['replayed_share'] > 0 and metrics['replay_others'] > 0
          for metrics in test_experiment._metrics(learner.logdir)), 'replays')
    for program in job, *learners:
      program.signal(signal.SIGTERM)
      assert program.wait(_STOP_SECONDS) == 0, program.output()[-4000:]
      assert 'Traceback' not in program.output()


@pytest.mark.parametrize('flags, what', [
    (('--job_name=replay', '--replay_host='), '--replay_host= cannot work'),
    (('--job_name=replay', '--replay_host=localhost'),
     "--replay_host: 'localhost' is no address"),
    (('--job_name=replay', '--replay_host=example.org:80'),
     'the replay job would listen on 0.0.0.0:80 for anybody'),
    (('--job_name=replay', '--task=1'), '--task=1 cannot work'),
    (('--job_name=replay', '--replay_capacity=1000000000000'),
     '--replay_capacity=1000000000000 cannot work: its unrolls'),
    (('--job_name=replay', '--agent=reactor', '--v_min=0', '--v_max=9'),
     'a setting of --agent=impala'),
    (('--job_name=replay', '--auth_token_file=/nonexistent'), 'cannot be read'),
    ((), '--replay_proportion=0.0 cannot work: nothing would be drawn'),
    (('--replay_proportion=0.5', '--use_lstm'), 'set it to recomputed'),
    (('--replay_proportion=0.5', '--task=0', '--learner_hosts=a:1,b:2',
      '--insecure_network'), 'several learners of one agent'),
    (('--replay_proportion=0.5', '--replay_host=x'), "'x' is no address")])
def test_bad_settings_are_refused_in_a_line(flags, what, run_main, tmp_path):
  error = test_experiment._error_of(run_main(
      f'--logdir={tmp_path}/log', '--level_name=gym:CartPole-v1',
      '--replay_host=localhost:9000', *flags))
  assert what in error


def test_a_learner_does_not_wait_for_ever(run_main, tmp_path, caplog):
  result = run_main(
      f'--logdir={tmp_path}/log', *_LEARNER, _LEVEL, '--batch_timeout_secs=4',
      f'--replay_host=localhost:{ports.free_port()}')
  error = test_experiment._error_of(result)
  assert '(--batch_timeout_secs): it waits for the replay job at' in error
  assert ', which is out of reach, for ' in error
  assert caplog.text.count('has been out of reach') == 1


def test_a_port_in_use_is_refused_in_a_line(run_main, tmp_path):
  with socket.create_server(('127.0.0.1', 0)) as s:
    port = s.getsockname()[1]
    error = test_experiment._error_of(run_main(
        f'--logdir={tmp_path}/log', '--level_name=gym:CartPole-v1',
        '--job_name=replay', f'--replay_host=127.0.0.1:{port}'))
  assert f'--replay_host=127.0.0.1:{port}: The replay job cannot' in error
