"""A language level's loss and updates, against the released code's formulas.

The released learner is written out here once more, in float64 and with the
operations of TensorFlow 1 where they are still there. It reads instructions as
strings, and shares nothing with the project but names and values of weights.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import environments
from scalable_agent import learner as learner_lib
from scalable_agent import networks
from scalable_agent import rmsprop
from scalable_agent import trajectories
from scalable_agent.algorithms import impala
from scalable_agent.environments.engines import dmlab

_NUM_ACTIONS = 9
_HEIGHT, _WIDTH = 12, 16
_T, _B = 5, 4
_SETTINGS = impala.LossSettings(
    discounting=.9, reward_clipping='abs_one', baseline_cost=.5,
    entropy_cost=.1)

# -- The released learner -----------------------------------------------------

# Of NumPy arrays [T+1, B, ...]; instructions are strings, done is bool.
_Unrolls = collections.namedtuple(
    '_Unrolls', 'reward done frame instruction action policy_logits '
    'core_state')


def _linear(weights, name, inputs):
  return tf.matmul(inputs, weights[name + '/w']) + weights[name + '/b']


def _conv(weights, name, inputs):
  return tf.nn.conv2d(inputs, weights[name + '/w'], 1, 'SAME') + (
      weights[name + '/b'])


def _lstm_block_cell(weights, name, inputs, state):
  """LSTMBlockCell: gates i, ci, f, o of inputs and h; forget bias 1."""
  c, h = state
  gates = _linear(weights, name, tf.concat([inputs, h], axis=1))
  i, ci, f, o = tf.split(gates, 4, axis=1)
  c = tf.sigmoid(f + 1.) * c + tf.sigmoid(i) * tf.tanh(ci)
  return c, tf.sigmoid(o) * tf.tanh(c)


def _dynamic_rnn(weights, name, units, inputs, length):
  """Past an instruction's length the state stays and the output is zero."""
  zeros = tf.zeros([inputs.shape[0], units], tf.float64)
  state = zeros, zeros
  outputs = []
  for t in range(inputs.shape[1]):
    is_word = (t < length)[:, tf.newaxis]
    after = _lstm_block_cell(weights, name, inputs[:, t], state)
    state = tuple(tf.where(is_word, a, s) for a, s in zip(after, state))
    outputs.append(tf.where(is_word, after[1], zeros))
  return tf.stack(outputs, axis=1)


def _instruction(weights, instruction):
  """Encodes strings [N] as [N, 64]."""
  words = tf.compat.v1.sparse_tensor_to_dense(
      tf.compat.v1.string_split(instruction), default_value='')
  length = tf.reduce_sum(tf.cast(tf.not_equal(words, ''), tf.int32), axis=1)
  buckets = tf.strings.to_hash_bucket_fast(words, 1000)
  embedding = tf.nn.embedding_lookup(weights['instruction/embedding'], buckets)
  padding = int(embedding.shape[1] == 0)
  embedding = tf.pad(embedding, [[0, 0], [0, padding], [0, 0]])
  output = _dynamic_rnn(weights, 'instruction/lstm', 64, embedding, length)
  return tf.reverse_sequence(output, length, seq_axis=1)[:, 0]


def _torso(weights, last_action, reward, frame, instruction):
  """Computes what the core sees, [N, ...], from inputs of N steps."""
  out = tf.cast(frame, tf.float64) / 255
  for i in range(3):
    section = f'torso/section_{i}'
    out = tf.nn.pool(_conv(weights, section + '/conv', out), [3, 3], 'MAX',
                     strides=[2, 2], padding='SAME')
    for j in range(2):
      block_input = out
      out = _conv(weights, f'{section}/residual_{j}/conv_0', tf.nn.relu(out))
      out = _conv(weights, f'{section}/residual_{j}/conv_1', tf.nn.relu(out))
      out += block_input
  out = tf.reshape(tf.nn.relu(out), [frame.shape[0], -1])
  return tf.concat([
      tf.nn.relu(_linear(weights, 'torso/linear', out)),
      tf.clip_by_value(reward, -1, 1)[:, tf.newaxis],
      tf.one_hot(last_action, _NUM_ACTIONS, dtype=tf.float64),
      _instruction(weights, instruction)], axis=1)


def _unroll(weights, unrolls):
  """Returns policy logits [T+1, B, NUM_ACTIONS] and baselines [T+1, B]."""
  steps, batch = unrolls.reward.shape
  merge = lambda t: tf.reshape(t, (steps * batch,) + t.shape[2:])
  torso_outputs = tf.reshape(
      _torso(weights, merge(unrolls.action),
             tf.cast(merge(unrolls.reward), tf.float64), merge(unrolls.frame),
             merge(unrolls.instruction)), [steps, batch, -1])
  initial_state = [tf.zeros([batch, 256], tf.float64)] * 2
  state = [tf.cast(part, tf.float64) for part in unrolls.core_state]
  logits, baselines = [], []
  for torso_output, done in zip(torso_outputs, unrolls.done):
    state = [tf.where(done[:, np.newaxis], initial, part)
             for initial, part in zip(initial_state, state)]
    state = _lstm_block_cell(weights, 'core', torso_output, state)
    logits.append(_linear(weights, 'policy_logits', state[1]))
    baselines.append(_linear(weights, 'baseline', state[1])[:, 0])
  return tf.stack(logits), tf.stack(baselines)


def _clip_rewards(rewards, mode):
  if mode == 'abs_one':
    return tf.clip_by_value(rewards, -1, 1)
  assert mode == 'soft_asymmetric'
  squeezed = tf.tanh(rewards / 5.)
  # Negative rewards are given less weight than positive rewards.
  return tf.where(rewards < 0, .3 * squeezed, squeezed) * 5.


def _vtrace(log_rhos, discounts, rewards, values, bootstrap_value):
  """Returns targets and advantages, [T, B]; every threshold is 1."""
  clipped_rhos = tf.minimum(1., tf.exp(log_rhos))
  cs = tf.minimum(1., tf.exp(log_rhos))
  values_t_plus_1 = tf.concat([values[1:], [bootstrap_value]], axis=0)
  deltas = clipped_rhos * (rewards + discounts * values_t_plus_1 - values)
  vs_minus_v_xs = tf.scan(
      lambda later, now: now[2] + now[0] * now[1] * later,
      (discounts, cs, deltas), tf.zeros_like(bootstrap_value), reverse=True)
  vs = vs_minus_v_xs + values
  vs_t_plus_1 = tf.concat([vs[1:], [bootstrap_value]], axis=0)
  advantages = clipped_rhos * (rewards + discounts * vs_t_plus_1 - values)
  return tf.stop_gradient(vs), tf.stop_gradient(advantages)


def _released_losses(weights, unrolls, settings):
  """The loss and its parts, a dict of name to float64 scalar."""
  logits, baseline = _unroll(weights, unrolls)
  bootstrap_value = baseline[-1]
  # The network's output t chose what is entry t + 1 of the unroll.
  logits, baseline = logits[:-1], baseline[:-1]
  actions, rewards, done = (
      unrolls.action[1:], unrolls.reward[1:], unrolls.done[1:])
  behaviour_logits = unrolls.policy_logits[1:]

  cross_entropy = lambda logits: (
      tf.nn.sparse_softmax_cross_entropy_with_logits(actions, logits))
  vs, advantages = _vtrace(
      log_rhos=-cross_entropy(logits) + cross_entropy(
          tf.cast(behaviour_logits, tf.float64)),
      discounts=tf.cast(~done, tf.float64) * settings.discounting,
      rewards=_clip_rewards(
          tf.cast(rewards, tf.float64), settings.reward_clipping),
      values=baseline, bootstrap_value=bootstrap_value)

  entropy = tf.reduce_sum(
      -tf.nn.softmax(logits) * tf.nn.log_softmax(logits), axis=-1)
  parts = dict(
      policy_gradient_loss=tf.reduce_sum(cross_entropy(logits) * advantages),
      baseline_loss=settings.baseline_cost * (
          .5 * tf.reduce_sum(tf.square(vs - baseline))),
      entropy_loss=settings.entropy_cost * -tf.reduce_sum(entropy))
  return dict(parts, total_loss=sum(parts.values()))


def _released_gradients(weights, unrolls, settings):
  """Returns the losses, and the gradient of the total one by name."""
  with tf.GradientTape() as tape:
    tape.watch(weights)
    released = _released_losses(weights, unrolls, settings)
  return released, tape.gradient(released['total_loss'], weights)


# -- What both learners are given ---------------------------------------------

# Column b is unroll b, row t is entry t. The columns: words that come again; an
# instruction that changes within the unroll; none; another one at every step.
_MIXED = np.array([
    ['pick up the red red ball then the other red ball',
     'go to the blue balloon', '', 'left'],
    ['pick up the red red ball then the other red ball',
     'go to the blue balloon', '',
     'walk past the red door and then past the blue door to the far end stop'],
    ['pick up the red red ball then the other red ball',
     '', '', '  look   left '],
    ['pick up the red red ball then the other red ball',
     'take the key', '', 'no no no no'],
    ['pick up the red red ball then the other red ball',
     'take the key', '', ''],
    ['pick up the red red ball then the other red ball',
     'take the key', '', 'Red']], object)
_NONE = np.full_like(_MIXED, '')
# True where an episode has just ended: on the way, and with the last entry.
_DONE = np.zeros([_T + 1, _B], bool)
_DONE[0, 0] = _DONE[2, 1] = _DONE[4, 0] = _DONE[5, 3] = True


def _make_unrolls(seed, instruction):
  rng = np.random.default_rng(seed)
  shape = _T + 1, _B
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  return _Unrolls(
      reward=3. * normal(*shape),
      done=_DONE,
      frame=rng.integers(
          256, size=[*shape, _HEIGHT, _WIDTH, 3], dtype=np.uint8),
      instruction=instruction,
      action=rng.integers(_NUM_ACTIONS, size=shape, dtype=np.int32),
      policy_logits=.5 * normal(*shape, _NUM_ACTIONS),
      core_state=(.3 * normal(_B, 256), .3 * normal(_B, 256)))


def _make_batch(unrolls):
  """The same as the project's `Batch`, with the environments' word ids."""
  shape = unrolls.reward.shape
  words = np.stack(
      [dmlab.hash_words(text) for text in unrolls.instruction.flat])
  return trajectories.Batch(
      unrolls=trajectories.ActorOutput(
          level_name=['level'] * _B,
          agent_state=networks.LSTMState(*unrolls.core_state),
          env_outputs=environments.StepOutput(
              reward=unrolls.reward,
              info=environments.StepOutputInfo(
                  np.zeros(shape, np.float32), np.zeros(shape, np.int32)),
              done=unrolls.done,
              observation=(unrolls.frame, words.reshape(*shape, -1))),
          agent_outputs=trajectories.AgentOutput(
              unrolls.action, unrolls.policy_logits,
              np.zeros(shape, np.float32)),
          policy_version=np.zeros([_B], np.int64)),
      is_replayed=np.zeros([_B], bool),
      weights=np.ones([_B], np.float32),
      keys=np.full([_B], -1, np.int64))


# Else words hardly matter, and their gradients are lost in rounding.
_SCALES = {'instruction/embedding': 30., 'instruction/lstm/w': 3.,
           'policy_logits/w': 3., 'baseline/w': 3.}


def _make_agent():
  """The deep agent, and weights of which each can be seen in the loss."""
  agent = networks.Agent(
      _NUM_ACTIONS, dmlab.observation_spec(_HEIGHT, _WIDTH), 'deep', True)
  rng = np.random.default_rng(0)
  weights = {}
  for name, value in agent.initial_params(seed=1).items():
    if name.endswith('/b'):
      value = rng.normal(scale=.1, size=value.shape)
    weights[name] = (value * _SCALES.get(name, 1.)).astype(np.float32)
  return agent, weights


def _in_float64(weights):
  return {name: tf.constant(value, tf.float64)
          for name, value in weights.items()}


def _word_ids(instructions):
  words = {word for text in instructions.flat for word in text.split()}
  return {int(tf.strings.to_hash_bucket_fast(word, 1000)) for word in words}


def _densify(gradient):
  """Sums rows; the project's negative indices are no rows."""
  if not isinstance(gradient, tf.IndexedSlices):
    return gradient
  return tf.math.unsorted_segment_sum(
      gradient.values, gradient.indices, gradient.dense_shape[0])


def _assert_close(actual, expected, name, tolerance):
  """Entries may be off by so much of themselves and of the largest one."""
  expected = np.asarray(expected)
  np.testing.assert_allclose(
      actual, expected, rtol=tolerance,
      atol=tolerance * np.abs(expected).max(), err_msg=name)


# -- Tests --------------------------------------------------------------------


@pytest.mark.parametrize('reward_clipping', ['abs_one', 'soft_asymmetric'])
@pytest.mark.parametrize('instruction', [_MIXED, _NONE], ids=['mixed', 'none'])
def test_loss_and_gradients_are_the_released_ones(instruction, reward_clipping):
  settings = _SETTINGS._replace(reward_clipping=reward_clipping)
  unrolls = _make_unrolls(2, instruction)
  # Else neither kind of clipping would show.
  assert unrolls.reward[1:].max() > 2. and unrolls.reward[1:].min() < -2.
  agent, weights = _make_agent()
  released, expected = _released_gradients(
      _in_float64(weights), unrolls, settings)

  params = {name: tf.constant(value) for name, value in weights.items()}
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, logs, _ = impala.compute_loss(
        agent, settings, params, _make_batch(unrolls))
  gradients = tape.gradient(loss, params)

  np.testing.assert_allclose(loss, released['total_loss'], rtol=1e-5)
  for name, value in released.items():
    np.testing.assert_allclose(logs[name], value, rtol=1e-5, err_msg=name)
  assert set(gradients) == set(expected)
  for name, gradient in expected.items():
    gradient = _densify(gradient)
    _assert_close(_densify(gradients[name]), gradient, name, 1e-4)
    if instruction is _MIXED or 'instruction/' not in name:
      assert np.abs(gradient).max() > 1e-3, name
  embedding = gradients['instruction/embedding']
  touched = embedding.indices.numpy()
  assert set(touched[touched >= 0]) == _word_ids(instruction)
  # The last entry is there for the bootstrap value, which has no gradient.
  rows = np.flatnonzero(np.any(_densify(embedding), axis=1))
  assert set(rows) == _word_ids(instruction[:-1])


def test_updates_are_the_released_ones():
  """Four updates, the second without words, on a learning rate that falls."""
  learning_rate, total_frames, frames_per_unroll = .01, 500, 4 * _T
  batches = [
      _make_unrolls(seed, instruction) for seed, instruction in enumerate(
          [_MIXED, _NONE, _MIXED[:, ::-1], _MIXED])]
  agent, weights = _make_agent()

  variables = {name: tf.Variable(value)
               for name, value in _in_float64(weights).items()}
  num_env_frames = tf.Variable(0, dtype=tf.int64)
  released = tf.compat.v1.train.RMSPropOptimizer(
      tf.compat.v1.train.polynomial_decay(
          learning_rate, num_env_frames, total_frames, 0),
      decay=.9, momentum=0., epsilon=.1)
  losses = []
  for unrolls in batches:
    parts, gradients = _released_gradients(variables, unrolls, _SETTINGS)
    losses.append(parts['total_loss'])
    released.apply_gradients(
        (gradients[name], variable) for name, variable in variables.items())
    num_env_frames.assign_add(_B * frames_per_unroll)

  learner = learner_lib.Learner(
      agent, impala.make_loss_fn(agent, _SETTINGS),
      rmsprop.RMSProp(learning_rate, decay=.9, momentum=0., epsilon=.1),
      learner_lib.create_strategy(['/cpu:0']),
      lambda frames: learner_lib.annealed_learning_rate(
          learning_rate, total_frames, frames),
      seed=1, frames_per_unroll=frames_per_unroll)
  for name, variable in learner.params.items():
    variable.assign(weights[name])
  logs = [learner.step(learner.place(_make_batch(unrolls)))[0]
          for unrolls in batches]

  assert learner.frames == int(num_env_frames) == 4 * _B * frames_per_unroll
  np.testing.assert_allclose(
      [entry['total_loss'] for entry in logs], losses, rtol=1e-4)
  for name, variable in variables.items():
    change = variable.numpy() - weights[name]
    assert np.abs(change).max() > 1e-3, name
    _assert_close(
        learner.params[name].numpy() - weights[name], change, name, 1e-3)
