"""The LSTM of TensorFlow 1's `LSTMBlockCell`, as functions of its weights.

With the kernel cut into W, which the inputs are multiplied by, and U:

    i, j, f, o = x_t W + b + h_{t-1} U
    c_t = sigmoid(f + 1) c_{t-1} + sigmoid(i) tanh(j)
    h_t = sigmoid(o) tanh(c_t)
"""

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
  """Computes the part of an LSTM's gates that depends on its inputs alone.

  Args:
    params: Weights; `name/w` is [input size + units, 4 units] with TensorFlow
      1's gate order i, j, f, o.
    name: Prefix of the weights.
    inputs: float32 [..., input size].

  Returns:
    float32 [..., 4 units], for `lstm_step`.
  """
  return _gates(params, name, inputs)[0]


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
  weights = params[name + '/w'][-state.h.shape[-1]:]
  return LSTMState(*_step(gates + tf.matmul(state.h, weights), state.c)[:2])


def reset(state, done):
  """Returns an `LSTMState` that is zero where bool [B] `done`."""
  # Not a product, in which what is not finite would stay.
  return LSTMState(*(tf.where(done[:, tf.newaxis], 0., s) for s in state))


def lstm_unroll(params, name, inputs, done, state):
  """Makes T steps of an LSTM.

  Args:
    params: As in `lstm_gates`.
    name: As in `lstm_gates`.
    inputs: float32 [T, B, input size].
    done: bool [T, B], where the state is reset before the step.
    state: The `LSTMState` before the first step, float32 [B, units].

  Returns:
    The outputs of all steps, float32 [T * B, units], and the last `LSTMState`.
  """
  (outputs,), (state,) = lstm_unrolls(params, [name], [inputs], done, [state])
  return outputs, state


def lstm_unrolls(params, names, inputs, done, states):
  """Makes T steps of N LSTMs of the same size, side by side.

  Args:
    params: As in `lstm_gates`.
    names: A list of N prefixes of the weights.
    inputs: A list of N inputs, as for `lstm_unroll`.
    done: As for `lstm_unroll`.
    states: A list of N `LSTMState`s, as for `lstm_unroll`.

  Returns:
    A list of N outputs and a list of N states, as `lstm_unroll` returns them.
  """
  gates, weights = zip(*(
      _gates(params, name, each) for name, each in zip(names, inputs)))
  # The rows of all LSTMs are those of one tensor, N * B of them.
  outputs, *last = _unroll(
      tf.concat(gates, 1), tf.concat([done] * len(names), 1),
      *(tf.concat(parts, 0) for parts in zip(*states)), *weights)
  units = outputs.shape[-1]
  return ([tf.reshape(each, [-1, units])
           for each in tf.split(outputs, len(names), 1)],
          [LSTMState(*pair)
           for pair in zip(*(tf.split(part, len(names)) for part in last))])


def _gates(params, name, inputs):
  """Returns what `lstm_gates` does, and U."""
  kernel = params[name + '/w']
  num_inputs = inputs.shape[-1]
  # The gradient of a split is less work than those of two slices.
  of_inputs, weights = tf.split(
      kernel, [num_inputs, kernel.shape[0] - num_inputs])
  return tf.tensordot(inputs, of_inputs, 1) + params[name + '/b'], weights


def _step(gates, c):
  """Returns c_t, h_t and the gates' values, of all gates and c_{t-1}."""
  i, j, f, o = tf.split(gates, 4, axis=-1)
  i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + 1.), tf.sigmoid(o)
  c = f * c + i * j
  squashed = tf.tanh(c)
  return c, o * squashed, (i, j, f, o, squashed)


def _multiply(rows, weights):
  """Multiplies each of N equal parts of the rows by its own weights."""
  if len(weights) == 1:
    return tf.matmul(rows, weights[0])
  # On few rows, one product of batches would take longer.
  return tf.concat([tf.matmul(part, each) for part, each in zip(
      tf.split(rows, len(weights)), weights)], 0)


@tf.custom_gradient
def _unroll(gates, done, c, h, *weights):
  """Makes T steps on R rows, of which each LSTM has its share.

  Each operation has its own cost, whatever it computes. So a step back takes
  few: what needs no gradient of a later step is computed for all steps at once,
  as is the gradient of the weights.

  Args:
    gates: float32 [T, R, 4 units], of `lstm_gates`.
    done: bool [T, R].
    c: float32 [R, units].
    h: float32 [R, units].
    *weights: N U, float32 [units, 4 units].

  Returns:
    h of all steps, float32 [T, R, units], the last c and the last h.
  """
  before, values, outputs = [], [], []
  for gates_t, done_t in zip(tf.unstack(gates), tf.unstack(done)):
    state = reset(LSTMState(c, h), done_t)
    before.append(state)
    c, h, values_t = _step(gates_t + _multiply(state.h, weights), state.c)
    values.append(values_t)
    outputs.append(h)

  def gradient(outputs_gradient, c_gradient, h_gradient):
    c_before, h_before = map(tf.stack, zip(*before))
    i, j, f, o, squashed = map(tf.stack, zip(*values))
    kept = tf.cast(~done, gates.dtype)[..., tf.newaxis]
    # dh_t / dc_t.
    h_by_c = tf.unstack(o * (1. - squashed**2))
    # dc_t / dc_{t-1}.
    c_by_c = tf.unstack(f * kept)
    # dc_t / di, dc_t / dj, dc_t / df and dh_t / do.
    by_gate = tf.unstack(tf.concat([
        i * (1. - i) * j, i * (1. - j**2), f * (1. - f) * c_before,
        o * (1. - o) * squashed], -1))
    outputs_gradient, kept = tf.unstack(outputs_gradient), tf.unstack(kept)
    transposed = [tf.transpose(each) for each in weights]
    gates_gradient = []
    for t in reversed(range(len(outputs))):
      h_gradient += outputs_gradient[t]
      c_gradient += h_gradient * h_by_c[t]
      gates_gradient.append(by_gate[t] * tf.concat(
          [c_gradient, c_gradient, c_gradient, h_gradient], -1))
      h_gradient = kept[t] * _multiply(gates_gradient[-1], transposed)
      c_gradient *= c_by_c[t]
    gates_gradient = tf.stack(gates_gradient[::-1])
    of_each = lambda values: [
        tf.reshape(part, [-1, part.shape[-1]])
        for part in tf.split(values, len(weights), 1)]
    return (gates_gradient, None, c_gradient, h_gradient, *(
        tf.matmul(each, its_gradient, transpose_a=True)
        for each, its_gradient in zip(
            of_each(h_before), of_each(gates_gradient))))

  return (tf.stack(outputs), c, h), gradient
