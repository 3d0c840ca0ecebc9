import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import networks
from scalable_agent.environments import StepOutput
from scalable_agent.networks import instructions
from scalable_agent.networks import layers
from scalable_agent.networks import lstm
from tests.networks import agents
from tests.networks import block_cell

_MODES = {
    'eager': lambda f: f,
    'graph': lambda f: tf.function(f, autograph=False),
    'xla': lambda f: tf.function(f, autograph=False, jit_compile=True)}


def test_hash_instructions():
  """TensorFlow's hash of each word into 1000 buckets, then -1."""
  ids = networks.hash_instructions(
      tf.constant(['go to the red door', '', 'red', '  two \t spaces ']))
  bucket = lambda word: int(tf.strings.to_hash_bucket_fast(word, 1000))
  expected = [[bucket(word) for word in words] + [-1] * (5 - len(words))
              for words in (['go', 'to', 'the', 'red', 'door'], [], ['red'],
                            ['two', 'spaces'])]
  assert ids.dtype == tf.int32
  np.testing.assert_array_equal(ids, expected)


def test_hash_instructions_without_words():
  """There is always a column, so that shapes of the network stay sane."""
  np.testing.assert_array_equal(
      networks.hash_instructions(tf.constant(['', ''])), [[-1], [-1]])


def test_initial_embedding_has_sonnets_stddev():
  """1/sqrt(vocabulary), not 1/sqrt(20)."""
  initializer = layers.Initializer(seed=1)
  assert instructions.init_encoder(initializer) == 64
  values = initializer.params['instruction/embedding']
  assert values.shape == (1000, 20) and values.dtype == np.float32
  agents.assert_truncated_normal('embedding', values, 1000 ** -.5)
  assert values.std() == pytest.approx(.8796 * .0316, rel=.02)


def _encode(words):
  """The encoding as the heads see it: the policy is made to show it."""
  agent = agents.make(
      'vector', use_lstm=False, instruction=True, num_actions=64)
  params = agents.params(agent)
  params['policy_logits/w'] = np.concatenate(
      [np.zeros([64 + 1 + 64, 64]), np.eye(64)]).astype(np.float32)
  params['policy_logits/b'] = np.zeros([64], np.float32)
  batch = len(words)
  env_output = StepOutput(
      reward=tf.zeros([1, batch]), info=(), done=tf.zeros([1, batch], tf.bool),
      observation=(tf.ones([1, batch, 5]), tf.constant(words)[tf.newaxis]))
  (logits, _), _ = agent.unroll(
      params, tf.zeros([1, batch], tf.int32), env_output, ())
  return params, logits[0].numpy()


def test_instruction_encoding_is_the_output_at_the_last_word():
  """However wide the padding is; zeros without words."""
  words = np.array([[5, 999, 5, 0], [7, -1, -1, -1], [-1, -1, -1, -1],
                    [0, -1, -1, -1]], np.int32)
  params, encoding = _encode(words)
  agents.assert_close(encoding, block_cell.encode(params, words))
  np.testing.assert_array_equal(encoding[2], np.zeros([64]))
  assert np.abs(encoding[3]).max() > 1e-3
  wide = np.pad(words, [[0, 0], [0, 3]], constant_values=-1)
  np.testing.assert_allclose(_encode(wide)[1], encoding, rtol=1e-6, atol=1e-7)


# Word ids [T=2, B=2, WORDS]: with word 0, without it, and without any word.
_BATCHES = [
    [[[5, 0, -1], [-1, -1, -1]], [[5, 7, 5], [999, -1, -1]]],
    [[[3, 8, 3], [2, -1, -1]], [[8, -1, -1], [-1, -1, -1]]],
    [[[-1, -1, -1]] * 2] * 2]


def _agent_and_params():
  agent = agents.make('vector', use_lstm=True, instruction=True)
  return agent, {k: tf.constant(w) for k, w in agents.params(agent).items()}


@pytest.mark.parametrize('mode', _MODES)
def test_embedding_gradient_names_the_words_of_the_batch(mode):
  """One entry for each occurrence, and -1 for padding, which is dropped."""
  agent, params = _agent_and_params()

  def embedding_gradient(params, actions, env_outputs):
    with tf.GradientTape() as tape:
      tape.watch(params)
      (logits, baseline), _ = agent.unroll(
          params, actions, env_outputs, agent.initial_state(2))
      loss = tf.reduce_sum(logits ** 2) + tf.reduce_sum(baseline)
    return tape.gradient(loss, params)['instruction/embedding']

  embedding_gradient = _MODES[mode](embedding_gradient)
  actions, env_outputs = agents.inputs('vector', 2, 2)
  frame, = env_outputs.observation
  for words in _BATCHES:
    gradient = embedding_gradient(params, actions, env_outputs._replace(
        observation=(frame, tf.constant(words, tf.int32))))
    assert isinstance(gradient, tf.IndexedSlices)
    words = np.ravel(words)
    np.testing.assert_array_equal(gradient.indices, words)
    assert gradient.values.shape == (words.size, 20)
    np.testing.assert_array_equal(gradient.dense_shape, [1000, 20])

    dense, touches = (
        tf.math.unsorted_segment_sum(values, gradient.indices, 1000).numpy()
        for values in (gradient.values, tf.ones_like(gradient.values[:, 0])))
    np.testing.assert_array_equal(
        touches, np.bincount(words[words >= 0], minlength=1000))
    np.testing.assert_array_equal(dense.any(axis=1), touches > 0)


def _encode_with_one_hot(params, table, ids):
  """Encodes with a product in the place of the look-up."""
  embedding = tf.one_hot(ids, 1000) @ table
  state = networks.LSTMState(tf.zeros([4, 64]), tf.zeros([4, 64]))
  for t in range(3):
    gates = lstm.lstm_gates(params, 'instruction/lstm', embedding[:, t])
    after = lstm.lstm_step(params, 'instruction/lstm', gates, state)
    is_word = ids[:, t, tf.newaxis] >= 0
    state = networks.LSTMState(*(
        tf.where(is_word, a, s) for a, s in zip(after, state)))
  return state.h


@pytest.mark.parametrize('mode', _MODES)
def test_embedding_gradient_is_that_of_a_product_with_one_hot(mode):
  _, params = _agent_and_params()
  weights = tf.random.stateless_normal([4, 64], [0, 0])

  def gradient_of(encode):
    def gradient(table, ids):
      with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(weights * encode(table, ids))
      return loss, tape.gradient(loss, table)
    return gradient

  sparse = _MODES[mode](gradient_of(
      lambda table, ids: instructions.encode(
          {**params, 'instruction/embedding': table}, ids)))
  dense = gradient_of(
      lambda table, ids: _encode_with_one_hot(params, table, ids))
  table = params['instruction/embedding']
  for words in _BATCHES:
    ids = tf.constant(np.reshape(words, [4, 3]), tf.int32)
    loss, slices = sparse(table, ids)
    expected_loss, expected = dense(table, ids)
    agents.assert_close(loss, expected_loss)
    assert bool(np.any(expected)) == (np.max(words) >= 0)
    np.testing.assert_allclose(
        tf.math.unsorted_segment_sum(slices.values, slices.indices, 1000),
        expected, rtol=1e-5, atol=1e-6)
