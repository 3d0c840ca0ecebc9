"""Language: an instruction becomes word ids, and an LSTM reads their embedding.

Word ids are int32; -1 fills up behind the last word.
"""

import tensorflow as tf

from scalable_agent import environments
from scalable_agent.networks import lstm

_EMBEDDING_SIZE = 20
_LSTM_SIZE = 64
# The weight whose gradient has the rows of the words alone.
EMBEDDING = 'instruction/embedding'


def hash_instructions(instructions):
  """Turns instructions into word ids.

  Args:
    instructions: string tensor [N].

  Returns:
    int32 [N, W], hash buckets of the words, -1 after the last word; W is the
    number of words of the longest, at least 1.
  """
  words = tf.strings.split(instructions)
  buckets = tf.ragged.map_flat_values(
      tf.strings.to_hash_bucket_fast, words, environments.NUM_HASH_BUCKETS)
  ids = tf.cast(buckets, tf.int32).to_tensor(default_value=-1)
  missing = tf.maximum(1 - tf.shape(ids)[1], 0)
  return tf.pad(ids, [[0, 0], [0, missing]], constant_values=-1)


def init_encoder(initializer):
  """Makes the weights of `encode`.

  Args:
    initializer: A `layers.Initializer`.

  Returns:
    The size of an encoding.
  """
  # The released code's Sonnet takes the number of words for the fan in.
  initializer.normal(
      EMBEDDING, [environments.NUM_HASH_BUCKETS, _EMBEDDING_SIZE],
      stddev=environments.NUM_HASH_BUCKETS ** -.5)
  lstm.init_lstm(initializer, 'instruction/lstm', _EMBEDDING_SIZE, _LSTM_SIZE)
  return _LSTM_SIZE


def encode(params, ids):
  """Encodes instructions as the LSTM's output at the last word.

  Args:
    params: The weights.
    ids: int32 [N, WORDS], word ids.

  Returns:
    float32 [N, 64], zeros where there is no word.
  """
  embedding = _look_up(params[EMBEDDING], ids)
  gates = lstm.lstm_gates(params, 'instruction/lstm', embedding)
  zeros = tf.zeros([tf.shape(ids)[0], _LSTM_SIZE])

  def step(state, inputs):
    gates_t, is_word = inputs
    after = lstm.lstm_step(
        params, 'instruction/lstm', gates_t, lstm.LSTMState(*state))
    return tuple(tf.where(is_word, a, s) for a, s in zip(after, state))

  _, h = tf.foldl(
      step, (tf.transpose(gates, [1, 0, 2]),
             tf.transpose(ids >= 0)[:, :, tf.newaxis]),
      initializer=(zeros, zeros))
  return h


@tf.custom_gradient
def _look_up(table, ids):
  """Takes rows of a table; the gradient names the rows that were taken.

  The gradient of `tf.gather` alone could not tell padding from word 0.

  Args:
    table: float32 [rows, size].
    ids: int32 [N, WORDS], -1 for no row.

  Returns:
    float32 [N, WORDS, size], anything where the id is -1. The gradient of the
    table is `tf.IndexedSlices` whose indices are `ids`, flat and with the -1.
  """
  def gradient(upstream):
    values = tf.reshape(upstream, [-1, table.shape[-1]])
    return tf.IndexedSlices(
        values, tf.reshape(ids, [-1]), tf.shape(table)), None

  return tf.gather(table, tf.maximum(ids, 0)), gradient
