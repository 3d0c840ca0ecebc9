"""Learner and actor jobs as their users start them: processes and signals."""

import os
import signal
import socket
import threading
import time

import psutil
import pytest

from scalable_agent import dmlab30
from scalable_agent import environments
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import seeds
from scalable_agent.environments.engines import dmlab
from scalable_agent.jobs import actor_job
from scalable_agent.training import loop
from tests import ports
from tests import test_experiment
from tests.test_experiment import Preloaded
from tests.test_experiment import Program
from tests.test_experiment import run_main  # pylint: disable=unused-import

_STOP_SECONDS = 10.
# Takes as long on every machine, so that there is time for what happens to it.
_SLOW_LEVEL = '--level_name=synthetic:step_ms=10,size=4'


class Jobs:
  """Starts jobs that belong together, and ends them with the test."""

  def __init__(self, directory, *flags, actor=Preloaded):
    self._actor = actor
    self._directory = directory
    self._flags = (
        f'--learner_hosts=localhost:{ports.free_port()}', '--envs_per_actor=2',
        *flags)
    self._programs = []
    self.logdir = directory / 'learner'

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    for program in self._programs:
      program.__exit__()

  def _start(self, program, name, *flags):
    started = program(self._directory / name, *flags)
    self._programs.append(started)
    return started

  def actor(self, task):
    return self._start(self._actor, f'actor{task}', *self.actor_flags(task))

  def learner(self, *flags):
    return self._start(Preloaded, 'learner', *self.learner_flags(), *flags)

  def actor_flags(self, task):
    """Its flags without --logdir, for `run_main` too."""
    return *self._flags, '--job_name=actor', f'--task={task}'

  def learner_flags(self):
    """Its flags without --logdir, for `run_main` too."""
    return (*self._flags, '--job_name=learner', '--task=0', '--batch_size=2',
            '--log_interval_secs=0.2', '--save_checkpoint_secs=0.5')

  def frames(self):
    return max(test_experiment._frames(self.logdir), default=0)

  def checkpoint(self):
    """Frames of the newest one, which TensorFlow's list may lack yet."""
    return checkpoint_files.newest_frames(self.logdir)


def _says(program, text, count=1):
  program.wait_for(lambda: program.output().count(text) >= count, text)


def _assert_ends_well(*programs):
  for program in programs:
    assert program.wait() == 0, program.output()[-4000:]
    assert 'Traceback' not in program.output()
    assert program.processes() == []


def test_jobs_train_to_the_end_with_inference_at_the_learner(tmp_path):
  total = 8000
  with Jobs(tmp_path, '--level_name=gym:CartPole-v1',
            '--inference=learner', actor=Program) as jobs:
    # Actors may come first.
    actors = [jobs.actor(i) for i in range(3)]
    for actor in actors:
      _says(actor, 'out of reach')
      # Whose policy is elsewhere.
      with open(f'/proc/{actor.pid}/maps') as f:
        assert 'tensorflow' not in f.read()
    actors[2].signal(signal.SIGTERM)
    assert actors[2].wait(_STOP_SECONDS) == 0
    assert actors[2].processes() == []

    learner = jobs.learner(f'--total_environment_frames={total}')
    _says(learner, 'has joined')
    with open(f'/proc/{learner.pid}/maps') as f:
      assert 'tensorflow' in f.read()
    _assert_ends_well(learner, *actors[:2])
    assert learner.output().count('has joined') == 2
    for actor in actors[:2]:
      assert 'Training is done' in actor.output()
      assert not os.path.exists(actor.logdir)
    metrics = test_experiment._metrics(jobs.logdir)
    assert metrics[-1]['frames'] == total == jobs.checkpoint()
    assert metrics[-1]['actor_jobs'] == 2
    assert max(m['inference_batch_mean'] for m in metrics) > 1
    # Of no request there is no mean.
    latencies = [m['inference_latency_ms'] for m in metrics
                 if m['inference_latency_ms'] is not None]
    assert latencies and all(0. < value < 10_000. for value in latencies)
    assert max(m['policy_lag_max'] for m in metrics) < 20
    # Every finished episode, once: no more frames than were acted.
    rows = test_experiment._episodes(jobs.logdir)
    assert len(rows) > 50
    assert all(float(r[2]) == int(r[3]) >= 8 for r in rows)
    assert sum(int(r[3]) for r in rows) < total + 200 * 20


def test_jobs_outlive_each_other(tmp_path, run_main):
  endless = '--total_environment_frames=1000000000'
  with Jobs(tmp_path, _SLOW_LEVEL) as jobs:
    learner = jobs.learner(endless)
    actors = [jobs.actor(i) for i in range(2)]
    _says(learner, 'has joined', 2)
    learner.wait_for(lambda: jobs.frames() > 0, 'trains')
    process = psutil.Process(actors[0].pid)
    niceness = [worker.nice() for worker in process.children()]
    assert niceness and min(niceness) > process.nice()

    # An actor is killed and started again; one of other settings is turned
    # away; one sleeps.
    actors[0].signal(signal.SIGKILL)
    actors[0] = jobs.actor(0)
    actors[1].signal(signal.SIGSTOP)
    time.sleep(1.)
    actors[1].signal(signal.SIGCONT)
    with pytest.MonkeyPatch.context() as monkeypatch:
      # Which an actor job sets.
      monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '-1')
      stranger = run_main(f'--logdir={tmp_path}/actor2', *jobs.actor_flags(2),
                          '--unroll_length=7')
    error = test_experiment._error_of(stranger)
    assert '--unroll_length is 20 at the learner, 7 at the actor' in error
    _says(learner, 'has joined', 3)

    # The learner is killed, and resumes from its last checkpoint.
    learner.wait_for(lambda: jobs.checkpoint() > 0, 'saves')
    learner.signal(signal.SIGKILL)
    learner.wait()
    saved = jobs.checkpoint()
    learner = jobs.learner(endless)
    _says(learner, f'ckpt-{saved}')
    learner.wait_for(lambda: jobs.frames() > saved + 400, 'goes on')

    # It is asked to stop, and saves.
    learner.signal(signal.SIGTERM)
    assert learner.wait(_STOP_SECONDS) == 0
    stopped = jobs.checkpoint()
    assert stopped == jobs.frames() > saved
    for actor in actors:
      assert psutil.Process(actor.pid).is_running()

    # Longer than an actor waits between two attempts by now, so that both are
    # back when training ends.
    total = stopped + 4000
    learner = jobs.learner(f'--total_environment_frames={total}')
    _assert_ends_well(learner, *actors)
    assert f'ckpt-{stopped}' in learner.output()
    assert jobs.checkpoint() == total
    test_experiment._check_increasing(test_experiment._frames(jobs.logdir))
    assert learner.output().count('has joined') == 2
    for actor in actors:
      assert 'which has been restarted' in actor.output()
      assert 'Training is done' in actor.output()


@pytest.mark.parametrize('flags, what', [
    (('--learner_hosts=example.org:8000',), '--insecure_network'),
    (('--learner_hosts=0.0.0.0:8000',), '--auth_token_file'),
    (('--learner_hosts=localhost',), "--learner_hosts: 'localhost' is no"),
    (('--learner_hosts=localhost:8000', '--task=1'), '--task=1'),
    (('--auth_token_file=/nonexistent',), '--auth_token_file=/nonexistent'),
    (('--tls_cert=/nonexistent',), '--tls_key'),
    (('--job_name=actor', '--learner_hosts=localhost,b:1'), "'localhost'"),
    (('--job_name=actor', '--auth_token_file=/nonexistent'), 'cannot be read'),
    (('--architecture=a2c_sync_step',), '--architecture')])
def test_bad_settings_are_refused_in_a_line(flags, what, run_main, tmp_path):
  error = test_experiment._error_of(run_main(
      f'--logdir={tmp_path}/log', '--level_name=gym:CartPole-v1', '--task=0',
      *flags))
  assert what in error


def test_a_port_in_use_is_refused_in_a_line(run_main, tmp_path):
  with socket.create_server(('127.0.0.1', 0)) as s:
    port = s.getsockname()[1]
    error = test_experiment._error_of(run_main(
        f'--logdir={tmp_path}/log', '--level_name=gym:CartPole-v1',
        '--task=0', f'--learner_hosts=127.0.0.1:{port}'))
  assert f'--learner_hosts=127.0.0.1:{port}' in error


def test_an_actor_job_goes_on_with_the_levels_where_the_one_before_ends(
    run_main, tmp_path, monkeypatch):
  made = []

  def make_pool(levels, seed, *unused_args, **unused_kwargs):
    made.append((levels, seed))
    raise environments.PoolError('enough')

  monkeypatch.setattr(dmlab, 'make_pool', make_pool)
  monkeypatch.setattr(actor_job.time, 'time', lambda: 1234.5)
  result = run_main(
      f'--logdir={tmp_path}', '--level_name=dmlab30', '--job_name=actor',
      '--task=5', '--envs_per_actor=7', '--inference=learner', '--seed=100',
      '--learner_hosts=localhost:1')
  assert 'enough' in test_experiment._error_of(result)
  # Environments 35 to 41.
  assert made == [(list(dmlab30.LEVEL_MAPPING)[5:12],
                   seeds.derive(100, seeds.TRAINING, 1234) + 35)]


@pytest.mark.parametrize('job, slow', [
    (('actor', '--task=0'), 'make_pools'),
    (('replay', '--replay_host=localhost:1'), 'find_facts')])
def test_a_job_stops_while_its_environments_start(
    job, slow, run_main, tmp_path, monkeypatch):
  """Which may take minutes; whoever stops it would kill it before."""
  release = threading.Event()

  def start(*unused_args):
    os.kill(os.getpid(), signal.SIGTERM)
    release.wait(60.)
    raise environments.PoolError('it was waited for')

  monkeypatch.setattr(actor_job.suites, slow, start)
  result = run_main(
      f'--logdir={tmp_path}', '--level_name=gym:CartPole-v1',
      '--inference=learner', f'--job_name={job[0]}', *job[1:])
  release.set()
  assert result.code == 0, result


@pytest.mark.parametrize('job_name, expected', [('actor', '-1'),
                                                ('learner', '0')])
def test_gpus_are_the_learners(job_name, expected, run_main, tmp_path,
                               monkeypatch):
  # Which is restored at the end.
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '0')
  seen = []
  note = lambda *_: seen.append(os.environ['CUDA_VISIBLE_DEVICES'])
  monkeypatch.setattr(actor_job, 'run', note)
  monkeypatch.setattr(loop, 'train', note)
  assert run_main(f'--logdir={tmp_path}/log', '--level_name=gym:CartPole-v1',
                  '--task=0', f'--job_name={job_name}').code == 0
  assert seen == [expected]
