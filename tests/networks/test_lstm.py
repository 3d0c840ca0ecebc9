import numpy as np
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
