"""The LSTM of TensorFlow 1's `LSTMBlockCell`, as functions of its weights."""

import collections

import tensorflow as tf

LSTMState = collections.namedtuple('LSTMState', 'c h')
LSTMState.__doc__ = """The state of an LSTM.

  c: float32 [B, units], the cell.
  h: float32 [B, units], the output.
"""


def init_lstm(initializer, name, input_size, units):
  """Makes an LSTM's weights, as the released code starts them.

  The kernel is Glorot uniform, the bias zero. `lstm_step` adds the forget bias.

  Args:
    initializer: A `layers.Initializer`.
    name: Prefix of the weights.
    input_size: Size of the inputs.
    units: Size of the output.
  """
  initializer.glorot_uniform(name + '/w', [input_size + units, 4 * units])
  initializer.zeros(name + '/b', [4 * units])


def lstm_gates(params, name, inputs):
  """Computes the part of an LSTM's gates that depends on its input alone.

  Args:
    params: Weights; `name/w` is [input size + units, 4 units] with TensorFlow
      1's gate order i, j, f, o.
    name: Prefix of the weights.
    inputs: float32 [..., input size].

  Returns:
    float32 [..., 4 units], for `lstm_step`.
  """
  kernel = params[name + '/w'][:inputs.shape[-1]]
  return tf.tensordot(inputs, kernel, 1) + params[name + '/b']


def lstm_step(params, name, gates, state):
  """Makes one step of an LSTM with forget bias 1.

  Args:
    params: As in `lstm_gates`.
    name: As in `lstm_gates`.
    gates: float32 [B, 4 units], of `lstm_gates`.
    state: `LSTMState` of float32 [B, units].

  Returns:
    The next `LSTMState`; its `h` is the output.
  """
  units = state.h.shape[-1]
  gates += tf.matmul(state.h, params[name + '/w'][-units:])
  i, j, f, o = tf.split(gates, 4, axis=-1)
  c = tf.sigmoid(f + 1.) * state.c + tf.sigmoid(i) * tf.tanh(j)
  return LSTMState(c, tf.sigmoid(o) * tf.tanh(c))


def reset(state, done):
  """Returns an `LSTMState` that is zero where bool [B] `done`."""
  keep = tf.cast(~done, tf.float32)[:, tf.newaxis]
  return LSTMState(state.c * keep, state.h * keep)


def lstm_unroll(params, name, gates, done, state):
  """Makes T steps of an LSTM.

  Args:
    params: As in `lstm_gates`.
    name: As in `lstm_gates`.
    gates: float32 [T, B, 4 units], of `lstm_gates`.
    done: bool [T, B], where the state is reset before the step.
    state: The `LSTMState` before the first step, float32 [B, units].

  Returns:
    The outputs of all steps, float32 [T * B, units], and the last `LSTMState`.
  """
  outputs = []
  for gates_t, done_t in zip(tf.unstack(gates), tf.unstack(done)):
    state = lstm_step(params, name, gates_t, reset(state, done_t))
    outputs.append(state.h)
  return tf.concat(outputs, axis=0), state
