"""The parts of a run, connected: who acts with which weights, what is saved."""

import dataclasses
import functools
import json
import os
import threading
import time

from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.assembly import impala as impala_assembly
from scalable_agent.assembly import reactor as reactor_assembly
from scalable_agent.checkpoints import checkpoint
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import flags as config_flags
from scalable_agent.files import open_files
from scalable_agent.process import signals
from scalable_agent.replay import finite
from scalable_agent.replay import replayed_queue
from scalable_agent.training import actor_threads
from scalable_agent.training import batches
from scalable_agent.training import loop
from scalable_agent.training import not_finite
from scalable_agent.training import replay_watch
from scalable_agent.training import run as run_lib

pytestmark = pytest.mark.usefixtures('bounded')

_DEVICES = devices_lib.Devices(['/cpu:0'], '/cpu:0', False)


def _make_config(logdir, *arguments):
  with flagsaver.flagsaver():
    flags.FLAGS([
        'experiment', '--level_name=synthetic:step_ms=0,size=3,episode_steps=7',
        f'--logdir={logdir}', '--network=vector', '--unroll_length=5',
        '--batch_size=6', '--num_actors=6', '--environment_threads=1',
        *arguments])
    return config_lib.resolve(config_flags.given())


def _make_run(logdir, *arguments):
  """Returns a `Run` of tiny synthetic environments, and its agent."""
  config = _make_config(logdir, *arguments)
  pools = suites.make_pools(
      config, suites.choose_layout(config, config.num_actors), config.seed)
  agent = agent_assembly.create_agent(config, pools[0])
  run = run_lib.Run(
      config, agent, _DEVICES,
      functools.partial(actor_threads.ActorThreads, config, pools))
  return run, agent


@pytest.fixture
def quick(monkeypatch):
  """Learners have a loss whose updates are quickly traced."""

  def create_loss_fn(unused_config, unused_agent):
    return loss_fn

  def loss_fn(params, unused_target_params, batch):
    size = tf.add_n([tf.reduce_sum(tf.square(p)) for p in params.values()])
    priorities = tf.reduce_mean(
        tf.square(batch.unrolls.agent_outputs.policy_logits), [0, 2])
    return size, dict(total_loss=size), priorities

  for algorithm in impala_assembly, reactor_assembly:
    monkeypatch.setattr(algorithm, 'ALGORITHM', dataclasses.replace(
        algorithm.ALGORITHM, create_loss_fn=create_loss_fn))


def _largest_log_rho(logdir, architecture, use_lstm, num_steps=6):
  """Of all actions of some batches, against the weights they are to train.

  In parts of 1 + |log mu|: steps as large as these take log mu to thousands,
  and it is rounded in proportion.
  """
  run, agent = _make_run(
      logdir, f'--architecture={architecture}', f'--use_lstm={use_lstm}',
      '--learning_rate=0.1', '--environment_threads=2')
  largest = 0.
  try:
    for _ in range(num_steps):
      staged = run.batches.next(signals.Stop())
      unrolls = staged[0].unrolls
      (logits, _), _ = agent.unroll(
          run.learner.weights(), unrolls.agent_outputs.action,
          unrolls.env_outputs, unrolls.agent_state)
      log_pi = tf.nn.log_softmax(logits[:-1])
      log_mu = tf.nn.log_softmax(unrolls.agent_outputs.policy_logits[1:])
      largest = max(
          largest, np.max(np.abs(log_pi - log_mu) / (1 + np.abs(log_mu))))
      run.train_on(staged)
  finally:
    run.close()
  return largest


@pytest.mark.parametrize('use_lstm', [False, True])
@pytest.mark.parametrize('architecture', ['a2c_sync_step',
                                          'a2c_sync_trajectory'])
def test_batched_a2c_is_on_policy(tmp_path, architecture, use_lstm):
  """All importance weights are 1, whatever large steps the learner takes."""
  assert _largest_log_rho(tmp_path, architecture, use_lstm) < 1e-5


def test_impala_is_off_policy(tmp_path):
  """Which is what makes the test above one."""
  assert _largest_log_rho(tmp_path, 'impala', False) > 1e-2


def _run_loop(config, start_actors):
  """Trains as `loop.train`, evaluates nothing and shares no replay."""
  loop.train(config, start_actors, None, lambda *unused_args: None,
             lambda unused_config: None)


# -- What is saved, and when --------------------------------------------------


def _train(run, num_updates=1):
  for _ in range(num_updates):
    run.train_on(run.batches.next(signals.Stop()))


@pytest.mark.usefixtures('quick')
def test_states_to_recompute_need_no_replay(tmp_path):
  """A sweep over the share that is replayed begins with none."""
  run, _ = _make_run(tmp_path, '--use_lstm', '--replay_state=recomputed')
  try:
    run.train_on(run.batches.next(signals.Stop()))
    assert run.learner.steps == 1
  finally:
    run.close()


def _frames(logdir):
  """Those of the lines of metrics.jsonl."""
  try:
    lines = (logdir / 'metrics.jsonl').read_text().splitlines()
  except FileNotFoundError:
    return []
  return [json.loads(line)['frames'] for line in lines]


def test_nothing_is_written_before_the_first_batch(tmp_path):
  """A run that gets none leaves the directory to another."""
  run, _ = _make_run(tmp_path)
  run.close()
  run.save()
  assert os.listdir(tmp_path) == []


def test_logs_that_have_lost_their_checkpoints_are_left_alone(tmp_path):
  line = '{"frames": 30}\n'
  (tmp_path / 'metrics.jsonl').write_text(line)
  with pytest.raises(config_lib.ConfigError, match='has logs .* no checkpoint'):
    _make_run(tmp_path)
  assert (tmp_path / 'metrics.jsonl').read_text() == line


@pytest.mark.usefixtures('quick')
def test_the_logs_belong_to_a_checkpoint_from_the_start(tmp_path):
  run, _ = _make_run(tmp_path)
  try:
    _train(run)
    assert checkpoint_files.find(str(tmp_path)) == [str(tmp_path / 'ckpt-0')]
    assert (tmp_path / 'config.json').exists()
    assert not (tmp_path / 'metrics.jsonl').exists()
  finally:
    run.close()


def test_twenty_episodes_are_filmed_over_a_run_and_one_at_its_start(
    tmp_path, monkeypatch):
  run, _ = _make_run(tmp_path, '--total_environment_frames=1000')
  try:
    starts = []
    monkeypatch.setattr(run._actors, 'start_film', lambda: starts.append(
        run.learner.frames))
    for frames in 0, 30, 49, 50, 99, 210, 220, 1000:
      run.learner.num_environment_frames.assign(frames)
      for _ in range(2):
        run.report()
    assert starts == [0, 50, 210, 1000]
  finally:
    run.close()


@pytest.mark.usefixtures('quick')
def test_what_a_run_reports_of_its_updates(tmp_path, monkeypatch):
  """Actions that were taken there, and how many acted at a time."""
  run, _ = _make_run(tmp_path)
  try:
    actions, gauges = [], []
    monkeypatch.setattr(run.reporter, 'step', lambda frames, logs, lags, taken:
                        actions.append(taken))
    monkeypatch.setattr(run.reporter, 'write', lambda steps, values, *args:
                        gauges.append(values))
    monkeypatch.setattr(run, 'take_batch_sizes', lambda: {1: 3, 6: 1})
    staged = run.batches.next(signals.Stop())
    run.train_on(staged)
    run.report()
    np.testing.assert_array_equal(
        actions[0], staged[0].unrolls.agent_outputs.action[1:])
    assert gauges[0]['inference_batch_mean'] == 9 / 4
  finally:
    run.close()


def test_a_checkpoint_is_due_so_long_after_the_last_one(tmp_path, monkeypatch):
  run, _ = _make_run(tmp_path, '--save_checkpoint_secs=100')
  try:
    now = [time.monotonic()]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    assert not run.due().save
    for _ in range(2):
      now[0] += 101.
      assert run.due().save
      run.save()
      assert not run.due().save
      now[0] += 90.
      assert not run.due().save
  finally:
    monkeypatch.undo()
    run.close()


@pytest.mark.usefixtures('quick')
def test_what_was_not_reported_is_written_at_the_end(tmp_path):
  run, _ = _make_run(tmp_path)
  try:
    _train(run, 2)
    run.save_last()
  finally:
    run.close()
  (line,) = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  assert json.loads(line)['learner_steps'] == 2


@pytest.mark.usefixtures('quick')
def test_the_last_checkpoint_is_saved_even_if_what_is_left_cannot_be_reported(
    tmp_path, monkeypatch):
  run, _ = _make_run(tmp_path)

  def fail():
    raise ValueError('No such figure.')

  try:
    _train(run, 2)
    monkeypatch.setattr(run, 'report', fail)
    with pytest.raises(ValueError, match='No such figure'):
      run.save_last()
  finally:
    run.close()
  assert checkpoint_files.newest_frames(str(tmp_path)) == 60


@pytest.mark.usefixtures('quick')
def test_the_last_checkpoint_does_not_wait_for_environments(tmp_path):
  """What ends the run may give them less time than they take to end."""
  config = _make_config(tmp_path, '--total_environment_frames=60')
  saved = []

  def start_actors(config, stack):
    facts, make_actors = actor_threads.start(config, stack)

    def make_noting(*args):
      actors = make_actors(*args)
      close = actors.close

      def note_and_close():
        saved.append((checkpoint_files.newest_frames(str(tmp_path)),
                      _frames(tmp_path)[-1:]))
        close()

      actors.close = note_and_close
      return actors

    return facts, make_noting

  _run_loop(config, start_actors)
  assert saved == [(60, [60])]


@pytest.mark.usefixtures('quick')
def test_a_directory_that_is_gone_for_a_while(tmp_path, caplog):
  """Training goes on, the log says why nothing is saved, nothing is lost."""
  logdir, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
  logdir.mkdir()
  run, _ = _make_run(logdir, '--max_failed_saves=3')
  try:
    _train(run)
    run.report()
    logdir.rename(elsewhere)
    for i in range(1, 3):
      _train(run)
      run.report()
      run.save()
      warning = caplog.records[-1].getMessage()
      assert f'could not be saved to --logdir={logdir}: No such file' in warning
      assert 'The newest checkpoint is of frame 0.' in warning
      assert f'row: {i} of at most --max_failed_saves=3.' in warning
    with pytest.raises(checkpoint.CheckpointError, match='could not be saved'):
      run.check_saved()
    elsewhere.rename(logdir)
    run.save()
    run.check_saved()
  finally:
    run.close()
  frames = [json.loads(line)['frames']
            for line in (logdir / 'metrics.jsonl').read_text().splitlines()]
  assert frames == [30, 60, 90]
  assert checkpoint_files.newest_frames(str(logdir)) == 90


@pytest.mark.usefixtures('quick')
def test_training_gives_up_after_so_many_failed_saves(tmp_path, caplog):
  logdir = tmp_path / 'run'
  logdir.mkdir()
  run, _ = _make_run(logdir, '--max_failed_saves=2')
  try:
    _train(run)
    logdir.rename(tmp_path / 'elsewhere')
    run.save()
    with pytest.raises(checkpoint.CheckpointError) as caught:
      run.save()
    assert str(caught.value).endswith(
        'These were 2 failed saves in a row, and --max_failed_saves is 2.')
    assert '\n' not in str(caught.value)
    run.save_last()
    (warning,) = [record.getMessage() for record in caplog.records
                  if 'Failed saves' in record.getMessage()]
    assert warning.endswith('row: 1 of at most --max_failed_saves=2.')
  finally:
    run.close()


@pytest.mark.usefixtures('quick')
def test_logs_that_cannot_be_written_keep_the_checkpoint_back(tmp_path):
  """A run that resumes from it would have a hole in its logs."""
  run, _ = _make_run(tmp_path)
  try:
    _train(run)
    run.report()
    os.remove(tmp_path / 'metrics.jsonl')
    (tmp_path / 'metrics.jsonl').mkdir()
    _train(run)
    run.report()
    run.save()
    assert checkpoint_files.newest_frames(str(tmp_path)) == 0
    (tmp_path / 'metrics.jsonl').rmdir()
    run.save()
    assert checkpoint_files.newest_frames(str(tmp_path)) == 60
  finally:
    run.close()


@pytest.mark.usefixtures('quick')
def test_a_run_that_has_made_the_updates_to_trace_goes_on(tmp_path, caplog):
  """As one that was killed, and is started again by the same command."""
  run, _ = _make_run(tmp_path)
  _train(run, 2)
  run.close()
  run.save_last()
  run, _ = _make_run(tmp_path, '--profile_updates=0:1')
  try:
    _train(run, 1)
  finally:
    run.close()
  assert 'No trace is written (--profile_updates=0:1)' in caplog.text
  assert not (tmp_path / 'plugins').exists()


@pytest.mark.parametrize('refused_by', ['reporter', 'actors'])
@pytest.mark.usefixtures('quick')
def test_a_run_that_is_refused_leaves_nothing_open(
    tmp_path, monkeypatch, refused_by):
  config = _make_config(tmp_path)

  def refuse(*unused_args):
    raise config_lib.ConfigError('refused')

  def start_actors(config, stack):
    facts, make_actors = actor_threads.start(config, stack)
    return facts, refuse if refused_by == 'actors' else make_actors

  if refused_by == 'reporter':
    monkeypatch.setattr(run_lib.metrics, 'Reporter', refuse)

  def train():
    with pytest.raises(config_lib.ConfigError, match='refused'):
      _run_loop(config, start_actors)

  train()  # What TensorFlow opens stays.
  before, threads = open_files.count(), set(threading.enumerate())
  train()
  assert open_files.count() <= before
  assert set(threading.enumerate()) <= threads
  assert 'staging' not in {thread.name for thread in threads}


def test_a_part_that_fails_to_close_leaves_no_other_open(tmp_path, monkeypatch):
  before = set(threading.enumerate())
  run, _ = _make_run(tmp_path)
  close = run._staging.close

  def close_and_fail():
    close()
    raise ValueError('It does not close.')

  monkeypatch.setattr(run._staging, 'close', close_and_fail)
  with pytest.raises(ValueError, match='It does not close'):
    run.close()
  assert not [thread.name for thread in set(threading.enumerate()) - before
              if thread.name.startswith('actor')]
  assert not len(run._saver._reserve)


def test_environments_that_return_nan_are_named():
  """Whether it is in a reward, in an observation, or was in an earlier one."""
  reward, state = np.zeros([3, 4], np.float32), np.zeros([4, 2])
  frame, vector = np.zeros([3, 4, 2, 2], np.uint8), np.zeros([3, 4, 5])
  batch = lambda: trajectories.new_batch(trajectories.ActorOutput(
      level_name=['a', 'b', 'c', 'b'], agent_state=(state,), agent_outputs=None,
      policy_version=np.zeros([4]),
      env_outputs=environments.StepOutput(
          reward, None, None, (frame, vector))))
  find = lambda clipping='none': not_finite.levels_with_nan(batch(), clipping)
  assert find() == []
  reward[0, 2] = np.inf
  assert find() == ['c']
  # The learner sees the largest of clipped rewards.
  assert find('abs_one') == find('soft_asymmetric') == []
  reward[0, 2], reward[2, 1] = 0., np.nan
  assert find() == find('abs_one') == find('soft_asymmetric') == ['b']
  vector[0, 3, 4] = np.inf
  vector[1, 0, 0] = -np.inf
  assert find() == ['a', 'b']
  state[2, 1] = np.nan
  assert find() == ['a', 'b', 'c']
  for count in 1, 3:
    line = not_finite.explain(config_lib.resolve(dict(
        level_name='synthetic:', keep_checkpoints=count)), 100, batch())
    # With the last checkpoint the one before is gone.
    assert ('the one before it' in line) == (count > 1)
    assert '\n' not in line


@pytest.mark.usefixtures('quick')
def test_a_run_that_was_stopped_for_long_goes_on(tmp_path, monkeypatch):
  """After SIGCONT there is no batch yet, and hours seem to have passed."""
  run, _ = _make_run(
      tmp_path, '--level_name=synthetic:step_ms=200,size=3,episode_steps=7',
      '--batch_timeout_secs=100')
  try:
    run.train_on(run.batches.next(signals.Stop()))
    monotonic, wall = time.monotonic, time.time
    monkeypatch.setattr(time, 'monotonic', lambda: monotonic() + 300.)
    monkeypatch.setattr(time, 'time', lambda: wall() + 300.)
    run.train_on(run.batches.next(signals.Stop()))
  finally:
    run.close()


def test_a_run_without_batches_ends(tmp_path):
  run, _ = _make_run(
      tmp_path, '--level_name=synthetic:step_ms=2000,size=3,episode_steps=7',
      '--batch_timeout_secs=2')
  try:
    with pytest.raises(batches.TrainingError, match='No batch of 6 unrolls'):
      run.batches.next(signals.Stop())
  finally:
    run.close()


def test_a_run_that_others_hold_up_goes_on(tmp_path, monkeypatch):
  """The replay job lets it go on before long."""
  run, _ = _make_run(
      tmp_path, '--level_name=synthetic:step_ms=2000,size=3,episode_steps=7',
      '--batch_timeout_secs=1')
  try:
    monkeypatch.setattr(run.batches._replay_watch, 'is_held', lambda: True)
    assert run.batches.next(signals.Stop(), seconds=3.) is None
  finally:
    run.close()


@pytest.mark.parametrize('is_expected', [True, False])
def test_the_lock_is_as_new_as_the_last_wait_for_nothing(
    tmp_path, monkeypatch, is_expected):
  """Which tells the health check that the run does not hang."""
  lock = tmp_path / 'lock'
  lock.write_text('')
  os.utime(lock, (0, 0))
  run, _ = _make_run(
      tmp_path, '--level_name=synthetic:step_ms=2000,size=3,episode_steps=7')
  try:
    monkeypatch.setattr(run._actors, 'are_expected', lambda: is_expected)
    assert run.batches.next(signals.Stop(), seconds=1.) is None
    assert (time.time() - lock.stat().st_mtime < 60.) == (not is_expected)
  finally:
    run.close()


@pytest.mark.usefixtures('quick')
def test_while_replay_fills_nobody_waits(tmp_path, monkeypatch, caplog):
  """Eight unrolls a second, of which the first update needs 40."""
  monkeypatch.setattr(replay_watch, '_FILL_LOG_SECONDS', 1.)
  started = time.monotonic()
  run, _ = _make_run(
      tmp_path, '--level_name=synthetic:step_ms=50,size=3,episode_steps=7',
      '--agent=reactor', '--v_min=0', '--v_max=1', '--replay_min_steps=200',
      '--replay_steps=2000', '--batch_timeout_secs=3')
  try:
    batch = run.batches.next(signals.Stop())
    assert run._source.filling() is None
    run.train_on(batch)
    assert time.monotonic() - started > 3.5
    assert ' of the 200 agent steps that the first update needs' in caplog.text
  finally:
    run.close()


@pytest.mark.usefixtures('quick')
def test_priorities_go_back_by_the_keys_of_their_batch(tmp_path, monkeypatch):
  """Those of an update that was skipped do not: they are not finite."""
  run, _ = _make_run(
      tmp_path, '--agent=reactor', '--replay_min_steps=60', '--v_min=-1',
      '--v_max=10')
  given, returned = [], []
  monkeypatch.setattr(
      run._source, 'update', lambda *arguments: given.append(arguments))
  update, is_skipped = run._update, False

  def update_and_note(placed):
    logs, priorities = update(placed)
    returned.append(priorities)
    return dict(logs, skipped=float(is_skipped)), priorities

  monkeypatch.setattr(run, '_update', update_and_note)
  try:
    keys = []
    for _ in range(3):
      staged = run.batches.next(signals.Stop())
      keys.append(staged[0].keys.copy())
      run.train_on(staged)
    assert len(given) == 3
    np.testing.assert_array_equal([call[0] for call in given], keys)
    np.testing.assert_array_equal([call[1] for call in given], returned)
    for values in keys[1:], returned[1:]:
      assert len(np.unique(values)) > len(values[0])  # They can be told apart.
    is_skipped = True
    run.train_on(run.batches.next(signals.Stop()))
    assert len(given) == 3 and returned[3] is not None
  finally:
    run.close()


def test_a_replay_that_keeps_nothing_ends_the_run(tmp_path, monkeypatch):
  def leave_out(self, unused_unroll):
    self.num_left_out += 1
    return False

  monkeypatch.setattr(finite.FiniteFilter, 'passes', leave_out)
  run, _ = _make_run(
      tmp_path, '--agent=reactor', '--v_min=0', '--v_max=1',
      '--replay_min_steps=200', '--replay_steps=2000')
  try:
    with pytest.raises(batches.TrainingError,
                       match='no unroll, the last of synthetic:'):
      run.batches.next(signals.Stop())
  finally:
    run.close()


def test_environments_that_are_stuck_fill_no_replay(tmp_path):
  run, _ = _make_run(
      tmp_path, '--level_name=synthetic:step_ms=2000,size=3,episode_steps=7',
      '--agent=reactor', '--v_min=0', '--v_max=1', '--replay_min_steps=200',
      '--replay_steps=2000', '--batch_timeout_secs=2')
  try:
    with pytest.raises(batches.TrainingError, match='No batch of 6 unrolls'):
      run.batches.next(signals.Stop())
  finally:
    run.close()


@pytest.mark.usefixtures('quick')
def test_states_are_recomputed_with_the_newest_weights(tmp_path, monkeypatch):
  """From the start, and whatever older ones the actors have."""
  published = []
  publish = replayed_queue.ReplayedQueue.publish

  def record(source, weights):
    published.append(weights)
    publish(source, weights)

  monkeypatch.setattr(replayed_queue.ReplayedQueue, 'publish', record)
  run, _ = _make_run(
      tmp_path, '--use_lstm', '--replay_state=recomputed',
      '--replay_proportion=0.5', '--policy_lag=2')
  try:
    newest = [run.learner.weights()]
    for _ in range(3):
      _train(run)
      newest.append(run.learner.weights())
  finally:
    run.close()
  is_same = lambda a, b: all(np.array_equal(a[name], b[name]) for name in a)
  assert [[is_same(a, b) for b in newest] for a in published] == (
      np.eye(4, dtype=bool).tolist())
