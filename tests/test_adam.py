"""Adam, against that of Keras."""

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import adam

_SHAPES = [(), (7,), (3, 4)]


def _random(seed):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


def _pair(**kwargs):
  variables = [tf.Variable(value) for value in _random(0)]
  return variables, adam.Adam(**kwargs)


def _apply(variables, optimizer, seed, **kwargs):
  optimizer.apply_gradients(
      zip(map(tf.constant, _random(seed)), variables), .05, **kwargs)


@pytest.mark.parametrize('beta_1', [0., .9])
@pytest.mark.parametrize('compiled', [False, True])
def test_equals_keras(beta_1, compiled):
  """Bias correction too, which matters for a thousand steps."""
  variables, optimizer = _pair(beta_1=beta_1, beta_2=.999, epsilon=1e-4)
  optimizer.build(variables)
  others = [tf.Variable(value) for value in _random(0)]
  keras = tf.keras.optimizers.Adam(.05, beta_1, .999, 1e-4)
  update = lambda gradients, rate: optimizer.apply_gradients(
      zip(gradients, variables), rate)
  if compiled:
    update = tf.function(update)
  for step in range(20):
    rate = np.float32(.05 / (1 + step))
    gradients = [tf.constant(np.float32(.01) * g) for g in _random(step + 1)]
    keras.learning_rate = rate
    keras.apply_gradients(zip(gradients, others))
    update(gradients, tf.constant(rate))
  for one, other, initial in zip(variables, others, _random(0)):
    np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)
    assert np.abs(one.numpy() - initial).max() > .02
  assert int(optimizer.updates) == 20


def test_first_step_by_hand():
  """Without beta_1 it is the rate times the gradient's sign."""
  variable = tf.Variable([1., 1.])
  optimizer = adam.Adam(beta_1=0., beta_2=.999, epsilon=1e-8)
  optimizer.apply_gradients([(tf.constant([2., -.01]), variable)], .1)
  np.testing.assert_allclose(variable, [.9, 1.1], rtol=1e-4)


def test_false_condition_changes_nothing():
  variables, optimizer = _pair()
  _apply(variables, optimizer, 1)
  state = lambda: [v.numpy() for v in variables + optimizer.variables()]
  before = state()
  nans = [tf.fill(shape, np.nan) for shape in _SHAPES]
  optimizer.apply_gradients(
      zip(nans, variables), .05, condition=tf.constant(False))
  for one, other in zip(state(), before, strict=True):
    np.testing.assert_array_equal(one, other)


def test_scale_multiplies_gradients():
  variables, optimizer = _pair()
  _apply(variables, optimizer, 1, scale=tf.constant(.25))
  np.testing.assert_allclose(
      optimizer.mean_square[1], .001 * (.25 * _random(1)[1]) ** 2, rtol=1e-4)


def test_all_replicas_are_updated(mirrored):
  """And have one count of updates."""
  with mirrored.scope():
    variables, optimizer = _pair()
    optimizer.build(variables)
    for seed in (1, 2):
      _apply(variables, optimizer, seed)
  alone, other = _pair()
  for seed in (1, 2):
    _apply(alone, other, seed)
  for one, expected in zip(variables + optimizer.variables(),
                           alone + other.variables(), strict=True):
    copies = mirrored.experimental_local_results(one)
    assert len(copies) == 2
    for copy in copies:
      np.testing.assert_allclose(copy.numpy(), expected.numpy(), rtol=1e-6)
