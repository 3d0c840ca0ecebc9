import numpy as np
import pytest
import tensorflow as tf

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
    gates = networks.lstm_gates(params, 'lstm', inputs)
    state = networks.lstm_step(params, 'lstm', gates, state)
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


def test_lstms_side_by_side_are_lstms_one_by_one():
  """Outputs, last states and gradients, over episodes that end."""
  rng = np.random.default_rng(0)
  normal = lambda *shape: tf.constant(rng.normal(size=shape), tf.float32)
  names = ['a', 'b']
  params = {name + part: normal(*shape) for name in names
            for part, shape in (('/w', (5 + 7, 4 * 7)), ('/b', (4 * 7,)))}
  gates = [normal(6, 3, 4 * 7) for _ in names]
  states = [networks.LSTMState(normal(3, 7), normal(3, 7)) for _ in names]
  done = tf.constant(rng.random([6, 3]) < .4)
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(params)
    outputs, last = lstm.lstm_unrolls(params, names, gates, done, states)
    expected, expected_last = zip(*(
        lstm.lstm_unroll(params, *each, done, state)
        for *each, state in zip(names, gates, states)))
    losses = [tf.reduce_sum(tf.concat(values, 1)**3)
              for values in (outputs, expected)]
  for mine, theirs in zip(outputs, expected):
    agents.assert_close(mine, theirs)
  for mine, theirs in zip(last, expected_last):
    agents.assert_close(mine, theirs)
  kernels = [params[name + '/w'] for name in names]
  mine, theirs = (tape.gradient(loss, kernels) for loss in losses)
  for one, other in zip(mine, theirs):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
  # Step by step, each with what is left of its state.
  state = states[1]
  for t in range(6):
    state = networks.lstm_step(
        params, 'b', gates[1][t], lstm.reset(state, done[t]))
    np.testing.assert_allclose(
        outputs[1][3 * t:3 * t + 3], state.h, rtol=1e-5, atol=1e-5)


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
        params, 'a', tf.ones([1, 2, 4 * 3]), tf.constant([[True, True]]),
        spoilt)
  assert np.isfinite(outputs).all()
  assert np.isfinite(tape.gradient(outputs, params['a/w'])).all()
