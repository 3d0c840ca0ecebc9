import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import gradients as gradients_lib
from scalable_agent import rmsprop

_SHAPES = [(), (7,), (3, 4), (2, 3, 2, 2)]


def _random(seed):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


class _TF1:
  """TensorFlow 1's optimizer, in its own graph and session."""

  def __init__(self, initial, decay, momentum, epsilon, sparse=False):
    with tf.Graph().as_default():
      self._variables = [
          tf.compat.v1.get_variable(f'v{i}', initializer=value)
          for i, value in enumerate(initial)]
      self._gradients = [self._placeholder(value, sparse) for value in initial]
      self._learning_rate = tf.compat.v1.placeholder(tf.float32, [])
      optimizer = tf.compat.v1.train.RMSPropOptimizer(
          self._learning_rate, decay, momentum, epsilon)
      self._train = optimizer.apply_gradients(
          zip(self._gradients, self._variables))
      slot = lambda name: [
          optimizer.get_slot(variable, name) for variable in self._variables]
      self._state = self._variables, slot('rms'), slot('momentum')
      self._session = tf.compat.v1.Session()
      self._session.run(tf.compat.v1.global_variables_initializer())

  def _placeholder(self, value, sparse):
    if not sparse:
      return tf.compat.v1.placeholder(tf.float32, value.shape)
    return tf.IndexedSlices(
        tf.compat.v1.placeholder(tf.float32, (None, *value.shape[1:])),
        tf.compat.v1.placeholder(tf.int32, [None]), value.shape)

  def apply(self, gradients, learning_rate):
    feeds = {self._learning_rate: learning_rate}
    for placeholder, gradient in zip(self._gradients, gradients, strict=True):
      if isinstance(placeholder, tf.IndexedSlices):
        feeds[placeholder.values], feeds[placeholder.indices] = gradient
      else:
        feeds[placeholder] = gradient
    self._session.run(self._train, feeds)

  def state(self):
    """Variables, mean squares and momenta."""
    return self._session.run(self._state)


def _state(variables, optimizer):
  return [[variable.numpy() for variable in some]
          for some in (variables, optimizer.mean_square, optimizer.momentum)]


def _assert_same(actual, expected, **tolerance):
  for some, others in zip(actual, expected, strict=True):
    for one, other in zip(some, others, strict=True):
      np.testing.assert_allclose(one, other, **tolerance)


@pytest.mark.parametrize('epsilon', [.1, 1e-10])
@pytest.mark.parametrize('momentum', [0., .9])
def test_equals_tensorflow_1(momentum, epsilon):
  """100 steps of random gradients leave the same variables and slots."""
  settings = dict(decay=.99, momentum=momentum, epsilon=epsilon)
  initial = _random(0)
  oracle = _TF1(initial, **settings)
  variables = [tf.Variable(value) for value in initial]
  optimizer = rmsprop.RMSProp(123., **settings)
  for step in range(100):
    learning_rate = np.float32(.01 * (1. - step / 100))
    # Small gradients are what the place of epsilon matters to.
    gradients = [np.float32(.1) * g for g in _random(step + 1)]
    oracle.apply(gradients, learning_rate)
    optimizer.apply_gradients(
        zip(map(tf.constant, gradients), variables), learning_rate)
  assert np.abs(variables[1].numpy() - initial[1]).max() > 1e-3
  _assert_same(_state(variables, optimizer), oracle.state(), rtol=0, atol=1e-6)


def test_first_step_by_hand():
  """ms = .99 * 1 + .01 * 4; the step is lr * 2 / sqrt(ms + .01)."""
  variable = tf.Variable([1.])
  optimizer = rmsprop.RMSProp(.1, decay=.99, momentum=0., epsilon=.01)
  optimizer.apply_gradients([(tf.constant([2.]), variable)])
  np.testing.assert_allclose(
      variable, [1. - .1 * 2. / np.sqrt(1.03 + .01)], rtol=1e-6)
  np.testing.assert_allclose(optimizer.mean_square[0], [1.03], rtol=1e-6)


def _pair():
  variables = [tf.Variable(value) for value in _random(0)]
  optimizer = rmsprop.RMSProp(.05, decay=.9, momentum=.9, epsilon=.1)
  return variables, optimizer


def _apply(variables, optimizer, seed, **kwargs):
  optimizer.apply_gradients(
      zip(map(tf.constant, _random(seed)), variables), **kwargs)


def test_learning_rate_of_the_call_wins():
  """It is the constructor's where none is given."""
  states = []
  for kwargs in ({}, dict(learning_rate=.05), dict(learning_rate=.01)):
    variables, optimizer = _pair()
    _apply(variables, optimizer, 1, **kwargs)
    states.append(_state(variables, optimizer))
  _assert_same(states[0], states[1], rtol=0)
  steps = [np.array(state[0][1]) - _random(0)[1] for state in states]
  np.testing.assert_allclose(steps[2], .2 * steps[0], rtol=1e-4)


def test_learning_rate_may_change_inside_a_function():
  """A compiled update takes the learning rate as a tensor."""
  variables, optimizer = _pair()
  optimizer.build(variables)
  update = tf.function(
      lambda gradients, learning_rate: optimizer.apply_gradients(
          zip(gradients, variables), learning_rate))
  others, other_optimizer = _pair()
  for step, learning_rate in enumerate([.1, .02]):
    update([tf.constant(g) for g in _random(step)], tf.constant(learning_rate))
    _apply(others, other_optimizer, step, learning_rate=learning_rate)
  _assert_same(_state(variables, optimizer), _state(others, other_optimizer),
               rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('compiled', [False, True])
def test_false_condition_changes_nothing(compiled):
  """Not even with NaN gradients; variables and slots stay as they were."""
  variables, optimizer = _pair()
  _apply(variables, optimizer, 1)
  before = _state(variables, optimizer)
  nans = [tf.fill(shape, np.nan) for shape in _SHAPES]
  apply = lambda condition: optimizer.apply_gradients(
      zip(nans, variables), condition=condition)
  if compiled:
    apply = tf.function(apply)
  apply(tf.constant(False))
  _assert_same(_state(variables, optimizer), before, rtol=0)
  _apply(variables, optimizer, 2, condition=tf.constant(True))
  assert (_state(variables, optimizer)[0][1] != before[0][1]).all()


def test_scale_multiplies_gradients():
  """Before they enter the mean square, not the step afterwards."""
  variables, optimizer = _pair()
  _apply(variables, optimizer, 1, scale=tf.constant(.25))
  others, other_optimizer = _pair()
  other_optimizer.apply_gradients(
      [(tf.constant(np.float32(.25) * g), variable)
       for g, variable in zip(_random(1), others)])
  _assert_same(_state(variables, optimizer), _state(others, other_optimizer),
               rtol=1e-6)


def test_checkpoint_holds_the_slots(tmp_path):
  """A restored optimizer continues exactly as the saved one does."""
  variables, optimizer = _pair()
  for seed in range(3):
    _apply(variables, optimizer, seed)
  path = tf.train.Checkpoint(
      variables=variables, optimizer=optimizer).save(tmp_path / 'checkpoint')

  restored = [tf.Variable(tf.zeros_like(variable)) for variable in variables]
  restored_optimizer = rmsprop.RMSProp(.05, .9, .9, .1)
  restored_optimizer.build(restored)
  tf.train.Checkpoint(
      variables=restored, optimizer=restored_optimizer
  ).restore(path).assert_consumed()
  _assert_same(_state(restored, restored_optimizer),
               _state(variables, optimizer), rtol=0)
  _apply(variables, optimizer, 3)
  _apply(restored, restored_optimizer, 3)
  _assert_same(_state(restored, restored_optimizer),
               _state(variables, optimizer), rtol=0)


def test_mirrored_replicas_equal_tensorflow_1(mirrored):
  """Both replicas' copies end where TensorFlow 1 does on summed gradients."""
  settings = dict(decay=.99, momentum=.9, epsilon=.1)
  initial = _random(0)
  oracle = _TF1(initial, **settings)
  with mirrored.scope():
    variables = [tf.Variable(value) for value in initial]
    optimizer = rmsprop.RMSProp(.05, **settings)
    optimizer.build(variables)

    @tf.function
    def update(gradients, condition):
      def replica_fn():
        factor = 1. + tf.cast(
            tf.distribute.get_replica_context().replica_id_in_sync_group,
            tf.float32)
        return [factor * g for g in gradients]

      reduced = mirrored.extended.batch_reduce_to(
          tf.distribute.ReduceOp.SUM,
          list(zip(mirrored.run(replica_fn), variables)))
      optimizer.apply_gradients(
          zip(reduced, variables), scale=.5, condition=condition)

    for step in range(20):
      gradients = _random(step + 1)
      update([tf.constant(g) for g in gradients], tf.constant(True))
      update([tf.constant(g) for g in gradients], tf.constant(False))
      oracle.apply([np.float32(1.5) * g for g in gradients], .05)

  for replica in range(2):
    local = lambda some: [
        mirrored.experimental_local_results(v)[replica].numpy() for v in some]
    _assert_same(
        [local(variables), local(optimizer.mean_square),
         local(optimizer.momentum)], oracle.state(), rtol=1e-6, atol=1e-6)


_TABLE_SHAPES = [(9, 4), (6,), (5, 3, 2)]


def _random_tables(seed):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=shape).astype(np.float32) for shape in _TABLE_SHAPES]


def _random_slices(seed, min_rows=0):
  """Values and indices with repetitions, never of a table's last row."""
  rng = np.random.default_rng(seed)
  slices = []
  for shape in _TABLE_SHAPES:
    indices = rng.integers(
        shape[0] - 1, size=rng.integers(min_rows, 5)).astype(np.int32)
    values = .2 * rng.normal(size=(len(indices), *shape[1:]))
    slices.append((values.astype(np.float32), indices))
  return slices


def _as_indexed_slices(slices, factor=np.float32(1.)):
  return [
      tf.IndexedSlices(tf.convert_to_tensor(factor * values),
                       tf.convert_to_tensor(indices), tf.constant(shape))
      for (values, indices), shape in zip(slices, _TABLE_SHAPES, strict=True)]


def _sparse_pair(momentum=.9):
  variables = [tf.Variable(value) for value in _random_tables(0)]
  optimizer = rmsprop.RMSProp(.05, decay=.9, momentum=momentum, epsilon=.1)
  return variables, optimizer


@pytest.mark.parametrize('compiled', [False, True])
@pytest.mark.parametrize('momentum', [0., .9])
def test_sparse_equals_tensorflow_1(momentum, compiled):
  """120 updates of random rows leave the same variables and slots."""
  settings = dict(decay=.99, momentum=momentum, epsilon=.1)
  initial = _random_tables(0)
  oracle = _TF1(initial, **settings, sparse=True)
  variables = [tf.Variable(value) for value in initial]
  optimizer = rmsprop.RMSProp(123., **settings)
  optimizer.build(variables)
  update = lambda gradients, learning_rate: optimizer.apply_gradients(
      zip(gradients, variables), learning_rate)
  if compiled:
    update = tf.function(update, reduce_retracing=True)
  num_repeated = 0
  for step in range(120):
    learning_rate = np.float32(.01 * (1. - step / 120))
    slices = _random_slices(step)
    num_repeated += sum(
        len(indices) > len(set(indices)) for _, indices in slices)
    oracle.apply(slices, learning_rate)
    update(_as_indexed_slices(slices), tf.constant(learning_rate))
  assert num_repeated > 50
  assert np.abs(variables[0].numpy()[:-1] - initial[0][:-1]).min() > 1e-4
  _assert_same(_state(variables, optimizer), oracle.state(), rtol=0, atol=1e-6)
  for variable, value in zip(variables, initial):
    np.testing.assert_array_equal(variable[-1], value[-1])


def test_rows_that_a_gradient_lacks_stay():
  """To the bit: neither mean square nor momentum decays, nothing moves."""
  variables, optimizer = _sparse_pair()
  dense = [tf.constant(value) for value in _random_tables(1)]
  optimizer.apply_gradients(zip(dense, variables))
  before = _state(variables, optimizer)
  slices = [(np.ones((1, *shape[1:]), np.float32), np.array([2], np.int32))
            for shape in _TABLE_SHAPES]
  optimizer.apply_gradients(zip(_as_indexed_slices(slices), variables))
  for some, others in zip(_state(variables, optimizer), before, strict=True):
    for after, earlier in zip(some, others, strict=True):
      np.testing.assert_array_equal(
          np.delete(after, 2, axis=0), np.delete(earlier, 2, axis=0))
      assert (after[2] != earlier[2]).all()


def test_negative_indices_are_no_rows():
  """Neither the last rows, as in NumPy, nor any other, even with NaN."""
  states = []
  for padding in (0, 3):
    variables, optimizer = _sparse_pair()
    for seed in range(1, 4):
      slices = [
          (np.concatenate([np.full((padding, *v.shape[1:]), np.nan, 'f'), v]),
           np.concatenate([np.arange(-padding, 0, dtype=np.int32), indices]))
          for v, indices in _random_slices(seed)]
      optimizer.apply_gradients(zip(_as_indexed_slices(slices), variables))
    states.append(_state(variables, optimizer))
  assert (states[0][0][0] != _random_tables(0)[0]).any()
  _assert_same(states[1], states[0], rtol=0)


def test_sparse_gradient_without_rows_changes_nothing():
  variables, optimizer = _sparse_pair()
  optimizer.apply_gradients(zip(_as_indexed_slices(_random_slices(1)),
                                variables))
  before = _state(variables, optimizer)
  for indices in ([], [-1, -1]):
    optimizer.apply_gradients(zip(_as_indexed_slices(
        [(np.ones((len(indices), *shape[1:]), np.float32),
          np.array(indices, np.int32)) for shape in _TABLE_SHAPES]), variables))
  _assert_same(_state(variables, optimizer), before, rtol=0)


def test_scale_multiplies_sparse_gradients():
  """Before they enter the mean square, not the step afterwards."""
  variables, optimizer = _sparse_pair()
  optimizer.apply_gradients(
      zip(_as_indexed_slices(_random_slices(1)), variables),
      scale=tf.constant(.25))
  others, other_optimizer = _sparse_pair()
  other_optimizer.apply_gradients(zip(_as_indexed_slices(
      [(np.float32(.25) * values, indices)
       for values, indices in _random_slices(1)]), others))
  assert (others[0].numpy() != _random_tables(0)[0]).any()
  _assert_same(_state(variables, optimizer), _state(others, other_optimizer),
               rtol=1e-6)


@pytest.mark.parametrize('compiled', [False, True])
def test_false_condition_changes_no_row(compiled):
  """Not even with NaN gradients; variables and slots stay as they were."""
  variables, optimizer = _sparse_pair()
  optimizer.apply_gradients(zip(_as_indexed_slices(_random_slices(1)),
                                variables))
  before = _state(variables, optimizer)
  apply = lambda gradients, condition: optimizer.apply_gradients(
      zip(gradients, variables), condition=condition)
  if compiled:
    apply = tf.function(apply)
  apply(_as_indexed_slices([(np.nan * values, indices)
                            for values, indices in _random_slices(2)]),
        tf.constant(False))
  _assert_same(_state(variables, optimizer), before, rtol=0)
  apply(_as_indexed_slices(_random_slices(2)), tf.constant(True))
  assert (_state(variables, optimizer)[0][0] != before[0][0]).any()


def test_row_that_is_first_touched_late():
  """It moves as in TensorFlow 1, and not 3.19 times as far.

  That is what a dense gradient does: it lets the row's mean square decay for
  the 500 updates before.
  """
  settings = dict(decay=.99, momentum=0., epsilon=.1)
  learning_rate, gradient = .00048, .25
  initial = [np.zeros([2, 1], np.float32)]
  oracle = _TF1(initial, **settings, sparse=True)
  sparse, dense = tf.Variable(initial[0]), tf.Variable(initial[0])
  sparse_optimizer = rmsprop.RMSProp(learning_rate, **settings)
  dense_optimizer = rmsprop.RMSProp(learning_rate, **settings)
  sparse_optimizer.build([sparse])
  dense_optimizer.build([dense])
  values = tf.constant([[gradient]])

  @tf.function
  def update(row):
    slices = tf.IndexedSlices(values, row[tf.newaxis], tf.constant([2, 1]))
    sparse_optimizer.apply_gradients([(slices, sparse)])
    dense_optimizer.apply_gradients([(tf.convert_to_tensor(slices), dense)])

  for row in [0] * 500 + [1]:
    update(tf.constant(row))
    oracle.apply([(values.numpy(), np.array([row], np.int32))], learning_rate)
  _assert_same(_state([sparse], sparse_optimizer), oracle.state(),
               rtol=1e-6, atol=1e-6)
  # Steps are so small that only relative differences say something.
  np.testing.assert_allclose(sparse[1], oracle.state()[0][0][1], rtol=1e-6)
  by_hand = learning_rate * gradient / np.sqrt(.99 + .01 * gradient ** 2 + .1)
  np.testing.assert_allclose(sparse[1], [-by_hand], rtol=1e-5)
  assert float(dense[1, 0] / sparse[1, 0]) == pytest.approx(3.19, abs=.005)


def test_variables_are_mean_squares_then_momenta():
  variables, optimizer = _pair()
  assert optimizer.variables() == []
  optimizer.build(variables)
  shapes = [variable.shape for variable in optimizer.variables()]
  assert shapes == 2 * _SHAPES
  values = [variable.numpy().max() for variable in optimizer.variables()]
  assert values == 4 * [1.] + 4 * [0.]
  assert all(ours is slot for ours, slot in zip(
      optimizer.variables(), optimizer.mean_square + optimizer.momentum,
      strict=True))


def _slices_of_replica(slices):
  """Sparse gradients that differ between replicas."""
  factor = 1. + tf.cast(
      tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
  return _as_indexed_slices(slices, factor)


def _reduced(strategy, slices, variables):
  """Sparse gradients of replicas that differ, reduced to mirrored sums."""
  return strategy.extended.batch_reduce_to(
      tf.distribute.ReduceOp.SUM,
      list(zip(strategy.run(_slices_of_replica, args=(slices,)), variables)))


def _reduced_rows(strategy, slices, variables):
  """The same as `Rows`, which is what a learner reduces."""
  dense, touched = strategy.run(lambda: gradients_lib.densify(
      dict(enumerate(_slices_of_replica(slices)))))
  reduced = lambda parts: strategy.extended.batch_reduce_to(
      tf.distribute.ReduceOp.SUM, list(zip(parts.values(), variables)))
  return map(rmsprop.Rows, reduced(dense), reduced(touched))


def _for_all(unused_strategy, slices, unused_variables):
  """One sum of sparse gradients for all replicas."""
  return _as_indexed_slices(slices, 3.)


@pytest.mark.parametrize('make', [_reduced_rows, _reduced, _for_all])
def test_sparse_mirrored_replicas_equal_tensorflow_1(mirrored, make):
  """Both copies end alike, from mirrored gradients and from one for all."""
  settings = dict(decay=.99, momentum=.9, epsilon=.1)
  initial = _random_tables(0)
  oracle = _TF1(initial, **settings, sparse=True)
  with mirrored.scope():
    variables = [tf.Variable(value) for value in initial]
    optimizer = rmsprop.RMSProp(.05, **settings)
    optimizer.build(variables)

    of_any_length = [
        (tf.TensorSpec([None, *shape[1:]]), tf.TensorSpec([None], tf.int32))
        for shape in _TABLE_SHAPES]

    @tf.function(input_signature=[of_any_length, tf.TensorSpec([], tf.bool)])
    def update(slices, condition):
      optimizer.apply_gradients(
          zip(make(mirrored, slices, variables), variables), scale=.5,
          condition=condition)

    for step in range(20):
      # TensorFlow's own sum of slices over replicas fails on empty ones.
      slices = _random_slices(step + 1, min_rows=1)
      tensors = [tuple(map(tf.constant, pair)) for pair in slices]
      update(tensors, tf.constant(True))
      update(tensors, tf.constant(False))
      oracle.apply([(np.float32(1.5) * values, indices)
                    for values, indices in slices], .05)

  for replica in range(2):
    local = lambda some: [
        mirrored.experimental_local_results(v)[replica].numpy() for v in some]
    _assert_same(
        [local(variables), local(optimizer.mean_square),
         local(optimizer.momentum)], oracle.state(), rtol=1e-6, atol=1e-6)


def test_sparse_on_one_device_equals_tensorflow_1():
  """Under the strategy of a learner with one device."""
  settings = dict(decay=.99, momentum=.9, epsilon=.1)
  strategy = tf.distribute.OneDeviceStrategy('/cpu:0')
  oracle = _TF1(_random_tables(0), **settings, sparse=True)
  with strategy.scope():
    variables = [tf.Variable(value) for value in _random_tables(0)]
    optimizer = rmsprop.RMSProp(.05, **settings)
    optimizer.build(variables)

    @tf.function(reduce_retracing=True)
    def update(slices):
      optimizer.apply_gradients(
          zip(_reduced(strategy, slices, variables), variables))

    for step in range(5):
      slices = _random_slices(step + 1)
      update([tuple(map(tf.constant, pair)) for pair in slices])
      oracle.apply(slices, .05)
  _assert_same(_state(variables, optimizer), oracle.state(),
               rtol=1e-6, atol=1e-6)
