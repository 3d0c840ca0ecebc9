import collections
import glob
import logging as python_logging
import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import checkpoint
from scalable_agent import learner as learner_lib
from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from tests import learners

_NUM_ACTIONS, _T, _B = learners.NUM_ACTIONS, learners.T, learners.B
_LOSS, _OPTIMIZER = learners.LOSS, learners.OPTIMIZER
_agent, _batch = learners.make_agent, learners.make_batch
_make_learner = learners.make_learner

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture(params=['one', 'mirrored'])
def strategy(request, mirrored):
  return mirrored if request.param == 'mirrored' else None


def _step(learner, batch):
  return learner.step(learner.place(batch))


def _numpy(weights):
  return {name: value.numpy() for name, value in weights.items()}


def _locals(learner, replica):
  """Weights, mean squares and momenta as one replica has them."""
  local = lambda v: getattr(v, 'values', [v])[replica].numpy()
  return [[local(v) for v in some] for some in (
      learner.params.values(), learner.optimizer.mean_square,
      learner.optimizer.momentum)]


def _assert_equal(actual, expected):
  tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)


def _assert_close(actual, expected, tolerance):
  tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(
          a, b, rtol=tolerance, atol=tolerance), actual, expected)


class _ScriptedAgent:
  """Its outputs are its weights; it remembers what it was given."""

  def unroll(self, params, last_actions, env_outputs, core_state):
    self.given = last_actions, env_outputs, core_state
    return (params['logits'], params['baseline']), core_state


def _slow_loss(settings, logits, baseline, batch):
  """The loss with every index written out, and its gradient by hand.

  The k-th step of an unroll, from 0, is taken on seeing entry k; its action,
  reward and end are in entry k + 1.
  """
  actor, env = batch.agent_outputs, batch.env_outputs
  softmax = lambda x: np.exp(x) / np.exp(x).sum()
  parts = collections.Counter()
  logits_gradient = np.zeros(logits.shape)
  baseline_gradient = np.zeros(baseline.shape)
  for b in range(_B):
    pi = [softmax(logits[k, b]) for k in range(_T)]
    mu = [softmax(actor.policy_logits[k + 1, b]) for k in range(_T)]
    action = [actor.action[k + 1, b] for k in range(_T)]
    reward = [np.clip(env.reward[k + 1, b], -1, 1) for k in range(_T)]
    discount = [0. if env.done[k + 1, b] else settings.discounting
                for k in range(_T)]
    rho = [pi[k][action[k]] / mu[k][action[k]] for k in range(_T)]
    vs = [0.] * _T + [baseline[_T, b]]
    for k in reversed(range(_T)):
      delta = min(settings.clip_rho_threshold, rho[k]) * (
          reward[k] + discount[k] * baseline[k + 1, b] - baseline[k, b])
      vs[k] = baseline[k, b] + delta + (
          discount[k] * settings.lambda_ * min(1., rho[k]) *
          (vs[k + 1] - baseline[k + 1, b]))
    for k in range(_T):
      advantage = min(settings.clip_pg_rho_threshold, rho[k]) * (
          reward[k] + discount[k] * vs[k + 1] - baseline[k, b])
      entropy = -(pi[k] * np.log(pi[k])).sum()
      parts['policy_gradient_loss'] -= np.log(pi[k][action[k]]) * advantage
      parts['baseline_loss'] += (
          settings.baseline_cost * .5 * (vs[k] - baseline[k, b]) ** 2)
      parts['entropy_loss'] -= settings.entropy_cost * entropy
      logits_gradient[k, b] = (
          advantage * (pi[k] - np.eye(_NUM_ACTIONS)[action[k]]) +
          settings.entropy_cost * pi[k] * (np.log(pi[k]) + entropy))
      baseline_gradient[k, b] = (
          -settings.baseline_cost * (vs[k] - baseline[k, b]))
  parts['total_loss'] = sum(parts.values())
  return parts, logits_gradient, baseline_gradient


def test_compute_loss():
  """Values and gradients equal a slow transcription with its own indices."""
  rng = np.random.default_rng(0)
  batch = _batch(0)
  assert batch.env_outputs.done[1:].any()
  settings = _LOSS._replace(
      entropy_cost=.3, clip_rho_threshold=1.2, clip_pg_rho_threshold=.9,
      lambda_=.8)
  params = dict(
      logits=tf.constant(rng.normal(size=[_T + 1, _B, 3]), tf.float32),
      baseline=tf.constant(rng.normal(size=[_T + 1, _B]), tf.float32))
  agent = _ScriptedAgent()
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, logs = learner_lib.compute_loss(
        agent, settings, params, batch.agent_state, batch.env_outputs,
        batch.agent_outputs)
  gradients = tape.gradient(loss, params)

  parts, logits_gradient, baseline_gradient = _slow_loss(
      settings, *(value.numpy() for value in params.values()), batch)
  np.testing.assert_allclose(loss, parts['total_loss'], rtol=1e-5)
  assert set(logs) == set(parts)
  for name, value in logs.items():
    np.testing.assert_allclose(value, parts[name], rtol=1e-5, err_msg=name)
  np.testing.assert_allclose(
      gradients['logits'], logits_gradient, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
      gradients['baseline'], baseline_gradient, rtol=1e-4, atol=1e-5)
  # The network itself sees all T+1 entries as they are.
  _assert_equal(agent.given, (batch.agent_outputs.action, batch.env_outputs,
                              batch.agent_state))


def test_loss_of_the_real_agent():
  """The real network's outputs enter the same loss."""
  batch = _batch(1, use_lstm=True)
  agent = _agent(use_lstm=True)
  params = agent.initial_params(0)
  _, logs = learner_lib.compute_loss(
      agent, _LOSS, params, batch.agent_state, batch.env_outputs,
      batch.agent_outputs)
  (logits, baseline), _ = agent.unroll(
      params, batch.agent_outputs.action, batch.env_outputs, batch.agent_state)
  parts, _, _ = _slow_loss(_LOSS, logits.numpy(), baseline.numpy(), batch)
  for name, value in logs.items():
    np.testing.assert_allclose(value, parts[name], rtol=1e-4, err_msg=name)


def test_one_replica_per_device():
  strategies = [learner_lib.create_strategy(devices)
                for devices in (['/cpu:1'], ['/cpu:0', '/cpu:1'])]
  assert [strategy.num_replicas_in_sync for strategy in strategies] == [1, 2]
  with strategies[0].scope():
    assert tf.Variable(0.).device.endswith('CPU:1')


@pytest.mark.parametrize('mode, expected', [
    ('abs_one', 1.), ('soft_asymmetric', 5 * np.tanh(2.)), ('none', 10.)])
def test_reward_clipping_is_the_settings(mode, expected):
  """With V = 0, no discount and pi = mu, the target is the clipped reward."""
  batch = _batch(0)
  batch = batch._replace(
      env_outputs=batch.env_outputs._replace(
          reward=np.full([_T + 1, _B], 10., np.float32)))
  params = dict(logits=batch.agent_outputs.policy_logits,
                baseline=np.zeros([_T + 1, _B], np.float32))
  params['logits'] = np.roll(params['logits'], -1, axis=0)
  _, logs = learner_lib.compute_loss(
      _ScriptedAgent(), _LOSS._replace(reward_clipping=mode, discounting=0.),
      params, batch.agent_state, batch.env_outputs, batch.agent_outputs)
  np.testing.assert_allclose(
      logs['baseline_loss'], .5 * .5 * _T * _B * expected ** 2, rtol=1e-5)


def test_annealed_learning_rate():
  """From all of it to 0 on a line, and 0 beyond."""
  rates = [learner_lib.annealed_learning_rate(.4, frames, 1000)
           for frames in (0, 250, 500, 1000, 1001, 10 ** 9)]
  np.testing.assert_allclose(rates, [.4, .3, .2, 0., 0., 0.], atol=1e-15)


def test_steps_leave_nothing_behind():
  """TensorFlow would keep a Python number that it converts for ever."""
  learner = _make_learner()
  logs = learner.step(learner.place(_batch(0)))
  assert (sys.getrefcount(logs['learning_rate']) ==
          sys.getrefcount(logs['grad_norm']))


def test_step_anneals_and_counts_frames():
  """The first update has the full rate, and those after the end do nothing."""
  learner = _make_learner(
      optimizer=_OPTIMIZER._replace(total_environment_frames=160, momentum=0.))
  rates, changed = [], []
  for i in range(4):
    before = _numpy(learner.weights())
    rates.append(_step(learner, _batch(i))['learning_rate'])
    after = _numpy(learner.weights())
    changed.append(any((before[k] != after[k]).any() for k in before))
    assert (learner.frames, learner.steps) == (80 * (i + 1), i + 1)
  np.testing.assert_allclose(rates, [.003, .0015, 0., 0.], atol=1e-12)
  assert changed == [True, True, False, False]


def _assert_replicas_equal_one(mirrored, batches, agent, optimizer, tolerance):
  one = _make_learner(agent, optimizer=optimizer)
  two = _make_learner(agent, mirrored, optimizer=optimizer)
  initial = _locals(one, 0)
  for batch in batches:
    logs, other_logs = _step(one, batch), _step(two, batch)
    assert set(logs) == set(other_logs)
    for name, value in logs.items():
      assert other_logs[name] == pytest.approx(value, 1e-3, 1e-4), name
  assert max(np.abs(a - b).max()
             for a, b in zip(_locals(one, 0)[0], initial[0])) > 1e-3
  _assert_close(_locals(two, 0), _locals(one, 0), tolerance)
  _assert_equal(_locals(two, 0), _locals(two, 1))
  _assert_equal(list(_numpy(two.weights()).values()), _locals(two, 0)[0])
  assert (one.frames, one.steps) == (two.frames, two.steps)


@pytest.mark.parametrize('gradient_norm_clip', [0., 2.])
def test_two_replicas_equal_one_learner(mirrored, gradient_norm_clip):
  """Halves of the batch on two devices train to the same weights and slots."""
  _assert_replicas_equal_one(
      mirrored, [_batch(seed, use_lstm=True) for seed in range(20)],
      _agent(use_lstm=True),
      _OPTIMIZER._replace(gradient_norm_clip=gradient_norm_clip), 1e-5)


def test_two_replicas_equal_one_learner_shallow(mirrored):
  """The same with convolutions and without a core."""
  _assert_replicas_equal_one(
      mirrored, [_batch(seed, 'shallow') for seed in range(3)],
      _agent('shallow'), _OPTIMIZER, 1e-4)


def _gradients(agent, params, batch, loss=_LOSS):
  params = {name: tf.constant(value) for name, value in params.items()}
  with tf.GradientTape() as tape:
    tape.watch(params)
    total_loss, _ = learner_lib.compute_loss(
        agent, loss, params, batch.agent_state, batch.env_outputs,
        batch.agent_outputs)
  return _numpy(tape.gradient(total_loss, params))


def test_step_trains_on_the_whole_batch(strategy):
  """It logs the losses of all of it, core states and last unroll included."""
  agent = _agent(use_lstm=True)
  learner = _make_learner(agent, strategy)
  batch = _batch(0, use_lstm=True)
  _, expected = learner_lib.compute_loss(
      agent, _LOSS, _numpy(learner.weights()), batch.agent_state,
      batch.env_outputs, batch.agent_outputs)
  logs = _step(learner, batch)
  for name, value in expected.items():
    assert logs[name] == pytest.approx(value.numpy(), 1e-4), name


@pytest.mark.parametrize('clip', [1e-3, .5, 1e6, 0.])
def test_gradient_is_clipped_by_its_global_norm(clip):
  """The update is RMSProp's on the scaled gradient; 0 does not clip."""
  learner = _make_learner(
      optimizer=_OPTIMIZER._replace(gradient_norm_clip=clip, epsilon=1e-4))
  batch = _batch(0)
  before = _numpy(learner.weights())
  gradients = _gradients(_agent(), before, batch)
  norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum()
                     for g in gradients.values()))
  assert .5 < norm < 1e6
  logs = _step(learner, batch)
  assert logs['grad_norm'] == pytest.approx(norm, 1e-4)
  scale = min(1., clip / norm) if clip else 1.
  for name, after in _numpy(learner.weights()).items():
    gradient = scale * gradients[name]
    step = .003 * gradient / np.sqrt(.99 + .01 * gradient ** 2 + 1e-4)
    np.testing.assert_allclose(
        after, before[name] - step, rtol=1e-5, atol=1e-7)


def test_update_that_is_not_finite_is_skipped(strategy):
  """Weights and slots stay, frames count, and the next update works."""
  learner = _make_learner(
      strategy=strategy, loss=_LOSS._replace(reward_clipping='none'))
  assert _step(learner, _batch(0))['skipped'] == 0.
  before = _locals(learner, 0)
  for i, bad in enumerate([np.nan, np.inf, -np.inf]):
    batch = _batch(1)
    # Only the last replica's share is bad.
    batch.env_outputs.reward[2, -1] = bad
    logs = _step(learner, batch)
    assert logs['skipped'] == 1.
    assert not np.isfinite(logs['grad_norm'])
    for replica in range(2 if strategy else 1):
      _assert_equal(_locals(learner, replica), before)
    assert (learner.frames, learner.steps) == (80 * (i + 2), i + 2)
  assert _step(learner, _batch(2))['skipped'] == 0.
  after = _locals(learner, 0)
  assert all(np.isfinite(v).all() for some in after for v in some)
  assert any((a != b).any() for a, b in zip(after[0], before[0]))


def test_weights_are_a_snapshot(strategy):
  """Later updates do not change what `weights` returned before."""
  learner = _make_learner(strategy=strategy)
  snapshot = learner.weights()
  at_once = {name: value.numpy().copy() for name, value in snapshot.items()}
  for i in range(2):
    _step(learner, _batch(i))
  _assert_equal(_numpy(snapshot), at_once)
  later = _numpy(learner.weights())
  assert all((later[name] != at_once[name]).any() for name in later)


def test_seed_decides_the_initial_weights():
  first, again, other = (
      _numpy(_make_learner(seed=seed).weights()) for seed in (1, 1, 2))
  _assert_equal(first, again)
  _assert_equal(first, _agent().initial_params(1))
  assert (first['baseline/w'] != other['baseline/w']).any()


def test_compiled_by_xla_equals_not_compiled(mirrored):
  """Losses and weights after a few updates, for one replica and for two."""
  learners = [_make_learner(),
              _make_learner(jit_compile=True),
              _make_learner(strategy=mirrored, jit_compile=True)]
  for i in range(3):
    logs, *others = [_step(learner, _batch(i)) for learner in learners]
    for other in others:
      for name, value in logs.items():
        assert other[name] == pytest.approx(value, 1e-3, 1e-4), name
  for learner in learners[1:]:
    _assert_close(_locals(learner, 0), _locals(learners[0], 0), 1e-4)


# Checkpoints.


def _state(learner):
  return _locals(learner, 0), learner.frames, learner.steps


def _train_and_save(logdir, num_saves, keep=3):
  """Saves after each of some updates; returns the state at each save."""
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(logdir), learner, '{"a": 1}', keep)
  states = []
  for i in range(num_saves):
    _step(learner, _batch(i))
    path = checkpointer.save()
    assert os.path.exists(path + '.index')
    states.append(_state(learner))
  return states


def _restore(logdir, learner=None):
  learner = learner or _make_learner(seed=99)
  path = checkpoint.Checkpointer(str(logdir), learner, '{"a": 2}').restore()
  return learner, path


def _data_files(logdir):
  """Oldest first."""
  return sorted(glob.glob(os.path.join(logdir, '*.data-*')),
                key=lambda path: int(path.split('-')[-4].split('.')[0]))


def test_checkpoint_round_trip(tmp_path):
  """Weights, slots and counters come back bit by bit, and training goes on."""
  states = _train_and_save(tmp_path, 2)
  learner, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(learner), states[-1])
  other, _ = _restore(tmp_path)
  for some in (learner, other):
    _step(some, _batch(7))
  _assert_equal(_state(learner), _state(other))
  assert learner.frames == 240


def test_checkpoint_changes_number_of_replicas(tmp_path, mirrored):
  """Two replicas take up what one left, both of them all of it, and back."""
  states = _train_and_save(tmp_path, 1)
  two, _ = _restore(tmp_path, _make_learner(strategy=mirrored, seed=99))
  for replica in range(2):
    _assert_equal(_locals(two, replica), states[-1][0])
  _step(two, _batch(5))
  checkpoint.Checkpointer(str(tmp_path), two, '').save()
  one, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(one), _state(two))


def test_nothing_to_restore(tmp_path):
  """None says that there is no checkpoint, and the learner stays as it was."""
  learner = _make_learner()
  before = _state(learner)
  _, path = _restore(tmp_path / 'not there', learner)
  assert path is None
  _assert_equal(_state(learner), before)


def _truncate(path):
  os.truncate(path, os.path.getsize(path) // 2)


def _flip_bytes(path):
  with open(path, 'r+b') as f:
    f.seek(os.path.getsize(path) // 2)
    byte = f.read(1)[0]
    f.seek(-1, os.SEEK_CUR)
    f.write(bytes([byte ^ 0xff]))


def _remove_index(path):
  os.remove(path.split('.data-')[0] + '.index')


@pytest.mark.parametrize(
    'corrupt', [_truncate, _flip_bytes, os.remove, _remove_index])
def test_corrupt_checkpoint_falls_back_to_the_one_before(
    tmp_path, caplog, corrupt):
  """All of the state is the older one's, with a warning that names the file."""
  states = _train_and_save(tmp_path, 3)
  corrupt(_data_files(tmp_path)[-1])
  with caplog.at_level(python_logging.WARNING):
    learner, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(learner), states[-2])
  warnings = [r.getMessage() for r in caplog.records
              if r.levelno == python_logging.WARNING]
  assert any('-240 cannot be restored' in w for w in warnings), warnings


def test_training_goes_on_after_a_corrupt_checkpoint(tmp_path):
  """The checkpoint that was corrupt is written anew and can be restored."""
  _train_and_save(tmp_path, 3)
  _truncate(_data_files(tmp_path)[-1])
  learner = _make_learner(seed=99)
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  checkpointer.restore()
  _step(learner, _batch(11))
  assert checkpointer.save().endswith('-240')
  restored, path = _restore(tmp_path)
  assert path.endswith('-240')
  _assert_equal(_state(restored), _state(learner))


def test_two_corrupt_checkpoints(tmp_path):
  states = _train_and_save(tmp_path, 3)
  for path in _data_files(tmp_path)[1:]:
    _flip_bytes(path)
  learner, path = _restore(tmp_path)
  assert path.endswith('-80')
  _assert_equal(_state(learner), states[0])


def test_all_checkpoints_corrupt(tmp_path):
  """An error that names them: a run must not start afresh over another."""
  _train_and_save(tmp_path, 2)
  for path in _data_files(tmp_path):
    _truncate(path)
  with pytest.raises(checkpoint.CheckpointError, match='-80.*-160.*--logdir'):
    _restore(tmp_path)


def test_checkpoint_of_another_network(tmp_path):
  """Weights of other shapes, or missing ones, are an error."""
  _train_and_save(tmp_path, 1)
  with pytest.raises(checkpoint.CheckpointError):
    _restore(tmp_path, _make_learner(_agent(use_lstm=True)))
  wider = networks.Agent(
      _NUM_ACTIONS + 1, (ArraySpec((4,), np.float32),), 'vector', False)
  with pytest.raises(checkpoint.CheckpointError):
    _restore(tmp_path, _make_learner(wider))


def test_checkpoint_that_lacks_something(tmp_path):
  """Slots that a checkpoint does not have must not silently start afresh."""
  learner = _make_learner()
  without_slots = tf.train.Checkpoint(
      params=learner.params, config=tf.Variable(''),
      num_environment_frames=learner.num_environment_frames,
      learner_steps=learner.learner_steps)
  tf.train.CheckpointManager(without_slots, str(tmp_path), 3).save()
  with pytest.raises(checkpoint.CheckpointError):
    _restore(tmp_path)


@pytest.mark.parametrize('keep', [1, 2])
def test_keeps_the_last_few(tmp_path, keep):
  """Older ones go, also those of a run before."""
  _train_and_save(tmp_path, 3, keep)
  numbers = lambda: [int(path.split('-')[-4].split('.')[0])
                     for path in _data_files(tmp_path)]
  assert numbers() == [80, 160, 240][-keep:]
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '', keep)
  checkpointer.restore()
  _step(learner, _batch(3))
  checkpointer.save()
  assert numbers() == [80, 160, 240, 320][-keep:]


def test_unchanged_state_is_not_saved_again(tmp_path):
  """Neither after a save nor after a restore."""
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  _step(learner, _batch(0))
  path = checkpointer.save()
  modified = os.stat(path + '.index').st_mtime_ns
  assert checkpointer.save() == path
  other = checkpoint.Checkpointer(str(tmp_path), _make_learner(), '')
  other.restore()
  assert other.save() == path
  assert os.stat(path + '.index').st_mtime_ns == modified


def test_variables_are_the_whole_state():
  """With those of another, a learner goes on as that does."""
  one, other = _make_learner(), _make_learner(seed=2)
  for i in range(3):
    _step(one, _batch(i))
  for variable, value in zip(other.variables(), one.variables()):
    variable.assign(value)
  assert _step(other, _batch(3)) == _step(one, _batch(3))
  _assert_equal(_locals(other, 0), _locals(one, 0))
  assert (other.frames, other.steps) == (one.frames, one.steps)
