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
  return _step(_recurrent_weights(params, name, state), gates, state)


def _recurrent_weights(params, name, state):
  """Returns the part of the kernel that the output is multiplied by."""
  return params[name + '/w'][-state.h.shape[-1]:]


def _step(weights, gates, state):
  gates += tf.matmul(state.h, weights)
  i, j, f, o = tf.split(gates, 4, axis=-1)
  c = tf.sigmoid(f + 1.) * state.c + tf.sigmoid(i) * tf.tanh(j)
  return LSTMState(c, tf.sigmoid(o) * tf.tanh(c))


def reset(state, done):
  """Returns an `LSTMState` that is zero where bool [B] `done`."""
  return _reset(state, done[:, tf.newaxis])


def _reset(state, done):
  # Not a product, in which what is not finite would stay.
  return LSTMState(*(tf.where(done, 0., s) for s in state))


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
  outputs, state = _unroll(
      _recurrent_weights(params, name, state), gates, done, state)
  return tf.concat(outputs, axis=0), state


def lstm_unrolls(params, names, gates, done, states):
  """Makes T steps of N LSTMs of the same size, side by side.

  Args:
    params: As in `lstm_gates`.
    names: A list of N prefixes of the weights.
    gates: A list of N float32 [T, B, 4 units], of `lstm_gates`.
    done: As for `lstm_unroll`.
    states: A list of N `LSTMState`s, as for `lstm_unroll`.

  Returns:
    A list of N outputs and a list of N states, as `lstm_unroll` returns them.
  """
  weights = tf.stack([_recurrent_weights(params, name, state)
                      for name, state in zip(names, states)])
  outputs, state = _unroll(
      weights, tf.stack(gates, axis=1), done,
      LSTMState(*map(tf.stack, zip(*states))))
  return (tf.unstack(tf.concat(outputs, axis=1)),
          [LSTMState(*pair) for pair in zip(*map(tf.unstack, state))])


def _unroll(weights, gates, done, state):
  """Returns a list of T outputs, and the last state."""
  # What is the same in all steps is computed once, and so is its gradient.
  outputs = []
  for gates_t, done_t in zip(
      tf.unstack(gates), tf.unstack(done[..., tf.newaxis])):
    state = _step(weights, gates_t, _reset(state, done_t))
    outputs.append(state.h)
  return outputs, state
