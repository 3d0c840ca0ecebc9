"""The agents: networks as pure functions of their weights.

Weights are a flat dict of name to float32 array. Nothing here holds state, so
the learner, its replicas, inference and a compiled function use the same code
with whichever version of the weights they have.
"""

import collections

import numpy as np
import tensorflow as tf

from scalable_agent import environments

AgentOutput = collections.namedtuple(
    'AgentOutput', 'action policy_logits baseline')
AgentOutput.__doc__ = """What the agent computes from a `StepOutput`.

  action: int32 [..., B], sampled from the policy.
  policy_logits: float32 [..., B, NUM_ACTIONS], un-normalised.
  baseline: float32 [..., B], the value estimate.
"""

LSTMState = collections.namedtuple('LSTMState', 'c h')

INSTRUCTION_EMBEDDING_SIZE = 20
INSTRUCTION_LSTM_SIZE = 64
CORE_SIZE = 256
_DEEP_SECTIONS = (16, 32, 32)
_VECTOR_SIZES = (64, 64)

TORSOS = ('deep', 'shallow', 'vector')
_FIRST_LAYERS = dict(deep='torso/section_0/conv', shallow='torso/conv_0',
                     vector='torso/linear_0')


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


class _Initializer:
  """Creates weights: truncated normal of stddev 1/sqrt(fan in), zero biases."""

  def __init__(self, seed):
    self._seed = seed
    self.params = {}

  def linear(self, name, *shape):
    fan_in = int(np.prod(shape[:-1]))
    self.normal(name + '/w', shape, fan_in)
    self.params[name + '/b'] = np.zeros(shape[-1:], np.float32)

  def normal(self, name, shape, fan_in):
    self.params[name] = tf.random.stateless_truncated_normal(
        shape, seed=[self._seed, len(self.params)],
        stddev=fan_in ** -.5).numpy()


def _linear(params, name, inputs):
  # Not `bias_add`, which is fused with the product, and slower so.
  return tf.matmul(inputs, params[name + '/w']) + params[name + '/b']


def _conv(params, name, inputs, stride, padding):
  outputs = tf.nn.conv2d(inputs, params[name + '/w'], stride, padding)
  return tf.nn.bias_add(outputs, params[name + '/b'])


def lstm_gates(params, name, inputs):
  """The part of an LSTM's gates that depends on its input alone.

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
  """One step of an LSTM with forget bias 1 (`LSTMBlockCell`'s numerics).

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


class Agent:
  """A torso, an optional LSTM core, and heads for policy and baseline.

  The core sees the torso's output, the last reward clipped to [-1, 1], the last
  action as one-hot, and the instruction's encoding if the observation has one.

  `env_outputs` are `StepOutput`s whose observation is (frame,) or
  (frame, instruction): frame uint8 (which is divided by 255) or float32,
  [..., H, W, C] or, for the vector torso, [..., D]; instruction int32
  [..., WORDS] of `hash_instructions`.
  """

  def __init__(self, num_actions, observation_spec, torso, use_lstm,
               precision='float32'):
    """Initializes the agent.

    Args:
      num_actions: Size of the action set.
      observation_spec: The pool's tuple of `ArraySpec`.
      torso: 'deep' (paper, Figure 3 right), 'shallow' (Figure 3 left, with the
        unpadded convolutions of the network it cites) or 'vector' (two linear
        layers, for observations that are no images).
      use_lstm: Whether there is an LSTM core of 256 units.
      precision: 'float32' or 'bfloat16', what a torso for images computes in.
        Weights, core, heads and their gradients are float32 either way.

    Raises:
      ValueError: The torso does not fit the observation.
    """
    frame_rank = len(observation_spec[0].shape)
    if torso not in TORSOS:
      raise ValueError(f'network is {torso!r}, expected one of {TORSOS}.')
    if (frame_rank == 1) != (torso == 'vector'):
      raise ValueError(
          f'network={torso} does not fit observations of shape '
          f'{observation_spec[0].shape}: images need deep or shallow, vectors '
          'need vector.')
    self.num_actions = num_actions
    self._frame_shape = tuple(observation_spec[0].shape)
    self._torso_name = torso
    self._use_lstm = use_lstm
    self._torso_dtype = tf.as_dtype(
        'float32' if torso == 'vector' else precision)
    self._has_instruction = len(observation_spec) > 1

  def initial_params(self, seed):
    """Returns new weights, a dict of name to float32 array, drawn by `seed`."""
    init = _Initializer(seed)
    if self._torso_name == 'vector':
      size = self._frame_shape[0]
      for i, units in enumerate(_VECTOR_SIZES):
        init.linear(f'torso/linear_{i}', size, units)
        size = units
    else:
      size = self._init_conv_torso(init)
    size += 1 + self.num_actions
    if self._has_instruction:
      init.normal('instruction/embedding',
                  [environments.NUM_HASH_BUCKETS,
                   INSTRUCTION_EMBEDDING_SIZE],
                  INSTRUCTION_EMBEDDING_SIZE)
      init.linear('instruction/lstm',
                  INSTRUCTION_EMBEDDING_SIZE + INSTRUCTION_LSTM_SIZE,
                  4 * INSTRUCTION_LSTM_SIZE)
      size += INSTRUCTION_LSTM_SIZE
    if self._use_lstm:
      init.linear('core', size + CORE_SIZE, 4 * CORE_SIZE)
      size = CORE_SIZE
    init.linear('policy_logits', size, self.num_actions)
    init.linear('baseline', size, 1)
    return init.params

  def _init_conv_torso(self, init):
    height, width, channels = self._frame_shape
    if self._torso_name == 'shallow':
      init.linear('torso/conv_0', 8, 8, channels, 16)
      init.linear('torso/conv_1', 4, 4, 16, 32)
      height, width = ((((n - 8) // 4 + 1) - 4) // 2 + 1
                       for n in (height, width))
      channels = 32
    else:
      for i, units in enumerate(_DEEP_SECTIONS):
        init.linear(f'torso/section_{i}/conv', 3, 3, channels, units)
        for j in range(2):
          for k in range(2):
            init.linear(f'torso/section_{i}/residual_{j}/conv_{k}',
                        3, 3, units, units)
        height, width, channels = -(-height // 2), -(-width // 2), units
    init.linear('torso/linear', height * width * channels, 256)
    return 256

  def initial_state(self, batch_size):
    """The core state at the start of an episode.

    Args:
      batch_size: B.

    Returns:
      An `LSTMState` of zeros, float32 [B, 256] NumPy arrays; an empty tuple
      without LSTM.
    """
    if not self._use_lstm:
      return ()
    return LSTMState(*(np.zeros([batch_size, CORE_SIZE], np.float32)
                       for _ in range(2)))

  def step(self, params, seed, last_actions, env_outputs, core_state):
    """One step of acting.

    Args:
      params: The weights.
      seed: int32 [2], a new one for each call: the same seed draws the same
        actions.
      last_actions: int32 [B], the actions that led to `env_outputs`.
      env_outputs: A `StepOutput` of [B, ...] tensors.
      core_state: The core state before this step, [B, ...].

    Returns:
      A pair of `AgentOutput` ([B, ...]) and the next core state.
    """
    out = self._features(params, last_actions, env_outputs)
    if self._use_lstm:
      core_state = _core_step(
          params, lstm_gates(params, 'core', out), env_outputs.done, core_state)
      out = core_state.h
    logits, baseline = _heads(params, out)
    action = tf.squeeze(tf.random.stateless_categorical(
        logits, 1, seed=seed, dtype=tf.int32), 1)
    # Logits that are not finite may draw one action too many. The learner
    # notices them too, and can say what is wrong.
    action = tf.minimum(action, self.num_actions - 1)
    return AgentOutput(action, logits, baseline), core_state

  def unroll(self, params, last_actions, env_outputs, core_state):
    """Runs the network over trajectories.

    Torso and heads run once over all T * B observations; only the core steps.

    Args:
      params: The weights.
      last_actions: int32 [T, B], the actions that led to `env_outputs`.
      env_outputs: A `StepOutput` of [T, B, ...] tensors. Where `done`, the core
        state is reset before that step.
      core_state: The core state before the first step, [B, ...].

    Returns:
      ((policy_logits, baseline), core state): float32 [T, B, NUM_ACTIONS],
      float32 [T, B] and the core state after the last step.
    """
    done = env_outputs.done
    sizes = [size or tf.shape(done)[i] for i, size in enumerate(done.shape)]
    merge = lambda t: tf.reshape(t, (-1,) + tuple(t.shape[2:]))
    split = lambda t: tf.reshape(t, sizes + t.shape[1:].as_list())

    out = self._features(
        params, tf.reshape(last_actions, [-1]),
        tf.nest.map_structure(merge, env_outputs._replace(info=())))
    if self._use_lstm:
      gates = split(lstm_gates(params, 'core', out))
      outputs = []
      for gates_t, done_t in zip(tf.unstack(gates), tf.unstack(done)):
        core_state = _core_step(params, gates_t, done_t, core_state)
        outputs.append(core_state.h)
      out = tf.concat(outputs, axis=0)
    logits, baseline = _heads(params, out)
    return (split(logits), split(baseline)), core_state

  def _features(self, params, last_actions, env_outputs):
    """What goes into the core: of [N, ...] tensors, float32 [N, size]."""
    observation = env_outputs.observation
    features = [
        self._torso(params, observation[0]),
        tf.expand_dims(tf.clip_by_value(env_outputs.reward, -1., 1.), 1),
        tf.one_hot(last_actions, self.num_actions)]
    if self._has_instruction:
      features.append(_encode_instructions(params, observation[1]))
    return tf.concat(features, axis=1)

  def _torso(self, params, frame):
    params = {name: value for name, value in params.items()
              if name.startswith('torso/')}
    if frame.dtype == tf.uint8:
      # That is frame / 255, without a pass over all frames for the division.
      kernel = _FIRST_LAYERS[self._torso_name] + '/w'
      params[kernel] = params[kernel] / 255.
    params, frame = tf.nest.map_structure(
        lambda t: tf.cast(t, self._torso_dtype), (params, frame))
    return tf.cast(self._torso_layers(params, frame), tf.float32)

  def _torso_layers(self, params, frame):
    if self._torso_name == 'vector':
      for i in range(len(_VECTOR_SIZES)):
        frame = tf.nn.relu(_linear(params, f'torso/linear_{i}', frame))
      return frame
    if self._torso_name == 'shallow':
      out = tf.nn.relu(_conv(params, 'torso/conv_0', frame, 4, 'VALID'))
      out = tf.nn.relu(_conv(params, 'torso/conv_1', out, 2, 'VALID'))
    else:
      out = _residual_sections(params, frame)
    out = tf.reshape(out, [-1, int(np.prod(out.shape[1:]))])
    return tf.nn.relu(_linear(params, 'torso/linear', out))


def _core_step(params, gates, done, state):
  keep = tf.cast(~done, tf.float32)[:, tf.newaxis]
  return lstm_step(
      params, 'core', gates, LSTMState(state.c * keep, state.h * keep))


def _heads(params, inputs):
  """Returns policy logits [N, NUM_ACTIONS] and baseline [N]."""
  return (_linear(params, 'policy_logits', inputs),
          tf.squeeze(_linear(params, 'baseline', inputs), -1))


def _residual_sections(params, out):
  for i in range(len(_DEEP_SECTIONS)):
    section = f'torso/section_{i}'
    out = _conv(params, f'{section}/conv', out, 1, 'SAME')
    out = tf.nn.max_pool2d(out, 3, 2, 'SAME')
    for j in range(2):
      block_input = out
      for k in range(2):
        out = _conv(params, f'{section}/residual_{j}/conv_{k}',
                    tf.nn.relu(out), 1, 'SAME')
      out += block_input
  return tf.nn.relu(out)


def _encode_instructions(params, ids):
  """LSTM over the words: int32 [N, WORDS] to float32 [N, 64], 0 if empty."""
  embedding = tf.gather(params['instruction/embedding'], tf.maximum(ids, 0))
  gates = lstm_gates(params, 'instruction/lstm', embedding)
  zeros = tf.zeros([tf.shape(ids)[0], INSTRUCTION_LSTM_SIZE])

  def step(state, inputs):
    gates_t, is_word = inputs
    after = lstm_step(params, 'instruction/lstm', gates_t, LSTMState(*state))
    return tuple(tf.where(is_word, a, s) for a, s in zip(after, state))

  _, h = tf.foldl(
      lambda state, inputs: step(state, inputs),
      (tf.transpose(gates, [1, 0, 2]),
       tf.transpose(ids >= 0)[:, :, tf.newaxis]),
      initializer=(zeros, zeros))
  return h
