"""Reactor through the program: trained, resumed, tested, exported, in jobs."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import scalable_agent
from tests import test_experiment
from tests.jobs import test_jobs
from tests.test_experiment import _error_of
from tests.test_experiment import Preloaded
from tests.test_experiment import run_main  # pylint: disable=unused-import
from tests.training import test_several_learners

_T, _MIN_STEPS, _STEPS_PER_UPDATE = 4, 66, 1.5
_SETTINGS = (
    '--agent=reactor', '--level_name=gym:CartPole-v1', '--v_min=0',
    '--v_max=100', '--batch_size=2', f'--unroll_length={_T}',
    f'--replay_min_steps={_MIN_STEPS}', '--replay_steps=4096',
    f'--steps_per_update={_STEPS_PER_UPDATE}', '--log_interval_secs=0.05')
_ALONE = (*_SETTINGS, '--num_actors=2', '--environment_threads=1')
_TOTAL = 500
# Updates: fewer than `finished` makes, but another one comes after the end of
# the run that resumes it.
_TARGET_PERIOD = 250


def _frames_after(num_updates, steps_per_update=_STEPS_PER_UPDATE):
  """Environment frames of a start's updates: what is acted for them.

  The first one takes what replay has to hold, each further one adds its share,
  in whole unrolls.
  """
  return _T * (math.ceil(_MIN_STEPS / _T) +
               math.floor((num_updates - 1) * steps_per_update / _T))


def _check_ratio(metrics, frames_before=0, updates_before=0):
  for entry in metrics:
    assert entry['frames'] - frames_before == _frames_after(
        entry['learner_steps'] - updates_before)
  # A line says how often each frame since the line before was trained on.
  frames = np.diff([frames_before] + [entry['frames'] for entry in metrics])
  updates = np.diff(
      [updates_before] + [entry['learner_steps'] for entry in metrics])
  for entry, new_frames, new_updates in zip(metrics, frames, updates):
    assert entry.get('updates_per_frame') == (
        pytest.approx(new_updates / new_frames) if new_frames else None)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run, whose target weights are those of one of its updates."""
  with Preloaded(tmp_path_factory.mktemp('reactor') / 'run', *_ALONE,
                 f'--target_update_period={_TARGET_PERIOD}',
                 f'--total_environment_frames={_TOTAL}') as program:
    assert program.wait() == 0, program.output()[-4000:]
  return program


@pytest.fixture
def logdir(finished, tmp_path):
  """A copy of its directory."""
  return shutil.copytree(finished.logdir, tmp_path / 'run')


def test_frames_are_those_that_were_acted(finished):
  metrics = test_experiment._metrics(finished.logdir)
  _check_ratio(metrics)
  assert metrics[-1]['learner_steps'] > 280
  assert _TOTAL <= metrics[-1]['frames'] < _TOTAL + _T


def test_metrics_have_every_key(finished):
  metrics = test_experiment._metrics(finished.logdir)
  assert any('time_replay_draw' in entry for entry in metrics)
  for entry in metrics:
    assert set(entry) >= {
        'total_loss', 'critic_loss', 'policy_gradient_loss', 'entropy_loss',
        'behaviour_kl', 'target_clipped', 'retrace_c_mean', 'priority_mean',
        'known_priorities', 'importance_weight_max', 'replay_sequences',
        'policy_lag_mean', 'time_replay_update'}
    assert all(np.isfinite(value) for value in entry.values())
    np.testing.assert_allclose(
        entry['total_loss'], entry['critic_loss'] +
        entry['policy_gradient_loss'] + entry['entropy_loss'], rtol=1e-3)
    assert entry['learning_rate'] == pytest.approx(.00005)
    assert 0 < entry['retrace_c_mean'] <= 1 and entry['priority_mean'] > 0
    assert entry['skipped'] == 0
  assert 0 < entry['known_priorities'] <= 1
  # Each of two environments has so many entries, and no key without T more.
  assert entry['replay_sequences'] <= entry['frames'] + 2 - 2 * _T
  assert entry['replay_sequences'] > entry['frames'] - 4 * _T


def test_the_memory_of_replay_is_said(finished):
  assert re.search(r'Replay will take \d+ kB of memory when it is full: '
                   r'--replay_steps=4096 steps of \d+ bytes\.',
                   finished.output())


@pytest.mark.parametrize('frame_stack', [1, 4])
def test_atari_is_trained_on(tmp_path, run_main, frame_stack):
  """On single frames unless stacks are asked for."""
  logdir = tmp_path / 'run'
  stacks = [] if frame_stack == 1 else [f'--frame_stack={frame_stack}']
  result = run_main(
      f'--logdir={logdir}', '--agent=reactor', '--level_name=pong',
      '--width=36', '--height=36', '--num_actors=2', '--environment_threads=1',
      '--batch_size=2', f'--unroll_length={_T}', '--replay_steps=512',
      f'--replay_min_steps={_MIN_STEPS}', '--log_interval_secs=0.05',
      '--total_environment_frames=400', *stacks)
  assert result.code == 0, result
  last = test_experiment._metrics(logdir)[-1]
  assert last['learner_steps'] > 5 and last['skipped'] == 0
  assert 0 < last['known_priorities'] <= 1
  kernels = [value for value in test_experiment._checkpoint_floats(
      logdir).values() if value.ndim == 4]
  assert {kernel.shape[2] for kernel in kernels} >= {frame_stack}


def _target_weights(path):
  """The target weights of a checkpoint, a dict of name to array.

  Args:
    path: Of the checkpoint, or of a directory for its newest.
  """
  return {name: value
          for name, value in test_experiment._checkpoint_floats(path).items()
          if name.startswith('target_params/')}


def _differ(weights, others):
  return any(np.any(others[name] != value) for name, value in weights.items())


def test_a_resumed_run_goes_on_and_fills_its_replay_again(logdir, run_main):
  """With counters and target weights of the checkpoint, and new priorities."""
  before = test_experiment._metrics(logdir)
  targets = _target_weights(logdir)
  # Neither those of a new run nor the newest would pass for them.
  assert _differ(targets, _target_weights(logdir / 'ckpt-0'))
  params = test_experiment._checkpoint_floats(logdir)
  assert _differ(targets, {f'target_{name}': value
                           for name, value in params.items()})
  result = run_main(f'--logdir={logdir}', f'--total_environment_frames={800}')
  assert result.code == 0, result
  metrics = test_experiment._metrics(logdir)
  assert metrics[:len(before)] == before
  new = metrics[len(before):]
  _check_ratio(new, before[-1]['frames'], before[-1]['learner_steps'])
  assert metrics[-1]['frames'] >= 800
  first = new[0]
  num_updates = first['learner_steps'] - before[-1]['learner_steps']
  assert first['known_priorities'] * first['replay_sequences'] <= (
      2 * num_updates)
  assert (before[-1]['learner_steps'] // _TARGET_PERIOD ==
          metrics[-1]['learner_steps'] // _TARGET_PERIOD == 1)
  after = _target_weights(logdir)
  assert targets.keys() == after.keys()
  for name, value in targets.items():
    np.testing.assert_array_equal(after[name], value)


def test_the_target_network_is_taken_up_at_its_period(tmp_path, run_main):
  """At every third update here, and not at the last but one."""
  logdir = tmp_path / 'run'
  assert run_main(f'--logdir={logdir}', *_ALONE, '--target_update_period=3',
                  '--steps_per_update=4', '--learning_rate=0.01',
                  f'--total_environment_frames={_T * 17 + 4 * 5}').code == 0
  (last,) = test_experiment._metrics(logdir)[-1:]
  assert last['learner_steps'] == 6
  floats = test_experiment._checkpoint_floats(logdir)
  for name, value in _target_weights(logdir).items():
    np.testing.assert_array_equal(
        floats[name.removeprefix('target_')], value)


def test_test_mode_scores_whole_games(finished, logdir, run_main):
  assert run_main(f'--logdir={logdir}', '--mode=test',
                  '--test_num_episodes=3').code == 0
  with open(logdir / 'test_scores.json') as f:
    scores = json.load(f)
  assert scores['frames'] == test_experiment._frames(finished.logdir)[-1]
  returns = scores['levels']['gym:CartPole-v1']['episode_returns']
  assert len(returns) == 3 and min(returns) >= 8


def test_an_export_acts_with_the_policy_as_a_loaded_agent_does(
    logdir, run_main):
  """The same logits, values and actions, over episodes that end."""
  assert run_main('--mode=export', f'--logdir={logdir}').code == 0
  signatures = tf.saved_model.load(str(logdir / 'export')).signatures
  rng, size = np.random.default_rng(0), 5
  state = signatures['initial_state'](
      batch_size=tf.constant(size), seed=tf.constant(3))
  assert {name for name in state if 'core' in name} == {
      f'core_{i}_{part}' for i in range(2) for part in 'ch'}
  policy = scalable_agent.load(logdir, seed=3)
  for _ in range(6):
    frame = rng.normal(size=[size, 4]).astype(np.float32)
    reward, done = np.ones([size], np.float32), rng.random(size) < .3
    output = signatures['step'](
        frame=tf.constant(frame), reward=tf.constant(reward),
        done=tf.constant(done), **state)
    state = {name: output[name] for name in state}
    loaded = policy.step(frame, reward, done)
    for name in ('policy_logits', 'baseline'):
      np.testing.assert_allclose(
          output[name], getattr(loaded, name), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(output['action'], loaded.action)
    probabilities = np.exp(loaded.policy_logits)
    # The mixture with the uniform policy is what is exported.
    np.testing.assert_allclose(probabilities.sum(-1), 1., rtol=1e-5)
    assert probabilities.min() >= .01 / 2 - 1e-6


@pytest.mark.parametrize('inference', ['actor', 'learner'])
def test_actor_jobs(tmp_path, inference):
  """Joined to sequences, whichever end has the policy."""
  with test_jobs.Jobs(tmp_path, *_SETTINGS, f'--inference={inference}') as jobs:
    actor = jobs.actor(0)
    learner = jobs.learner(f'--total_environment_frames={_TOTAL}')
    test_jobs._assert_ends_well(learner, actor)
    metrics = test_experiment._metrics(jobs.logdir)
  _check_ratio(metrics)
  assert metrics[-1]['frames'] >= _TOTAL
  # Environments that were taken for others in every unroll would have a
  # sequence in each, of T entries that could start one.
  assert metrics[-1]['replay_sequences'] > _TOTAL - 4 * _T


def test_several_learners_act_at_the_ratio_together(tmp_path):
  """Each with a replay of its own; all end with the same weights."""
  num_learners = 2
  with test_several_learners.Jobs(tmp_path) as jobs:
    for job in ('actor', 'learner'):
      for task in range(num_learners):
        jobs.start(job, task, *_SETTINGS, '--inference=learner',
                   '--batch_size=4', '--target_update_period=50',
                   f'--total_environment_frames={_TOTAL}')
    for job in ('learner', 'actor'):
      for task in range(num_learners):
        jobs.assert_code(0, job, task)
    hashes = jobs.hashes(0)
    assert hashes == jobs.hashes(1) and hashes
    for entry in test_experiment._metrics(jobs.logdir):
      assert entry['frames'] == num_learners * _frames_after(
          entry['learner_steps'], _STEPS_PER_UPDATE / num_learners)
    assert entry['learner_steps'] > 200 and entry['known_priorities'] > 0


@pytest.mark.parametrize('arguments, expected', [
    (['--agent=reactor', '--level_name=pong', '--replay_proportion=0.5'],
     '--replay_proportion=0.5 cannot work: it is a setting of --agent=impala, '
     'and this is --agent=reactor.'),
    (['--level_name=pong', '--steps_per_update=6'],
     '--steps_per_update=6.0 cannot work: it is a setting of --agent=reactor, '
     'and this is --agent=impala.'),
    (['--agent=reactor', '--level_name=gym:CartPole-v1'],
     '--v_min=-10.0 cannot work: that is for rewards clipped as on Atari; '
     'with --reward_clipping=none give '),
    ([*_ALONE, '--replay_steps=100000000000'],
     '--replay_steps=100000000000 cannot work: its steps of '),
    ([*_ALONE, '--replay_steps=511', '--unroll_length=32'],
     '--replay_steps=511 cannot work: it is kept in lanes of 128 steps of an '
     'environment, of which each of --num_actors=2 needs two. Give 512.')])
def test_what_cannot_work_gets_one_line(tmp_path, run_main, arguments,
                                        expected):
  error = _error_of(run_main(f'--logdir={tmp_path / "run"}', *arguments))
  assert error.startswith(f'Error: {expected}')
  assert test_experiment._contents(tmp_path) == {}


def test_the_run_of_another_agent_is_refused(logdir, run_main):
  before = test_experiment._contents(logdir)
  error = _error_of(run_main(f'--logdir={logdir}', '--agent=impala'))
  assert f'--logdir={logdir} ' in error and 'agent=reactor' in error
  assert test_experiment._contents(logdir) == before
