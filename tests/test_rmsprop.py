import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import rmsprop

_SHAPES = [(), (7,), (3, 4), (2, 3, 2, 2)]


def _random(seed):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


class _TF1:
  """TensorFlow 1's optimizer, in its own graph and session."""

  def __init__(self, initial, decay, momentum, epsilon):
    with tf.Graph().as_default():
      self._variables = [
          tf.compat.v1.get_variable(f'v{i}', initializer=value)
          for i, value in enumerate(initial)]
      self._gradients = [tf.compat.v1.placeholder(tf.float32, value.shape)
                         for value in initial]
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

  def apply(self, gradients, learning_rate):
    feeds = dict(zip(self._gradients, gradients))
    feeds[self._learning_rate] = learning_rate
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
