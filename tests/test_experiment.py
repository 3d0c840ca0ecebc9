"""The program as its users start it: real processes, files and signals."""

import collections
import contextlib
import faulthandler
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import experiment
from scalable_agent import learner
from scalable_agent import policy
from scalable_agent import suites
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.files import open_files
from scalable_agent.process import progress
from tests import preloaded
from tests import watchdog
from tests.evaluation import trained_runs

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODULE = 'scalable_agent.experiment'
_CARTPOLE = (
    '--level_name=gym:CartPole-v1', '--num_actors=8', '--batch_size=4',
    '--environment_threads=2', '--log_interval_secs=0.2')
_FRAMES_PER_STEP = 4 * 20
_LEARNING_RATE = .0006
# Generous, for machines that are busy with other things. What the program
# promises to do within a time is tested against that.
_TIMEOUT_SECONDS = 240.
_STOP_SECONDS = 10.


# -- Starting and watching the program ----------------------------------------


class Program:
  """`python -m scalable_agent.experiment` in a session of its own."""

  def __init__(self, logdir, *arguments, environ=()):
    self.logdir = str(logdir)
    self._output_path = f'{self.logdir}.{time.monotonic_ns()}.output'
    # The program itself keeps TensorFlow quiet.
    inherited = {name: value for name, value in os.environ.items()
                 if name != 'TF_CPP_MIN_LOG_LEVEL'}
    self._process = self._start(
        [f'--logdir={self.logdir}', *arguments],
        dict(inherited, **dict(environ)))
    self.pid = self._process.pid

  def _start(self, arguments, environ):
    # Tests in a shell's background have SIGINT ignored, which is inherited.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(self._output_path, 'w') as output:
      process = subprocess.Popen(
          [sys.executable, '-m', _MODULE, *arguments],
          cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
          env=environ, start_new_session=True)
    signal.signal(signal.SIGINT, previous)
    return process

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    for pid in self.processes():
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    self._process.wait()

  def output(self):
    with open(self._output_path, errors='replace') as f:
      return f.read()

  def processes(self):
    """Ids of the program and what it has started, without zombies."""
    found = []
    for path in glob.glob('/proc/[0-9]*/stat'):
      try:
        with open(path) as f:
          state, _, _, session = f.read().rpartition(')')[2].split()[:4]
      except (FileNotFoundError, ProcessLookupError):
        continue
      if int(session) == self.pid and state not in 'ZX':
        found.append(int(path.split('/')[2]))
    return sorted(found)

  def wait_for(self, condition, what):
    """Waits until `condition()`; fails if the program ends before."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
      ended = self._process.poll()
      # It may have been true just before the end.
      if ended is not None and not condition():
        pytest.fail(f'{what}: ended with {ended}\n{self.output()[-4000:]}')
      if time.monotonic() > deadline:
        pytest.fail(f'{what}: not in time\n{self.output()[-4000:]}')
      time.sleep(.05)

  def signal(self, signum):
    os.kill(self.pid, signum)

  def wait(self, timeout=_TIMEOUT_SECONDS):
    """Returns the exit code."""
    try:
      return self._process.wait(timeout)
    except subprocess.TimeoutExpired:
      pytest.fail(f'not ended after {timeout} s\n{self.output()[-4000:]}')


class Preloaded(Program):
  """As `Program`, in a process that has loaded TensorFlow already."""

  def _start(self, arguments, environ):
    return preloaded.Popen(
        _MODULE, arguments, _ROOT, self._output_path, environ)


Result = collections.namedtuple('Result', 'code errors')
_VISIBLE = 'CUDA_VISIBLE_DEVICES'


@pytest.fixture
def run_main(capfd, pytestconfig):
  """Runs the true `main` in this process: (*flags) -> `Result`."""

  def run(*arguments):
    capfd.readouterr()
    # `main` leaves those that it needs until its process ends.
    handlers = {number: signal.getsignal(number) for number in (
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # An actor job hides GPUs from its process, which is that of all tests here.
    visible = {name: os.environ[name] for name in (_VISIBLE,)
               if name in os.environ}
    # A run that hangs ends the tests, and says where.
    faulthandler.dump_traceback_later(
        watchdog.SECONDS, exit=True, file=pytestconfig.terminal_stderr)
    try:
      with flagsaver.flagsaver():
        experiment.main(flags.FLAGS(['experiment', *map(str, arguments)]))
      code = 0
    except SystemExit as e:
      code = e.code
    finally:
      faulthandler.cancel_dump_traceback_later()
      for number, handler in handlers.items():
        signal.signal(number, handler)
      os.environ.pop(_VISIBLE, None)
      os.environ.update(visible)
    return Result(code, capfd.readouterr().err)

  return run


def _error_of(result):
  """The one line that tells of the error; asserts that there is one."""
  lines = [line for line in result.errors.splitlines()
           if line.startswith('Error: ')]
  assert result.code == 1, result
  assert len(lines) == 1, result
  assert result.errors.endswith(lines[0] + '\n'), result
  assert 'Traceback' not in result.errors
  return lines[0]


# -- Reading what it left -----------------------------------------------------


def _metrics(logdir):
  """The whole lines of metrics.jsonl."""
  try:
    with open(os.path.join(logdir, 'metrics.jsonl')) as f:
      lines = f.read().split('\n')[:-1]
  except FileNotFoundError:
    return []
  return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def _frames(logdir):
  return [metrics['frames'] for metrics in _metrics(logdir)]


def _checkpoint_frames(logdir):
  """Frames of all checkpoints, oldest first."""
  state = tf.train.get_checkpoint_state(str(logdir))
  return [int(path.rpartition('-')[2])
          for path in state.all_model_checkpoint_paths] if state else []


def _checkpoint_floats(logdir):
  """A dict of name to float array, of the newest checkpoint."""
  reader = tf.train.load_checkpoint(str(logdir))
  return {name: reader.get_tensor(name)
          for name, dtype in reader.get_variable_to_dtype_map().items()
          if dtype == tf.float32}


def _config(logdir):
  with open(os.path.join(logdir, 'config.json')) as f:
    return json.load(f)


def _episodes(logdir):
  """The rows of episodes.csv, split."""
  with open(os.path.join(logdir, 'episodes.csv')) as f:
    header, *rows = f.read().splitlines()
  assert header == 'frames,level,episode_return,episode_frames'
  return [row.split(',') for row in rows]


def _event_tags(logdir):
  """A dict of tag to steps in the TensorBoard files."""
  tags = collections.defaultdict(list)
  for path in glob.glob(os.path.join(logdir, 'events.out.tfevents.*')):
    for record in tf.data.TFRecordDataset(path):
      event = tf.compat.v1.Event.FromString(record.numpy())
      for value in event.summary.value:
        tags[value.tag].append(event.step)
  return tags


def _contents(logdir):
  """What must survive a refused run: names and bytes of everything."""
  found = {}
  for directory, _, names in os.walk(logdir):
    for name in names:
      path = os.path.join(directory, name)
      with open(path, 'rb') as f:
        found[os.path.relpath(path, logdir)] = f.read()
  return found


def _check_learning_rates(metrics, learning_rate, total_frames,
                          frames_per_step):
  """Each entry is the mean over its updates of the linear decay in frames."""
  steps_before = 0
  for entry in metrics:
    assert entry['frames'] == entry['learner_steps'] * frames_per_step
    # An update has the rate of the frames before it.
    mean_frames = frames_per_step * (
        steps_before + entry['learner_steps'] - 1) / 2
    np.testing.assert_allclose(
        entry['learning_rate'],
        learning_rate * (1 - mean_frames / total_frames),
        rtol=1e-5, atol=1e-12)
    steps_before = entry['learner_steps']


def _check_increasing(frames):
  assert (np.diff(frames) > 0).all(), frames


# -- Runs that end well -------------------------------------------------------


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """Two finished runs at once, a dict: 'pong' as published, and 'cartpole'."""
  directory = tmp_path_factory.mktemp('finished')
  flagfile = directory / 'few.flags'
  flagfile.write_text(
      '--total_environment_frames=6000\n--learning_rate=0.001\n'
      '--log_interval_secs=0.01\n')
  with Preloaded(directory / 'pong', '--level_name=pong',
                 f'--flagfile={flagfile}', '--seed=7') as pong, \
      Program(directory / 'cartpole', *_CARTPOLE,
              '--total_environment_frames=8000', '--keep_checkpoints=3',
              '--save_checkpoint_secs=0.05',
              '--profile_updates=20:30') as cartpole:
    assert pong.wait() == 0, pong.output()[-4000:]
    assert cartpole.wait() == 0, cartpole.output()[-4000:]
    assert pong.processes() == cartpole.processes() == []
    return dict(pong=pong, cartpole=cartpole)


def test_replayed_unrolls_are_no_new_frames(tmp_path, run_main, caplog):
  """Frames, learning rate and policy lag are those of the new half alone.

  With LASER's trust region and entropy, whose figures are logged.
  """
  total = 40 * _FRAMES_PER_STEP // 2
  # With one process of environments: one of two may be held up for long.
  result = run_main(
      f'--logdir={tmp_path / "run"}', *_CARTPOLE, '--environment_threads=1',
      '--replay_proportion=0.5', '--replay_capacity=60', '--queue_capacity=2',
      '--trust_region_threshold=0.00001', '--noentropy_on_replay',
      f'--total_environment_frames={total}')
  assert result.code == 0, result
  assert ' of memory when it is full: --replay_capacity=60' in caplog.text
  metrics = _metrics(tmp_path / 'run')
  assert (metrics[-1]['frames'], metrics[-1]['learner_steps']) == (total, 40)
  _check_learning_rates(
      metrics, _LEARNING_RATE, total, _FRAMES_PER_STEP // 2)
  # Eight environments, two in a batch and two in each of queue and staging; a
  # replayed one is 20 updates old on average.
  assert max(entry['policy_lag_max'] for entry in metrics) < 15
  assert metrics[-1]['replay_unrolls'] == 60
  assert 0 < metrics[-1]['replay_mb'] < .5
  assert metrics[-1]['replay_age_mean'] > 1
  assert metrics[-1]['replay_mb_per_second'] > 0
  assert metrics[-1]['relevance_mean'] > 0
  assert 0 < metrics[-1]['replay_rejected'] <= 1
  assert 0 <= metrics[-1]['online_rejected'] < 1


def test_the_last_evaluation_is_made_up_for_where_a_stop_cut_it_off(
    tmp_path, run_main):
  arguments = (f'--logdir={tmp_path / "run"}', *_CARTPOLE,
               '--total_environment_frames=400', '--test_num_episodes=2',
               '--evaluate_every_frames=200')
  assert run_main(*arguments).code == 0
  path = tmp_path / 'run' / 'evaluations.csv'
  frames = lambda: [line.partition(',')[0]
                    for line in path.read_text().splitlines()]
  assert frames()[-2:] == ['400', '400']
  header, *_ = path.read_text().splitlines()
  path.write_text(header + '\n')
  assert run_main(*arguments).code == 0
  assert frames() == ['frames', '400', '400']
  # There is nothing left to make up for.
  assert run_main(*arguments).code == 0
  assert frames() == ['frames', '400', '400']


def test_whole_episodes_are_replayed_with_states_of_the_newest_weights(
    tmp_path, run_main):
  """Of an agent with an LSTM, and whole batches of them."""
  result = run_main(
      f'--logdir={tmp_path / "run"}', *_CARTPOLE, '--replay_proportion=0.5',
      '--use_lstm', '--replay_state=recomputed', '--notrain_on_new',
      '--total_environment_frames=2000')
  assert result.code == 0, result
  metrics = _metrics(tmp_path / 'run')
  # At first, when no episode is whole, all four unrolls of a batch are new.
  assert 2000 // _FRAMES_PER_STEP < metrics[-1]['learner_steps']
  assert metrics[-1]['learner_steps'] <= 2000 // (_FRAMES_PER_STEP // 2)
  assert metrics[-1]['frames'] >= 2000
  assert metrics[-1]['replay_age_mean'] > 1


@pytest.fixture
def cartpole(finished, tmp_path):
  """A copy of the directory of the finished CartPole run."""
  return shutil.copytree(finished['cartpole'].logdir, tmp_path / 'cartpole')


def test_config_json_has_the_papers_values_and_what_was_given(finished):
  config = _config(finished['pong'].logdir)
  assert config.items() >= dict(
      # Table G.1.
      suite='atari', width=84, height=84, num_action_repeats=4,
      unroll_length=20, batch_size=32, discounting=.99, entropy_cost=.01,
      baseline_cost=.5, reward_clipping='abs_one', epsilon=.01, decay=.99,
      momentum=0., gradient_norm_clip=40., network='shallow', use_lstm=False,
      queue_capacity=32,
      # Given, in a flagfile and beside it.
      total_environment_frames=6000, learning_rate=.001, seed=7,
      # Found out.
      num_actions=6, observation_shapes=[[84, 84, 4]]).items()


def test_published_settings_train_to_the_end(finished):
  logdir = finished['pong'].logdir
  metrics = _metrics(logdir)
  assert metrics[-1]['frames'] == 3 * 32 * 20 * 4  # The first step >= 6000.
  _check_increasing(_frames(logdir))
  _check_learning_rates(metrics, .001, 6000, 2560)
  assert _checkpoint_frames(logdir) == [0, 7680]


def test_metrics_have_every_key(finished):
  for program in finished.values():
    for entry in _metrics(program.logdir):
      assert set(entry) >= {
          'frames', 'wall_time', 'fps', 'learner_steps', 'total_loss',
          'policy_gradient_loss', 'baseline_loss', 'entropy_loss',
          'learning_rate', 'grad_norm', 'dead_units', 'skipped',
          'policy_lag_mean',
          'policy_lag_max', 'queue_size', 'inference_batch_mean',
          'time_learner_wait', 'time_learner_step', 'time_learner_publish'}
      assert all(np.isfinite(value) for value in entry.values())
      assert entry['fps'] > 0 and entry['grad_norm'] > 0
      assert 0 <= entry['policy_lag_mean'] <= entry['policy_lag_max']
      assert entry['skipped'] == 0 and 0 <= entry['dead_units'] < 1
      np.testing.assert_allclose(
          entry['total_loss'], entry['policy_gradient_loss'] +
          entry['baseline_loss'] + entry['entropy_loss'], rtol=1e-3, atol=1e-2)
    assert any('time_actor_environments' in entry
               for entry in _metrics(program.logdir))


def test_cartpole_trains_to_the_end(finished):
  logdir = finished['cartpole'].logdir
  metrics = _metrics(logdir)
  assert metrics[-1]['frames'] == 8000
  _check_increasing(_frames(logdir))
  _check_learning_rates(metrics, _LEARNING_RATE, 8000, _FRAMES_PER_STEP)
  checkpoints = _checkpoint_frames(logdir)
  assert len(checkpoints) == 3 and checkpoints[-1] == 8000
  files = glob.glob(os.path.join(logdir, 'ckpt-*.index'))
  assert len(files) == 3


def test_episodes_are_in_csv_and_tensorboard(finished):
  logdir = finished['cartpole'].logdir
  rows = _episodes(logdir)
  assert len(rows) > 50
  frames = [int(row[0]) for row in rows]
  assert frames == sorted(frames) and frames[-1] <= 8000
  for _, level, episode_return, episode_frames in rows:
    assert level == 'gym:CartPole-v1'
    # One point per step, and the pole falls after 8 at the earliest.
    assert float(episode_return) == int(episode_frames) >= 8
  tags = _event_tags(logdir)
  assert tags['7_levels/gym:CartPole-v1/episode_return'] == frames
  assert tags['4_losses/total_loss'] == _frames(logdir)


def test_a_trace_has_the_threads_by_name_and_their_stages(finished):
  program = finished['cartpole']
  (path,) = glob.glob(os.path.join(
      program.logdir, 'plugins', 'profile', '*', '*.xplane.pb'))
  space = xplane_pb2.XSpace()
  with open(path, 'rb') as f:
    space.ParseFromString(f.read())
  stages = collections.defaultdict(collections.Counter)
  for plane in space.planes:
    names = {i: event.name for i, event in plane.event_metadata.items()}
    for line in plane.lines:
      stages[line.name].update(
          names[event.metadata_id] for event in line.events)
  assert stages['learner']['learner_step'] == 10
  assert stages['staging']['staging_copy'] in range(9, 12)
  for stage in ('actor_environments', 'actor_inference', 'actor_queue'):
    assert stages['actor-0'][stage] > 10
  assert f'Wrote a trace below {program.logdir}/plugins/' in program.output()


def test_progress_is_logged(finished):
  output = finished['cartpole'].output()
  assert re.search(r'] [\d.]+k of 8k \(\d+ %\), [\d.k]+ frames/s, .* left, '
                   r'return \d+', output)
  assert 'Traceback' not in output and 'Error' not in output


def test_a_run_says_three_lines_first_and_three_last(finished):
  """And nothing of its libraries, nor all of its settings."""
  program = finished['cartpole']
  lines = program.output().splitlines()
  assert all(re.match(r'I\d{4} ', line) for line in lines), lines
  said = [line.partition('] ')[2] for line in lines]
  assert [line.partition(':')[0] for line in said[:3]] == [
      'Level', 'Agent', 'Files']
  assert said[0].startswith('Level: gym:CartPole-v1, 1 pool of 8 environments')
  assert f'Files: {program.logdir}, at frame 0 of 8k' in said[2]
  assert re.match(r'Done: 8k of 8k frames, mean return [\d.]+ over the last '
                  r'100 episodes$', said[-3])
  assert said[-2] == f'Files: {program.logdir}'
  assert said[-1].endswith(
      f'-m scalable_agent.experiment --mode=test --logdir={program.logdir}')
  assert [line for line in said[3:-3]
          if 'frames/s' not in line and 'a trace' not in line] == []


def test_a_finished_run_that_is_run_again_has_nothing_to_do(
    cartpole, run_main, caplog):
  """It says so, with the score of the episodes from before."""
  before = _contents(cartpole)
  num_open = open_files.count()
  result = run_main(f'--logdir={cartpole}', *_CARTPOLE,
                    '--total_environment_frames=8000')
  assert result.code == 0, result
  assert re.search('Nothing to do, this run has finished: 8k of 8k frames, '
                   r'mean return [\d.]+ over the last 100 episodes',
                   caplog.text)
  after = {name: content for name, content in _contents(cartpole).items()
           if name in before}
  assert after == before
  # A program may train many times.
  assert open_files.count() <= num_open


def test_devices_pools_lstm_and_xla_together(tmp_path):
  """Two replicas, two actor threads, a core state and XLA train a few steps."""
  with Preloaded(tmp_path / 'run', *_CARTPOLE, '--num_learner_devices=2',
                 '--num_pools=2', '--use_lstm', '--xla=on',
                 '--unroll_length=3', '--total_environment_frames=120',
                 environ=dict(CUDA_VISIBLE_DEVICES='')) as program:
    assert program.wait() == 0, program.output()[-4000:]
    assert '2 pools of 4 environments' in program.output()
    assert 'XLA on' in program.output()
    assert '/cpu:0, /cpu:1' in program.output()
  metrics = _metrics(program.logdir)
  assert metrics[-1]['frames'] == 120 and metrics[-1]['skipped'] == 0
  _check_learning_rates(metrics, _LEARNING_RATE, 120, 4 * 3)
  values = _checkpoint_floats(program.logdir)
  assert any('core' in name for name in values)
  for name, value in values.items():
    assert np.isfinite(value).all(), name


# -- Being interrupted --------------------------------------------------------


def _has_frames(logdir, frames):
  return lambda: any(found > frames for found in _frames(logdir))


def test_kill_and_resume_and_stop(tmp_path):
  """One run through SIGKILL, SIGTERM, a changed flag and ctrl-C."""
  logdir = tmp_path / 'run'
  total = 10_000_000
  flags_ = (*_CARTPOLE, f'--total_environment_frames={total}')

  with Preloaded(logdir, *flags_, '--save_checkpoint_secs=0.3') as program:
    program.wait_for(
        lambda: [0] < _checkpoint_frames(logdir)[-1:] < _frames(logdir)[-1:],
        'frames after a checkpoint')
    assert len(program.processes()) == 3  # The program and two workers.
    program.signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    deadline = time.monotonic() + _STOP_SECONDS
    while program.processes() and time.monotonic() < deadline:
      time.sleep(.05)
    assert program.processes() == []
  # TensorFlow's list may lack the newest one.
  killed_at = checkpoint_files.newest_frames(logdir)
  before = _metrics(logdir)

  with Preloaded(logdir, *flags_) as program:
    program.wait_for(_has_frames(logdir, before[-1]['frames']), 'resuming')
    program.signal(signal.SIGTERM)
    assert program.wait(_STOP_SECONDS) == 0, program.output()[-4000:]
    assert program.processes() == []
    output = program.output()
  assert f'Resuming from {logdir}/ckpt-{killed_at}\n' in output
  assert 'SIGTERM: saving and stopping.' in output
  assert 'Traceback' not in output
  metrics = _metrics(logdir)
  kept = [entry for entry in before if entry['frames'] <= killed_at]
  assert metrics[:len(kept)] == kept
  _check_increasing(_frames(logdir))
  _check_learning_rates(kept, _LEARNING_RATE, total, _FRAMES_PER_STEP)
  # From here on counted from the checkpoint, which lies behind the last line.
  new = metrics[len(kept):]
  for entry, previous in zip(new, [killed_at] + [e['frames'] for e in new]):
    mean_frames = (previous + entry['frames'] - _FRAMES_PER_STEP) / 2
    np.testing.assert_allclose(
        entry['learning_rate'], _LEARNING_RATE * (1 - mean_frames / total),
        rtol=1e-6)
    assert entry['learner_steps'] == entry['frames'] / _FRAMES_PER_STEP
  frames = [int(row[0]) for row in _episodes(logdir)]
  assert frames == sorted(frames)
  stopped_at = _checkpoint_frames(logdir)[-1]
  assert stopped_at == metrics[-1]['frames']

  with Preloaded(logdir, *flags_, '--learning_rate=0.0001') as program:
    program.wait_for(_has_frames(logdir, stopped_at), 'resuming once more')
    # As a terminal does on ctrl-C, to all processes.
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait(_STOP_SECONDS) == 0, program.output()[-4000:]
    assert program.processes() == []
    output = program.output()
  assert f'Resuming from {logdir}/ckpt-{stopped_at}\n' in output
  assert 'learning_rate was 0.0006, is now 0.0001' in output
  assert 'Traceback' not in output
  assert _config(logdir)['learning_rate'] == .0001
  metrics = _metrics(logdir)
  _check_increasing(_frames(logdir))
  assert metrics[-1]['learning_rate'] == pytest.approx(
      .0001 * (1 - metrics[-1]['frames'] / total), rel=1e-2)
  assert _checkpoint_frames(logdir)[-1] == metrics[-1]['frames']


def test_atari_stops_on_sigterm(tmp_path):
  """The threads of the emulator hold nothing up either."""
  with Preloaded(tmp_path / 'run', '--level_name=pong', '--num_actors=8',
                 '--batch_size=4', '--log_interval_secs=0.2') as program:
    program.wait_for(_has_frames(program.logdir, 0), 'training')
    program.signal(signal.SIGTERM)
    assert program.wait(_STOP_SECONDS) == 0, program.output()[-4000:]
    assert program.processes() == []
  assert 'Traceback' not in program.output()
  assert _checkpoint_frames(program.logdir)[1:] == (
      _frames(program.logdir)[-1:])


_SLOW_ENVIRONMENT = '''
import pathlib, time, gymnasium

class Slow(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(-1., 1., [2])
  action_space = gymnasium.spaces.Discrete(2)

  def __init__(self):
    pathlib.Path(__file__).with_name('begun').touch()
    time.sleep(1000)

gymnasium.register('Slow-v0', Slow)
'''


def test_a_signal_is_heeded_while_an_environment_is_made(tmp_path):
  (tmp_path / 'slow_environment.py').write_text(_SLOW_ENVIRONMENT)
  with Preloaded(tmp_path / 'run', '--level_name=gym:slow_environment:Slow-v0',
                 '--num_actors=1', '--batch_size=1',
                 environ=dict(PYTHONPATH=str(tmp_path))) as program:
    program.wait_for((tmp_path / 'begun').exists, 'the making')
    program.signal(signal.SIGTERM)
    assert program.wait(_STOP_SECONDS) == 0, program.output()[-4000:]
    assert program.processes() == []
  assert 'Traceback' not in program.output()


@pytest.mark.parametrize('slow, code, flag', [
    ('make_pools', 143, '--mode=check'),
    ('find_facts', 143, '--mode=test'),
    ('find_facts', 143, '--mode=export'),
    ('find_facts', 0, '--evaluate_every_frames=1000')])
def test_a_signal_is_heeded_while_levels_are_tried(
    slow, code, flag, run_main, tmp_path, monkeypatch):
  """Which may take as long, before there is anything to stop."""
  logdir = tmp_path / 'run'
  trained_runs.make(logdir, level_name='gym:CartPole-v1')
  before = _contents(logdir)

  def start(*unused_args):
    signal.raise_signal(signal.SIGTERM)
    raise environments.PoolError('it was waited for')

  monkeypatch.setattr(suites, slow, start)
  result = run_main(f'--logdir={logdir}', '--level_name=gym:CartPole-v1',
                    '--num_actors=1', '--batch_size=1', flag)
  assert result.code == code, result
  assert 'it was waited for' not in result.errors
  assert _contents(logdir).items() <= before.items() | {('lock', b'')}


# -- Checkpoints --------------------------------------------------------------


def _truncate(logdir, frames):
  path, = glob.glob(os.path.join(logdir, f'ckpt-{frames}.data-*'))
  os.truncate(path, os.path.getsize(path) // 2)


def test_a_corrupt_checkpoint_is_passed_over(cartpole, run_main, caplog):
  """The one before serves, and the user is told the name of the bad one."""
  _, good, bad = _checkpoint_frames(cartpole)
  _truncate(cartpole, bad)
  result = run_main(f'--logdir={cartpole}', *_CARTPOLE,
                    '--total_environment_frames=8000')
  assert result.code == 0, result
  warning, = [record.getMessage() for record in caplog.records
              if 'cannot be restored' in record.getMessage()]
  assert f'ckpt-{bad}' in warning and '\n' not in warning
  assert f'Resuming from {cartpole}/ckpt-{good}' in caplog.text
  _check_increasing(_frames(cartpole))
  assert _frames(cartpole)[-1] == 8000
  # The whole one took the bad one's name, and is good again.
  assert _checkpoint_frames(cartpole)[-1] == 8000
  assert _checkpoint_floats(cartpole)


def test_corrupt_checkpoints_only(cartpole, run_main):
  """The run ends and leaves them; it does not start afresh over them."""
  for frames in _checkpoint_frames(cartpole):
    _truncate(cartpole, frames)
  before = _contents(cartpole)
  error = _error_of(run_main(
      f'--logdir={cartpole}', *_CARTPOLE, '--total_environment_frames=8000'))
  assert str(cartpole) in error
  for frames in _checkpoint_frames(cartpole):
    assert f'ckpt-{frames}' in error
  after = _contents(cartpole)
  for name in before:
    assert after[name] == before[name], name


# -- Testing ------------------------------------------------------------------


def test_test_mode_scores_whole_games(cartpole, run_main):
  """Exactly as many as asked for, and nothing else is changed."""
  before = _contents(cartpole)
  result = run_main(f'--logdir={cartpole}', *_CARTPOLE, '--mode=test',
                    '--test_num_episodes=35')
  assert result.code == 0, result
  after = _contents(cartpole)
  scores = json.loads(after.pop('test_scores.json'))
  assert after == before
  assert scores['frames'] == 8000
  (level_name, level), = scores['levels'].items()
  assert level_name == 'gym:CartPole-v1'
  returns = level['episode_returns']
  assert level['num_episodes'] == len(returns) == 35
  assert returns == level['episode_frames']  # One point per step.
  assert min(returns) >= 8 and max(returns) <= 500
  assert level['mean'] == pytest.approx(np.mean(returns))
  assert level['standard_error'] == pytest.approx(
      np.std(returns, ddof=1) / np.sqrt(35))


def test_test_mode_stops_on_ctrl_c(cartpole):
  """Within seconds, without half a score, and without complaint."""
  before = _contents(cartpole)
  with Preloaded(cartpole, *_CARTPOLE, '--mode=test',
                 '--test_num_episodes=1000000') as program:
    program.wait_for(
        lambda: ': episode 1 of 1000000' in program.output(), 'an episode')
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait(_STOP_SECONDS) == 130  # As shells expect.
    assert program.processes() == []
    assert 'Traceback' not in program.output()
  assert _contents(cartpole) == before


def test_test_mode_stops_where_python_loses_the_interrupt(
    cartpole, run_main, monkeypatch):
  """A `KeyboardInterrupt` in `__del__` is printed, and otherwise ignored."""

  class Interrupted:

    def __del__(self):
      signal.raise_signal(signal.SIGINT)

  shown = []

  def show(unused_line, text):
    if not shown:
      Interrupted()
    shown.append(text)

  monkeypatch.setattr(progress.ProgressLine, 'show', show)
  result = run_main(f'--logdir={cartpole}', *_CARTPOLE, '--mode=test',
                    '--test_num_episodes=320')
  assert result.code == 130
  assert 0 < len(shown) < 320


# -- Bad input ----------------------------------------------------------------

_without_engine = pytest.mark.skipif(
    importlib.util.find_spec('deepmind_lab') is not None,
    reason='here is a deepmind_lab')


@pytest.mark.parametrize('arguments, expected', [
    (['--level_name=pogn'], ['--level_name=pogn', 'pong']),
    pytest.param(
        ['--level_name=no_such_level'],
        ['--level_name=no_such_level', 'module deepmind_lab', 'gym:<id>'],
        marks=_without_engine),
    (['--level_name=pong', '--batch_size=0'], ['--batch_size=0']),
    (['--level_name=pong', '--task=1'], ['--task=1', '--learner_hosts']),
    (['--level_name=pong', '--use_lstm', 'false'], ['arguments: false']),
])
def test_bad_flags_get_one_line(tmp_path, arguments, expected):
  """It is all there is on stderr, comes at once, and no directory is made."""
  with Program(tmp_path / 'run', *arguments) as program:
    code = program.wait()
    output = program.output()
  assert code == 1
  assert output.startswith('Error: ') and output.count('\n') == 1, output
  for part in expected:
    assert part in output
  assert not os.path.exists(tmp_path / 'run')


@pytest.mark.parametrize('arguments, expected', [
    (['--level_name=pong', '--unroll_length=0'], ['--unroll_length=0']),
    (['--level_name=pong', '--queue_capacity=31'],
     ['--queue_capacity=31', '--batch_size=32', 'never']),
    (['--level_name=pong', '--batch_size=5', '--num_learner_devices=2'],
     ['--batch_size=5', '--num_learner_devices=2']),
    (['--level_name=pong', '--replay_proportion=0.5',
      '--replay_capacity=1000000000'],
     ['--replay_capacity=1000000000', ' take 171 TB', 'this machine']),
    (['--level_name=gym:CartPoll-v1'],
     ['gym:CartPoll-v1', 'similar: gym:CartPole-v1']),
    (['--level_name=gym:no_such_module:Name-v0'],
     ['no_such_module']),
    (['--level_name=gym:Pendulum-v1'],
     ['gym:Pendulum-v1', 'action space', 'no gymnasium.spaces.Discrete']),
    (['--level_name=gym:Blackjack-v1'],
     ['gym:Blackjack-v1', 'observation space']),
    pytest.param(
        ['--level_name=explore_goal_locations_small'],
        ['explore_goal_locations_small', 'DeepMind Lab'],
        marks=_without_engine),
    (['--level_name=gym:CartPole-v1', '--network=deep'],
     ['network', 'deep']),
    (['--level_name=gym:CartPole-v1', '--mode=test'],
     ['--logdir=', 'has no checkpoint']),
    (['--level_name=gym:CartPole-v1', '--logdir=~/run'],
     ['--logdir=~/run cannot work', '$HOME']),
    (['--level_name=gym:CartPole-v1', '--auth_token_file=~/token'],
     ['--auth_token_file=', '~/token cannot work', '$HOME']),
])
def test_bad_settings_get_one_line(tmp_path, run_main, arguments, expected):
  error = _error_of(run_main(
      f'--logdir={tmp_path / "run"}', '--num_actors=2', *arguments))
  for part in expected:
    assert part in error
  assert _contents(tmp_path) == {}


def test_a_level_that_nobody_has_named_is_said(
    tmp_path, run_main, monkeypatch, caplog):
  """Where a directory is misspelt, another run was meant."""
  monkeypatch.setattr(experiment.library, 'learn', lambda config, stop: None)
  logdir = f'--logdir={tmp_path}'
  for arguments, is_said in (([], True), (['--level_name=pong'], False)):
    caplog.clear()
    run_main(logdir, *arguments)
    assert (f'{logdir} holds no run to go on with: a new run trains on the '
            'default, explore_goal_locations_small' in caplog.text) == is_said
  (tmp_path / 'ckpt-0.index').touch()
  (tmp_path / 'config.json').write_text(
      config_lib.resolve(dict(level_name='pong')).to_json())
  run_main(logdir)
  assert 'holds no run' not in caplog.text


def test_an_actor_of_a_level_that_nobody_has_named_says_so(
    tmp_path, run_main, monkeypatch, caplog):
  monkeypatch.setattr(experiment, '_act', lambda config, stop: None)
  actor = '--job_name=actor', '--task=0'
  run_main(*actor, '--level_name=gym:CartPole-v1')
  assert 'is not given' not in caplog.text
  monkeypatch.setattr(
      experiment.run_config, 'resolve', lambda values: config_lib.resolve(
          dict(values, level_name='gym:CartPole-v1')))
  run_main(*actor)
  assert ('--level_name is not given: this actor plays the default, '
          'gym:CartPole-v1.' in caplog.text)


def test_a_job_without_its_task_is_said(
    tmp_path, run_main, monkeypatch, caplog):
  monkeypatch.setattr(experiment.library, 'learn', lambda config, stop: None)
  hosts = '--learner_hosts=localhost:8000'
  for arguments, is_said in (
      ([hosts], True), ([hosts, '--task=0'], False), ([], False)):
    caplog.clear()
    run_main('--level_name=pong', f'--logdir={tmp_path}', *arguments)
    assert ('this run trains alone' in caplog.text) == is_said


def test_a_flag_that_makes_no_difference_is_said(
    tmp_path, run_main, monkeypatch, caplog):
  monkeypatch.setattr(experiment.library, 'learn', lambda config, stop: None)
  flags = ['--level_name=pong', f'--logdir={tmp_path}']
  for given, said in (
      (['--replay_capacity=50'], ['--replay_capacity=50 makes no difference, '
                                  'since --replay_proportion=0.0.']),
      (['--replay_capacity=50', '--replay_proportion=0.5'], []),
      (['--replay_capacity=10000'], []),  # The default.
      (['--noentropy_on_replay', '--replay_state=recomputed', '--use_lstm'],
       ['--entropy_on_replay=False', '--replay_state=recomputed'])):
    caplog.clear()
    assert run_main(*flags, *given).code == 0
    assert caplog.text.count('makes no difference') == len(said)
    assert all(text in caplog.text for text in said)


@pytest.mark.parametrize('logdir', ['{}/file/logdir', '{}/file', '/proc/x'])
def test_a_logdir_that_cannot_be_written(tmp_path, run_main, logdir):
  (tmp_path / 'file').write_text('mine')
  logdir = logdir.format(tmp_path)
  error = _error_of(run_main(f'--logdir={logdir}', *_CARTPOLE))
  assert f'--logdir={logdir} cannot be written' in error
  assert _contents(tmp_path) == dict(file=b'mine')


@pytest.mark.parametrize('mode', ['train', 'test'])
@pytest.mark.parametrize('arguments, expected', [
    (['--level_name=gym:Acrobot-v1'], 'level_name=gym:CartPole-v1'),
    (['--network=vector'], 'network=auto'),
    (['--use_lstm'], 'use_lstm=False'),
])
def test_the_logdir_of_another_run_is_refused(
    cartpole, run_main, mode, arguments, expected):
  """Its configuration and checkpoints stay as they are, bit by bit."""
  before = _contents(cartpole)
  error = _error_of(run_main(
      f'--logdir={cartpole}', *_CARTPOLE, f'--mode={mode}', *arguments))
  assert f'--logdir={cartpole} ' in error and expected in error
  assert _contents(cartpole) == before


@pytest.mark.parametrize('where', ['learner', 'policy'])
def test_a_device_without_enough_memory_is_a_line(
    tmp_path, run_main, monkeypatch, where):
  def fail(*unused_args, **unused_kwargs):
    raise tf.errors.ResourceExhaustedError(
        None, None, 'OOM when allocating tensor\nwith shape[9]')

  if where == 'learner':
    monkeypatch.setattr(learner.Learner, 'step', fail)
  else:
    monkeypatch.setattr(policy.Policy, '__call__', fail)
  error = _error_of(run_main(f'--logdir={tmp_path / "run"}', *_CARTPOLE))
  assert 'The memory of a device does not suffice. Lower --batch_size' in error
  assert error.endswith('TensorFlow says: OOM when allocating tensor')


def test_a_missing_package_is_named(tmp_path, run_main, monkeypatch):
  monkeypatch.setitem(sys.modules, 'ale_py', None)
  error = _error_of(run_main(f'--logdir={tmp_path / "run"}',
                             '--level_name=pong'))
  assert 'pong' in error and 'pip install ale-py' in error
  assert _contents(tmp_path) == {}


def test_a_missing_rom_is_named(tmp_path, run_main, monkeypatch):
  from ale_py import roms

  def no_rom(unused_name):
    raise FileNotFoundError('no ROM\nhere')

  monkeypatch.setattr(roms, 'get_rom_path', no_rom)
  error = _error_of(run_main(f'--logdir={tmp_path / "run"}',
                             '--level_name=pong'))
  assert 'ROM for pong' in error and 'no ROM here' in error


def test_a_missing_package_of_the_workers_is_named(
    tmp_path, run_main, monkeypatch):
  """They are other interpreters, and their trouble is the program's."""
  (tmp_path / 'gymnasium.py').write_text('raise ImportError("not today")')
  # Whose search path is this process's, which has loaded the true one.
  monkeypatch.syspath_prepend(tmp_path)
  error = _error_of(run_main(f'--logdir={tmp_path / "run"}', *_CARTPOLE,
                             '--total_environment_frames=1000'))
  assert 'Gymnasium cannot be imported: not today' in error
  assert _worker_pids() == []


# -- Trouble on the way -------------------------------------------------------


def test_updates_that_are_not_finite_end_the_run(tmp_path, run_main):
  """After 100 in a row, with the last finite weights saved."""
  logdir = tmp_path / 'run'
  error = _error_of(run_main(
      f'--logdir={logdir}', *_CARTPOLE, '--total_environment_frames=1000000',
      '--learning_rate=1e30', '--gradient_norm_clip=0'))
  assert '100 updates in a row' in error
  assert '--learning_rate' in error and '1e+30' in error
  metrics = _metrics(logdir)
  assert metrics[-1]['skipped'] >= 1
  assert metrics[-1]['grad_norm'] is None
  assert sum(entry['skipped'] for entry in metrics) >= 100
  assert _checkpoint_frames(logdir)[-1] == metrics[-1]['frames']
  values = _checkpoint_floats(logdir)
  # The update was made, and it is the forward pass that overflows.
  assert max(np.abs(value).max() for value in values.values()) > 1e20
  for name, value in values.items():
    assert np.isfinite(value).all(), name


def _worker_pids():
  found = []
  gone = contextlib.suppress(FileNotFoundError, ProcessLookupError)
  for path in glob.glob(f'/proc/{os.getpid()}/task/*/children'):
    pids = []
    with gone, open(path) as f:
      pids = f.read().split()
    for pid in pids:
      with gone, open(f'/proc/{pid}/cmdline', 'rb') as f:
        if b'scalable_agent.environments.pools.worker' in f.read().split(b'\0'):
          found.append(int(pid))
  return found


def test_an_environment_that_keeps_dying_ends_the_run(tmp_path, run_main):
  """With its name, and with what was learned until then saved."""
  logdir = tmp_path / 'run'
  over = threading.Event()

  def kill():
    while not _frames(logdir) and not over.wait(.05):
      pass
    assert len(_worker_pids()) == 2
    while not over.wait(.2):
      for pid in _worker_pids():
        with contextlib.suppress(ProcessLookupError):  # It has been replaced.
          os.kill(pid, signal.SIGKILL)

  killer = threading.Thread(target=kill)
  killer.start()
  try:
    error = _error_of(run_main(f'--logdir={logdir}', *_CARTPOLE))
  finally:
    over.set()
    killer.join()
  assert 'gym:CartPole-v1' in error and 'killed by SIGKILL' in error
  assert 'environments ' in error
  assert _worker_pids() == []
  assert _checkpoint_frames(logdir)[-1] == _frames(logdir)[-1] > 0


# -- Help ---------------------------------------------------------------------


def test_help_lists_every_flag_and_its_unit():
  completed = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.experiment', '--helpfull'],
      cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=_TIMEOUT_SECONDS)
  assert completed.returncode == 0
  text = completed.stdout
  own = flags.FLAGS.get_key_flags_for_module(experiment)
  assert len(own) > 40
  for flag in own:
    name = f'[no]{flag.name}' if flag.boolean else flag.name
    assert f'--{name}:' in text, name
    if flag.name.endswith('_secs'):
      assert 'Seconds' in flag.help
    if flag.name.endswith('_ms'):
      assert 'Milliseconds' in flag.help
  words = ' '.join(text.split())
  assert 'Environment frames to train for' in words
  assert 'Length of an unroll in agent steps' in words
  assert 'in pixels' in words
  assert 'python -m scalable_agent.experiment' in words
