import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent.networks import layers
from scalable_agent.networks import lstm
from tests.networks import agents
from tests.networks import block_cell


def test_lstm_is_tensorflow_1s_block_cell():
  """The same weights, in the same layout, give the same states."""
  rng = np.random.default_rng(0)
  normal = lambda *shape: tf.constant(rng.normal(size=shape), tf.float32)
  params = {'lstm/w': normal(5 + 7, 4 * 7), 'lstm/b': normal(4 * 7)}
  state = oracle = networks.LSTMState(normal(3, 7), normal(3, 7))
  for _ in range(4):
    inputs = normal(3, 5)
    gates = lstm.lstm_gates(params, 'lstm', inputs)
    state = lstm.lstm_step(params, 'lstm', gates, state)
    oracle = block_cell.step(params, 'lstm', inputs, oracle)
    agents.assert_close(state, oracle)


def test_initial_weights_are_glorot_uniform():
  """As `LSTMBlockCell` starts its kernel [inputs + units, 4 units]."""
  initializer = layers.Initializer(seed=1)
  lstm.init_lstm(initializer, 'lstm', 300, 100)
  assert set(initializer.params) == {'lstm/w', 'lstm/b'}
  kernel, bias = initializer.params['lstm/w'], initializer.params['lstm/b']
  assert kernel.shape == (400, 400) and kernel.dtype == np.float32
  agents.assert_uniform('lstm/w', kernel, (6 / 800) ** .5)
  np.testing.assert_array_equal(bias, np.zeros([400], np.float32))
  # The kernel that TensorFlow 1's default initializer draws is like it.
  oracle = tf.compat.v1.glorot_uniform_initializer(seed=2)([400, 400]).numpy()
  agents.assert_uniform('oracle', oracle, (6 / 800) ** .5)


def _step_by_step(params, name, inputs, done, state):
  """What `lstm_unroll` returns, as the equations are written down."""
  c, h = state
  outputs = []
  for inputs_t, done_t in zip(tf.unstack(inputs), tf.unstack(done)):
    c, h = (tf.where(done_t[:, tf.newaxis], 0., part) for part in (c, h))
    i, j, f, o = tf.split(
        tf.concat([inputs_t, h], 1) @ params[name + '/w'] + params[name + '/b'],
        4, 1)
    c = tf.sigmoid(f + 1.) * c + tf.sigmoid(i) * tf.tanh(j)
    h = tf.sigmoid(o) * tf.tanh(c)
    outputs.append(h)
  return tf.concat(outputs, 0), networks.LSTMState(c, h)


def _one_by_one(unroll):
  """Makes of a function for one LSTM what `lstm_unrolls` is for several."""
  return lambda params, names, inputs, done, states: zip(*(
      unroll(params, *each, done, state)
      for *each, state in zip(names, inputs, states)))


@pytest.mark.parametrize('unrolls, compiled', [
    (_one_by_one(lstm.lstm_unroll), False), (lstm.lstm_unrolls, False),
    (lstm.lstm_unrolls, True)])
def test_unrolls_and_their_gradients_are_those_of_the_steps(unrolls, compiled):
  """Of all weights, inputs and first states, over episodes that end."""
  rng = np.random.default_rng(0)
  normal = lambda *shape: tf.constant(rng.normal(size=shape), tf.float32)
  names = ['a', 'b']
  params = {name + part: normal(*shape) for name in names
            for part, shape in (('/w', (5 + 7, 4 * 7)), ('/b', (4 * 7,)))}
  inputs = [normal(6, 3, 5) for _ in names]
  states = [networks.LSTMState(normal(3, 7), normal(3, 7)) for _ in names]
  done = tf.constant(np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0],
                               [0, 0, 0], [0, 1, 0]], bool))
  # Each output and each part of the last states counts on its own.
  weights = [(normal(18, 7), networks.LSTMState(normal(3, 7), normal(3, 7)))
             for _ in names]

  def run(unrolls):
    watched = params, inputs, states
    with tf.GradientTape() as tape:
      tape.watch(watched)
      results = list(zip(*unrolls(params, names, inputs, done, states)))
      loss = tf.add_n([tf.reduce_sum(weight * value) for weight, value in zip(
          tree.flatten(weights), tree.flatten(results), strict=True)])
    return results, tape.gradient(loss, watched)

  results, gradients = tf.function(run, jit_compile=compiled)(unrolls)
  expected, expected_gradients = run(_one_by_one(_step_by_step))
  for mine, theirs in zip(tree.flatten(results), tree.flatten(expected),
                          strict=True):
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
  for mine, theirs in zip(tree.flatten(gradients),
                          tree.flatten(expected_gradients), strict=True):
    assert np.any(theirs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_an_episode_does_not_begin_with_what_was_not_finite(value):
  """Else one such observation would spoil all later episodes."""
  params = {'a/w': tf.ones([2 + 3, 4 * 3]), 'a/b': tf.zeros([4 * 3])}
  spoilt = lstm.LSTMState(tf.fill([2, 3], value), tf.fill([2, 3], value))
  for values in lstm.reset(spoilt, tf.constant([True, False])):
    np.testing.assert_array_equal(values, [[0.] * 3, [value] * 3])
  with tf.GradientTape() as tape:
    tape.watch(params)
    outputs, _ = lstm.lstm_unroll(
        params, 'a', tf.ones([1, 2, 2]), tf.constant([[True, True]]),
        spoilt)
  assert np.isfinite(outputs).all()
  assert np.isfinite(tape.gradient(outputs, params['a/w'])).all()
