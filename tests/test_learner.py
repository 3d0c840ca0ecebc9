import sys

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import gradients as gradients_lib
from scalable_agent import learner as learner_lib
from scalable_agent.algorithms import impala
from scalable_agent.networks import instructions
from scalable_agent.networks import layers
from tests import learners

_B = learners.B
_LOSS, _OPTIMIZER = learners.LOSS, learners.OPTIMIZER
_agent, _batch = learners.make_agent, learners.make_batch
_make_learner = learners.make_learner
_make_small = learners.make_small_learner

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture(scope='module', params=['one', 'mirrored', 'parts'])
def split(request, mirrored):
  """How a learner splits its batches, as arguments of those that make one."""
  return dict(one={}, mirrored=dict(strategy=mirrored),
              # Unequal ones.
              parts=dict(num_parts=3))[request.param]


@pytest.fixture(scope='module')
def any_learner(split):
  """A learner that has been trained before: to trace one takes long."""
  return _make_small(**split)


@pytest.fixture(scope='module')
def linear_learner(split):
  """The same by `_linear_loss`, whose gradient is that of any weights."""
  return _make_learner(learners.SmallAgent(), **split, loss_fn=_linear_loss)


@pytest.fixture(scope='module')
def renewed():
  """A function that makes learners of an LSTM, or of instructions.

  If it made the same one before, it gives that its first state again.
  """
  made = {}
  settings = dict(
      lstm=(_agent(use_lstm=True), _OPTIMIZER._replace(gradient_norm_clip=2.)),
      language=(learners.make_language_agent(), _OPTIMIZER))

  def renew(name, **split):
    key = name, tuple(split.items())
    if key not in made:
      agent, optimizer = settings[name]
      learner = _make_learner(agent, optimizer=optimizer, **split)
      made[key] = learner, [v.numpy() for v in learner.variables()]
    learner, initial = made[key]
    for variable, value in zip(learner.variables(), initial, strict=True):
      variable.assign(value)
    return learner

  return renew


def _step(learner, batch):
  logs, _ = learner.step(learner.place(batch))
  return logs


def _numpy(weights):
  return {name: value.numpy() for name, value in weights.items()}


def _locals(learner, replica):
  """Weights, mean squares and momenta as one replica has them."""
  local = lambda v: getattr(v, 'values', [v])[replica].numpy()
  return [[local(v) for v in some] for some in (
      learner.params.values(), learner.optimizer.mean_square,
      learner.optimizer.momentum)]


def _assert_equal(actual, expected):
  tree.map_structure(np.testing.assert_array_equal, actual, expected)


def _assert_close(actual, expected, tolerance):
  tree.map_structure(
      lambda a, b: np.testing.assert_allclose(
          a, b, rtol=tolerance, atol=tolerance), actual, expected)


def test_one_replica_per_device():
  strategies = [learner_lib.create_strategy(devices)
                for devices in (['/cpu:1'], ['/cpu:0', '/cpu:1'])]
  assert [strategy.num_replicas_in_sync for strategy in strategies] == [1, 2]
  with strategies[0].scope():
    assert tf.Variable(0.).device.endswith('CPU:1')


def test_networks_that_train_in_turn_share_the_strategy_of_their_devices():
  """TensorFlow takes the sums of two such strategies for one another's."""
  class LargerAgent(learners.SmallAgent):

    def initial_params(self, seed):
      return {name: np.concatenate([value, value])
              for name, value in super().initial_params(seed).items()}

  for agent in learners.SmallAgent(), LargerAgent():
    learner = _make_learner(
        agent, learner_lib.create_strategy(['/cpu:0', '/cpu:1']),
        loss_fn=_linear_loss)
    before = learner.weights()['layer/w'].numpy()
    learner.step(learner.place(_batch(0)))
    assert (learner.weights()['layer/w'].numpy() != before).all()


def test_nothing_of_an_update_is_on_another_device():
  """The first may be the policy's."""
  learner = _make_small(strategy=learner_lib.create_strategy(['/cpu:1']))
  values, _ = learner._update(learner.place(_batch(0)), tf.constant(.1))
  assert values.device.endswith('CPU:1')
  assert all(weight.device.endswith('CPU:1')
             for weight in learner.weights().values())


def test_annealed_learning_rate():
  """From all of it to 0 on a line, and 0 beyond."""
  rates = [learner_lib.annealed_learning_rate(.4, 1000, frames)
           for frames in (0, 250, 500, 1000, 1001, 10 ** 9)]
  np.testing.assert_allclose(rates, [.4, .3, .2, 0., 0., 0.], atol=1e-15)


def test_steps_leave_nothing_behind(any_learner):
  """TensorFlow would keep a Python number that it converts for ever."""
  logs = _step(any_learner, _batch(0))
  assert (sys.getrefcount(logs['learning_rate']) ==
          sys.getrefcount(logs['grad_norm']))


def test_step_anneals_and_counts_frames():
  """The first update has the full rate, and those after the end do nothing."""
  learner = _make_small(
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


def _assert_equal_one(one, others, batches, tolerance):
  """Trains learners that split their batches, and one that does not."""
  initial = _locals(one, 0)
  for batch in batches:
    logs = _step(one, batch)
    for i, other in enumerate(others):
      other_logs = _step(other, batch)
      assert set(logs) == set(other_logs), i
      for name, value in logs.items():
        assert other_logs[name] == pytest.approx(value, 1e-3, 1e-4), (i, name)
  assert max(np.abs(a - b).max()
             for a, b in zip(_locals(one, 0)[0], initial[0])) > 1e-3
  for i, other in enumerate(others):
    _assert_close(_locals(other, 0), _locals(one, 0), tolerance)
    for replica in range(1, _num_replicas(other)):
      _assert_equal(_locals(other, 0), _locals(other, replica))
    _assert_equal(list(_numpy(other.weights()).values()), _locals(other, 0)[0])
    assert (one.frames, one.steps) == (other.frames, other.steps), i


def _num_replicas(learner):
  return len(getattr(learner.variables()[0], 'values', [None]))


def test_however_a_batch_is_split_learners_equal_one(mirrored):
  """Those of two devices halve it, and train to the same weights and slots."""
  optimizer = _OPTIMIZER._replace(gradient_norm_clip=2.)
  one, *others = [_make_small(optimizer=optimizer, **split) for split in (
      {}, dict(strategy=mirrored), dict(strategy=mirrored, num_parts=2),
      dict(num_parts=2), dict(num_parts=3), dict(num_parts=99))]
  assert list(map(_num_replicas, others)) == [2, 2, 1, 1, 1]
  _assert_equal_one(one, others, [_batch(seed) for seed in range(20)], 1e-5)


def test_two_replicas_that_do_not_clip_equal_one_learner(mirrored):
  one, two = [
      _make_small(optimizer=_OPTIMIZER._replace(gradient_norm_clip=0.), **split)
      for split in ({}, dict(strategy=mirrored))]
  _assert_equal_one(one, [two], [_batch(seed) for seed in range(20)], 1e-5)


def test_two_replicas_equal_one_learner(mirrored, renewed):
  """With core states."""
  _assert_equal_one(
      renewed('lstm'), [renewed('lstm', strategy=mirrored)],
      [_batch(seed, use_lstm=True) for seed in range(10)], 1e-5)


def test_replicas_refuse_a_batch_that_is_not_for_all_of_them(mirrored):
  """They would train on less of it than is counted."""
  learner = _make_learner(strategy=mirrored)
  batch = _batch(0)
  with pytest.raises(ValueError, match='3 unrolls .* 2 replicas'):
    learner.place(batch._replace(keys=batch.keys[:3]))


def test_two_replicas_equal_one_learner_shallow(mirrored):
  """The same with convolutions and without a core."""
  one, two = [_make_learner(_agent('shallow'), **split)
              for split in ({}, dict(strategy=mirrored))]
  _assert_equal_one(
      one, [two], [_batch(seed, 'shallow') for seed in range(3)], 1e-4)


def test_parts_of_a_batch_equal_the_whole(renewed):
  """Instructions included, whose gradients are sparse."""
  batches = [learners.with_words(_batch(seed), np.arange(_B * 5).reshape(_B, 5))
             for seed in range(5)]
  _assert_equal_one(
      renewed('language'), [renewed('language', num_parts=2)], batches, 1e-5)


def _gradients(params, batch):
  params = {name: tf.constant(value) for name, value in params.items()}
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, _, _ = learners.small_loss(params, None, batch)
  return {name: tf.convert_to_tensor(gradient).numpy()
          for name, gradient in tape.gradient(loss, params).items()}


def test_step_trains_on_the_whole_batch(split):
  """It logs the losses of all of it, core states and last unroll included."""
  learner, batch = _make_small(**split), _batch(0, use_lstm=True)
  _, expected, priorities = learners.small_loss(
      _numpy(learner.weights()), None, batch)
  assert len(set(priorities.numpy())) == _B
  _assert_logs(_step(learner, batch), expected)


def test_step_logs_the_losses_of_the_agent(renewed):
  learner, batch = renewed('lstm'), _batch(0, use_lstm=True)
  _, expected, _ = impala.compute_loss(
      _agent(use_lstm=True), _LOSS, _numpy(learner.weights()), batch)
  _assert_logs(_step(learner, batch), expected)


def _assert_logs(logs, expected):
  assert set(expected) < set(logs)
  for name, value in expected.items():
    if isinstance(value, tuple):
      value = value[0] / value[1]
    assert logs[name] == pytest.approx(value.numpy(), 1e-4), name


@pytest.mark.parametrize('clip', [1e-3, .5, 1e6, 0.])
def test_gradient_is_clipped_by_its_global_norm(clip):
  """The update is RMSProp's on the scaled gradient; 0 does not clip."""
  learner = _make_small(
      optimizer=_OPTIMIZER._replace(gradient_norm_clip=clip, epsilon=1e-4))
  batch = _batch(0)
  before = _numpy(learner.weights())
  gradients = _gradients(before, batch)
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


def test_dead_units_are_those_that_no_input_activates(split):
  learner = _make_learner(**split)
  for i, (num_dead, bias) in enumerate([(10, 1e2), (7, 1e6)]):
    learner.params[f'torso/linear_{i}/b'].assign(
        [-1e9] * num_dead + [bias] * (64 - num_dead))
  assert _step(learner, _batch(0))['dead_units'] == pytest.approx(17 / 128)


def test_a_torso_without_biases_has_no_dead_units(any_learner):
  assert 'dead_units' not in _step(any_learner, _batch(0))


def test_update_that_is_not_finite_is_skipped(split):
  """Weights and slots stay, frames count, and the next update works."""
  learner = _make_small(**split)
  assert _step(learner, _batch(0))['skipped'] == 0.
  before = _locals(learner, 0)
  for i, bad in enumerate([np.nan, np.inf, -np.inf]):
    batch = _batch(1)
    # Only the last replica's share is bad.
    batch.unrolls.env_outputs.reward[2, -1] = bad
    logs = _step(learner, batch)
    assert logs['skipped'] == 1.
    assert not np.isfinite(logs['grad_norm'])
    for replica in range(2 if 'strategy' in split else 1):
      _assert_equal(_locals(learner, replica), before)
    assert (learner.frames, learner.steps) == (80 * (i + 2), i + 2)
  assert _step(learner, _batch(2))['skipped'] == 0.
  after = _locals(learner, 0)
  assert all(np.isfinite(v).all() for some in after for v in some)
  assert any((a != b).any() for a, b in zip(after[0], before[0]))


def test_weights_are_a_snapshot(any_learner):
  """Later updates do not change what `weights` returned before."""
  snapshot = any_learner.weights()
  at_once = {name: value.numpy().copy() for name, value in snapshot.items()}
  for i in range(2):
    _step(any_learner, _batch(i))
  _assert_equal(_numpy(snapshot), at_once)
  later = _numpy(any_learner.weights())
  assert all((later[name] != at_once[name]).any() for name in later)


def test_seed_decides_the_initial_weights():
  first, again, other = (
      _numpy(_make_learner(seed=seed).weights()) for seed in (1, 1, 2))
  _assert_equal(first, again)
  _assert_equal(first, _agent().initial_params(1))
  assert (first['baseline/w'] != other['baseline/w']).any()


def test_compiled_by_xla_equals_not_compiled():
  """Losses and weights after a few updates."""
  _assert_compiled_equals_not_compiled(
      _make_learner(), _make_learner(jit_compile=True))


def test_replicas_compiled_by_xla_equal_one_that_is_not(mirrored):
  _assert_compiled_equals_not_compiled(
      _make_small(), _make_small(strategy=mirrored, jit_compile=True))


def _assert_compiled_equals_not_compiled(one, compiled):
  for i in range(3):
    logs, other = [_step(learner, _batch(i)) for learner in (one, compiled)]
    for name, value in logs.items():
      assert other[name] == pytest.approx(value, 1e-3, 1e-4), name
  _assert_close(_locals(compiled, 0), _locals(one, 0), 1e-4)


def test_variables_are_the_whole_state():
  """With those of another, a learner goes on as that does."""
  one, other = _make_small(), _make_small(seed=2)
  for i in range(3):
    _step(one, _batch(i))
  for variable, value in zip(other.variables(), one.variables()):
    variable.assign(value)
  assert _step(other, _batch(3)) == _step(one, _batch(3))
  _assert_equal(_locals(other, 0), _locals(one, 0))
  assert (other.frames, other.steps) == (one.frames, one.steps)


# What other algorithms than IMPALA need.


def test_frames_are_those_of_new_unrolls(any_learner):
  """What is replayed was counted before; learning goes on all the same."""
  frames = [any_learner.frames]
  for num_replayed in (0, 1, 3, 4):
    batch = _batch(0)
    batch.is_replayed[:num_replayed] = True
    before = _numpy(any_learner.weights())
    _step(any_learner, batch)
    after = _numpy(any_learner.weights())
    assert any((before[name] != after[name]).any() for name in before)
    frames.append(any_learner.frames)
  assert np.diff(frames).tolist() == [80, 60, 20, 0]


def test_frames_are_those_of_unrolls_that_are_kept_too(any_learner):
  replayed = _batch(0)._replace(is_replayed=np.ones([_B], bool))
  frames = [any_learner.frames]
  for kept in (), (3, 4, 4), (5,):
    _step(any_learner, replayed._replace(
        kept_versions=np.array(kept, np.int64)))
    frames.append(any_learner.frames)
  assert np.diff(frames).tolist() == [0, 60, 20]


def _linear_loss(params, unused_target_params, batch):
  """Sums over unrolls: their weights and priorities show which arrived."""
  first = batch.unrolls.env_outputs.reward[0]
  loss = tf.reduce_sum(
      batch.weights * first) * tf.reduce_sum(params['layer/w'])
  count = tf.cast(tf.size(first), tf.float32)
  return loss, dict(
      total=tf.reduce_sum(first), mean=(tf.reduce_sum(first), count),
      mean_of_nothing=(tf.zeros([]), tf.zeros([]))), first


def test_priorities_come_back_in_the_order_of_the_batch(linear_learner):
  batch = _batch(0)
  _, priorities = linear_learner.step(linear_learner.place(batch))
  np.testing.assert_array_equal(
      priorities, batch.unrolls.env_outputs.reward[0])
  assert len(set(priorities)) == _B


def test_pairs_are_logged_as_quotients_over_all_replicas(linear_learner):
  batch = _batch(0)
  logs = _step(linear_learner, batch)
  rewards = batch.unrolls.env_outputs.reward[0].astype(np.float64)
  assert logs['total'] == pytest.approx(rewards.sum(), 1e-5)
  assert logs['mean'] == pytest.approx(rewards.mean(), 1e-5)
  assert np.isnan(logs['mean_of_nothing'])


def test_loss_sees_the_weights_of_unrolls(linear_learner):
  """An unroll of weight 2 counts as two of weight 1."""
  norms = []
  for weights in ([1, 1, 1, 1], [2, 2, 2, 2], [0, 0, 0, 0]):
    batch = _batch(0)
    batch.weights[:] = weights
    norms.append(_step(linear_learner, batch)['grad_norm'])
  assert norms[1] == pytest.approx(2 * norms[0], 1e-5)
  assert norms[0] > 0 and norms[2] == 0


def _target_loss(params, target_params, batch):
  """Moves one weight by its gradient of 1, and logs the targets."""
  del batch
  return tf.reduce_sum(params['layer/b']), dict(
      params=tf.reduce_sum(params['layer/b']),
      targets=tf.reduce_sum(target_params['layer/b'])), None


def test_target_weights_follow_at_their_period(split):
  """They are the weights of the last update that the period divides."""
  num_replicas = 2 if 'strategy' in split else 1
  learner = _make_learner(learners.SmallAgent(), **split,
                          loss_fn=_target_loss, target_update_period=3)
  params, targets = zip(*(
      (logs['params'] / num_replicas, logs['targets'] / num_replicas)
      for logs in (_step(learner, _batch(0)) for _ in range(8))))
  assert len(set(params)) == 8
  expected = [params[0]] * 3 + [params[3]] * 3 + [params[6]] * 2
  np.testing.assert_allclose(targets, expected, rtol=1e-6)


def test_target_weights_are_part_of_the_state():
  """Whoever takes over the variables goes on with the same targets."""
  make = lambda seed: _make_learner(
      learners.SmallAgent(), seed=seed, loss_fn=_target_loss,
      target_update_period=3)
  one, other = make(1), make(2)
  for i in range(4):
    _step(one, _batch(i))
  for variable, value in zip(other.variables(), one.variables()):
    variable.assign(value)
  for _ in range(4):
    assert _step(other, _batch(0)) == _step(one, _batch(0))


def test_a_loss_without_target_weights_gets_none():
  def loss_fn(params, target_params, unused_batch):
    assert target_params is None
    return tf.reduce_sum(params['layer/b']), {}, None

  learner = _make_learner(learners.SmallAgent(), loss_fn=loss_fn)
  assert 'grad_norm' in _step(learner, _batch(0))


# Rows of an embedding.


class _Reader:
  """An agent of instructions alone, which takes XLA the least time."""

  def initial_params(self, seed):
    initializer = layers.Initializer(seed)
    instructions.init_encoder(initializer)
    return initializer.params


def _reader_loss(params, unused_target_params, batch):
  _, words = batch.unrolls.env_outputs.observation
  encodings = instructions.encode(
      params, tf.reshape(words, [-1, learners.WORDS]))
  reward = tf.reshape(batch.unrolls.env_outputs.reward, [-1, 1])
  return tf.reduce_sum(tf.square(encodings - reward)), {}, None


@pytest.mark.parametrize('num_replicas, jit_compile', [
    (1, False), (1, True), (2, False)])
def test_rows_without_words_keep_their_slots(
    mirrored, renewed, num_replicas, jit_compile):
  """As TensorFlow 1's sparse RMSProp; padding touches no row either."""
  if jit_compile:
    learner = _make_learner(_Reader(), loss_fn=_reader_loss, jit_compile=True)
  else:
    learner = renewed(
        'language', **(dict(strategy=mirrored) if num_replicas == 2 else {}))
  index = list(learner.params).index('instruction/embedding')
  state = lambda: [
      getattr(v, 'values', [v])[0].numpy() for v in (
          learner.params['instruction/embedding'],
          learner.optimizer.mean_square[index],
          learner.optimizer.momentum[index])]
  initial = state()
  # The two halves of the batch have different words, and repeat some.
  ids = [[7, 7, 9, -1, -1]] * 2 + [[9, 11, -1, -1, -1]] * 2
  for seed in range(3):
    _step(learner, learners.with_words(_batch(seed), ids))
  touched = [7, 9, 11]
  for before, after in zip(initial, state()):
    changed = np.flatnonzero((before != after).any(axis=1))
    np.testing.assert_array_equal(changed, touched)


def test_a_row_that_occurs_once_is_one_of_the_gradient():
  dense, touched = gradients_lib.densify(dict(table=tf.IndexedSlices(
      tf.ones([4, 2]), tf.constant([4, 1, -1, 4]), tf.constant([6, 2]))))
  np.testing.assert_array_equal(touched['table'], [0, 1, 0, 0, 2, 0])
  np.testing.assert_array_equal(dense['table'][:, 0], [0, 1, 0, 0, 2, 0])


def test_replicas_touch_rows_as_one_learner(mirrored, renewed):
  one, two = renewed('language'), renewed('language', strategy=mirrored)
  rng = np.random.default_rng(0)
  for seed in range(10):
    ids = rng.integers(-1, 30, [_B, 5])
    for learner in (one, two):
      _step(learner, learners.with_words(_batch(seed), ids))
  _assert_close(_locals(two, 0), _locals(one, 0), 1e-5)
  _assert_equal(_locals(two, 0), _locals(two, 1))
