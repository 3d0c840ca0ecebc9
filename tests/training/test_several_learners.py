"""Learner and actor jobs as their users start them, in real processes."""

import glob
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
import tensorflow as tf

from tests import ports as ports_lib
from tests import preloaded

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
# Generous, for machines that are busy with other things.
_TIMEOUT_SECONDS = 240.
# What the program promises: heartbeats of 20 s.
_LOST_SECONDS = 60.
# The program for where one is killed, which has them shorter.
_SOON_MISSED = 'tests.training.soon_missed'
_FRAMES_PER_STEP = 4 * 20


class Jobs:
  """Jobs of one run, whose output goes to files."""

  def __init__(self, directory, module='scalable_agent.experiment'):
    ports = ports_lib.free_ports(4)
    address = lambda port: f'localhost:{port}'
    self.logdir = str(directory / 'run')
    self._module = module
    self._directory = directory
    self._flags = [
        '--level_name=gym:CartPole-v1', '--batch_size=4', '--envs_per_actor=2',
        '--environment_threads=1', '--log_interval_secs=0.5',
        '--insecure_network',
        f'--learner_hosts={",".join(map(address, ports[:2]))}',
        f'--collective_hosts={",".join(map(address, ports[2:]))}']
    self._jobs = {}

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    for process, _ in self._jobs.values():
      # The job and the processes of its environments.
      try:
        os.killpg(process.pid, signal.SIGKILL)
      except ProcessLookupError:
        pass
      process.wait()

  def start(self, job_name, task, *arguments):
    """Starts a job, or starts it again."""
    path = self._directory / f'{job_name}{task}.{time.monotonic_ns()}'
    # Only the first learner may need a log directory.
    logdir = '/proc/nowhere' if task or job_name == 'actor' else self.logdir
    self._jobs[job_name, task] = preloaded.Popen(
        self._module,
        [*self._flags, f'--logdir={logdir}', f'--job_name={job_name}',
         f'--task={task}', *arguments], _ROOT, path, os.environ), path

  def output(self, job_name, task):
    return self._jobs[job_name, task][1].read_text(errors='replace')

  def signal(self, job_name, task, signum):
    self._jobs[job_name, task][0].send_signal(signum)

  def code(self, job_name, task, timeout=_TIMEOUT_SECONDS):
    """Waits for a job to end and returns its exit code."""
    try:
      return self._jobs[job_name, task][0].wait(timeout)
    except subprocess.TimeoutExpired:
      self._fail(f'{job_name} {task} has not ended after {timeout} s')

  def wait_for(self, condition, what):
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
      ended = [job for job, (process, _) in self._jobs.items()
               if process.poll() is not None]
      if ended and not condition():
        self._fail(f'{what}: {ended} ended')
      if time.monotonic() > deadline:
        self._fail(f'{what}: not in time')
      time.sleep(.1)

  def _fail(self, what):
    pytest.fail('\n'.join(
        [what] + [f'-- {job}:\n{self.output(*job)[-3000:]}'
                  for job in self._jobs]))

  def assert_code(self, expected, *job, timeout=_TIMEOUT_SECONDS):
    code = self.code(*job, timeout=timeout)
    if code != expected:
      self._fail(f'{job} ended with {code}')

  def hashes(self, task):
    """What a learner says of its weights, a list of (frames, hash)."""
    return [(int(frames), digits) for frames, digits in re.findall(
        r'Weights at frame (\d+): ([0-9a-f]{16})\n',
        self.output('learner', task))]

  def checkpoint_frames(self):
    state = tf.train.get_checkpoint_state(self.logdir)
    return int(state.model_checkpoint_path.rpartition('-')[2]) if state else 0


def test_train_to_the_end(tmp_path):
  """Two learners with an actor each: all end well, with equal weights."""
  with Jobs(tmp_path) as jobs:
    for job in ('learner', 'actor'):
      for task in range(2):
        jobs.start(job, task, '--total_environment_frames=24000',
                   '--unroll_length=40', '--save_checkpoint_secs=0.3',
                   # What evaluates is made before TensorFlow is in use.
                   '--evaluate_every_frames=8000', '--test_num_episodes=1')
    for job in ('learner', 'actor'):
      for task in range(2):
        jobs.assert_code(0, job, task)
    hashes = jobs.hashes(0)
    assert hashes == jobs.hashes(1)
    assert hashes[-1][0] == jobs.checkpoint_frames() == 24000
    assert len({digits for _, digits in hashes}) > 1
    assert 'of the learners differ' not in jobs.output('learner', 0)
    # Nothing but the first learner has written anything.
    assert {'config.json', 'metrics.jsonl', 'episodes.csv'} <= set(
        os.listdir(jobs.logdir))
    assert sorted(os.listdir(tmp_path)) == sorted(
        ['run'] + [os.path.basename(path) for path in glob.glob(
            str(tmp_path / '[la]*'))])
    # Games of both learners' actors: one alone plays half, and few ahead. What
    # the actors have not reported when training ends is missing, two seconds.
    with open(os.path.join(jobs.logdir, 'episodes.csv')) as f:
      rows = [line.split(',') for line in f.read().splitlines()[1:]]
    played = sum(int(row[3]) for row in rows)
    assert 13000 < played
    assert [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)


@pytest.mark.parametrize('task, flag', [
    (1, '--auth_token_file=/nonexistent'),
    (1, '--network=scalable_agent.networks.torsos:Typo'),
    (0, '--network=shallow'),  # The observations are vectors.
    (0, '--queue_capacity=1000000000')])
def test_a_learner_that_cannot_work_ends_before_the_others_come(
    tmp_path, task, flag):
  with Jobs(tmp_path) as jobs:
    jobs.start('learner', task, flag)
    jobs.assert_code(1, 'learner', task, timeout=_LOST_SECONDS)
    *_, last = jobs.output('learner', task).splitlines()
    assert last.startswith(f'Error: {flag}')


def test_a_learner_of_another_run_ends_before_the_others_come(tmp_path):
  with Jobs(tmp_path) as jobs:
    os.mkdir(jobs.logdir)
    for name, content in (('ckpt-80.index', ''),
                          ('config.json', '{"num_actions": 3}')):
      pathlib.Path(jobs.logdir, name).write_text(content)
    jobs.start('learner', 0)
    jobs.assert_code(1, 'learner', 0, timeout=_LOST_SECONDS)
    *_, last = jobs.output('learner', 0).splitlines()
    assert last.startswith(
        f'Error: --logdir={jobs.logdir} holds a run with num_actions=3, this '
        'one has num_actions=2.')


def test_learners_that_would_count_other_frames_are_refused(tmp_path):
  """By all of them, before anything is written."""
  with Jobs(tmp_path) as jobs:
    for task in range(2):
      jobs.start('learner', task, f'--replay_proportion={[.5, 0.][task]}')
    for task in range(2):
      jobs.assert_code(1, 'learner', task)
      *_, last = jobs.output('learner', task).splitlines()
      assert last == (
          'Error: --replay_proportion is 0.5 at learner 0 and 0.0 at learner '
          '1; all learners need the same.')
      assert 'Traceback' not in jobs.output('learner', task)
    assert set(os.listdir(jobs.logdir)) <= {'lock'}


def test_kill_a_learner_then_resume_then_stop(tmp_path):
  """The other one ends; both go on from the checkpoint; SIGTERM ends both."""
  with Jobs(tmp_path, _SOON_MISSED) as jobs:
    for task in range(2):
      jobs.start('learner', task, '--save_checkpoint_secs=1')
    for task in range(2):
      jobs.start('actor', task)
    jobs.wait_for(jobs.checkpoint_frames, 'a checkpoint')
    jobs.signal('learner', 1, signal.SIGKILL)
    jobs.assert_code(1, 'learner', 0, timeout=_LOST_SECONDS)
    *_, last = jobs.output('learner', 0).splitlines()
    assert re.match(r'Error: Learner 1 \(localhost:\d+\) died or is out of '
                    r'reach\. Restart all learners', last)
    assert 'Traceback' not in jobs.output('learner', 0)
    frames = jobs.checkpoint_frames()
    assert frames % _FRAMES_PER_STEP == 0

    for task in range(2):
      jobs.start('learner', task, '--save_checkpoint_secs=1')
    jobs.wait_for(lambda: jobs.checkpoint_frames() > frames, 'resuming')
    assert f'Resuming from {jobs.logdir}/ckpt-{frames}\n' in jobs.output(
        'learner', 0)
    jobs.signal('learner', 1, signal.SIGTERM)
    for task in range(2):
      jobs.assert_code(0, 'learner', task)
      assert re.search(r'Learner 1 \(localhost:\d+\) stops, and all learners',
                       jobs.output('learner', task))
    hashes = jobs.hashes(0)
    assert hashes == jobs.hashes(1)
    assert hashes[0][0] > frames
    assert hashes[-1][0] == jobs.checkpoint_frames()


def test_the_first_learner_is_missed_too(tmp_path):
  """By one that has no actors, and waits for a batch."""
  with Jobs(tmp_path, _SOON_MISSED) as jobs:
    for task in range(2):
      jobs.start('learner', task)
    for task in range(2):
      jobs.wait_for(lambda: 'learner on /cpu:0' in jobs.output('learner', task),
                    f'the start of learner {task}')
    jobs.signal('learner', 0, signal.SIGKILL)
    jobs.assert_code(1, 'learner', 1, timeout=_LOST_SECONDS)
    *_, last = jobs.output('learner', 1).splitlines()
    assert re.match(r'Error: Learner 0 \(localhost:\d+\) died or is out of '
                    r'reach\. Restart all learners', last)
    assert 'Traceback' not in jobs.output('learner', 1)
