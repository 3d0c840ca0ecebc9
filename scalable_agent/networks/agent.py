"""The agent: a torso, an LSTM core and heads, as functions of their weights.

Weights are a flat dict of name to float32 array. Nothing here holds state, so
the learner, its replicas, acting and a compiled function use the same code
with whichever version of the weights they have.
"""

import numpy as np
import tensorflow as tf
import tree

from scalable_agent import trajectories
from scalable_agent.networks import instructions
from scalable_agent.networks import layers
from scalable_agent.networks import lstm
from scalable_agent.networks import torsos

CORE_SIZE = 256


class Agent:
  """A torso, an optional LSTM core, and heads for policy and baseline.

  The core sees the torso's output, the last reward clipped to [-1, 1], the last
  action as one-hot, and the instruction's encoding if the observation has one.

  `env_outputs` are `StepOutput`s whose observation is (frame,) or
  (frame, instruction): frame uint8 (which is divided by 255) or float32,
  [..., H, W, C], [..., D] or whatever shape the torso takes; instruction int32
  [..., WORDS] of `hash_instructions`.
  """

  def __init__(self, num_actions, observation_spec, torso, use_lstm,
               precision='float32'):
    """Initializes the agent.

    Args:
      num_actions: Size of the action set.
      observation_spec: The pool's tuple of `ArraySpec`.
      torso: The value of --network: 'deep', 'shallow' or 'vector', or
        'package.module:Name' for a class of the user's, see `torsos`.
      use_lstm: Whether there is an LSTM core of 256 units.
      precision: 'float32' or 'bfloat16', what a torso for images computes in.
        Weights, core, heads and their gradients are float32 either way.

    Raises:
      ValueError: There is no such torso, or it does not fit the observation.
    """
    frame_spec = observation_spec[0]
    self.num_actions = num_actions
    self._frame_spec = frame_spec
    self._torso_name = torso
    self._torso = torsos.make(torso, tuple(frame_spec.shape))
    self._torso_dtype = tf.as_dtype(
        precision if len(frame_spec.shape) > 1 else 'float32')
    self._use_lstm = use_lstm
    self._has_instruction = len(observation_spec) > 1

  def initial_params(self, seed):
    """Makes new weights.

    Args:
      seed: An int that the weights are drawn by.

    Returns:
      A dict of name to float32 array.

    Raises:
      ValueError: The user's torso breaks the interface.
    """
    initializer = layers.Initializer(seed)
    size = self._torso.init(initializer.under('torso/'))
    if self._torso_name not in torsos.TORSOS:
      self._check_torso(initializer.params, size)
    size += 1 + self.num_actions
    if self._has_instruction:
      size += instructions.init_encoder(initializer)
    if self._use_lstm:
      lstm.init_lstm(initializer, 'core', size, CORE_SIZE)
      size = CORE_SIZE
    initializer.linear('policy_logits', size, self.num_actions)
    initializer.linear('baseline', size, 1)
    return initializer.params

  def initial_state(self, batch_size):
    """Returns the core state at the start of an episode.

    Args:
      batch_size: B.

    Returns:
      An `LSTMState` of zeros, float32 [B, 256] NumPy arrays; an empty tuple
      without LSTM.
    """
    if not self._use_lstm:
      return ()
    return lstm.LSTMState(*(np.zeros([batch_size, CORE_SIZE], np.float32)
                            for _ in range(2)))

  def step(self, params, seed, last_actions, env_outputs, core_state):
    """Makes one step of acting.

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
      gates = lstm.lstm_gates(params, 'core', out)
      core_state = _core_step(params, gates, env_outputs.done, core_state)
      out = core_state.h
    logits, baseline = _heads(params, out)
    action = tf.squeeze(tf.random.stateless_categorical(
        logits, 1, seed=seed, dtype=tf.int32), 1)
    # Logits that are not finite may draw one action too many. The learner
    # notices them too, and can say what is wrong.
    action = tf.minimum(action, self.num_actions - 1)
    return trajectories.AgentOutput(action, logits, baseline), core_state

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
        tree.map_structure(merge, env_outputs._replace(info=())))
    if self._use_lstm:
      gates = split(lstm.lstm_gates(params, 'core', out))
      outputs = []
      for gates_t, done_t in zip(tf.unstack(gates), tf.unstack(done)):
        core_state = _core_step(params, gates_t, done_t, core_state)
        outputs.append(core_state.h)
      out = tf.concat(outputs, axis=0)
    logits, baseline = _heads(params, out)
    return (split(logits), split(baseline)), core_state

  def _features(self, params, last_actions, env_outputs):
    """Returns what goes into the core: of [N, ...] tensors, [N, size]."""
    observation = env_outputs.observation
    features = [
        self._apply_torso(params, observation[0]),
        tf.expand_dims(tf.clip_by_value(env_outputs.reward, -1., 1.), 1),
        tf.one_hot(last_actions, self.num_actions)]
    if self._has_instruction:
      features.append(instructions.encode(params, observation[1]))
    return tf.concat(features, axis=1)

  def _apply_torso(self, params, frame):
    weights = {name.removeprefix('torso/'): value
               for name, value in params.items() if name.startswith('torso/')}
    kernel = getattr(self._torso, 'first_kernel', None)
    is_bytes = frame.dtype == tf.uint8
    if is_bytes and kernel:
      # That is frame / 255, without a pass over all frames for the division.
      weights[kernel] = weights[kernel] / 255.
    weights = {name: tf.cast(value, self._torso_dtype)
               for name, value in weights.items()}
    frame = tf.cast(frame, self._torso_dtype)
    if is_bytes and not kernel:
      frame /= 255.
    return tf.cast(self._torso.apply(weights, frame), tf.float32)

  def _check_torso(self, params, size):
    """Raises ValueError unless `apply` does what `init` has announced."""
    problem = f'--network={self._torso_name}: '
    kernel = getattr(self._torso, 'first_kernel', None)
    if kernel and 'torso/' + kernel not in params:
      raise ValueError(f'{problem}first_kernel is {kernel!r}, but init makes '
                       'no such weight.')
    # Traces the torso and runs nothing: an accelerator's memory stays free.
    apply = tf.function(self._apply_torso, autograph=False)
    frame = tf.TensorSpec([2, *self._frame_spec.shape], self._frame_spec.dtype)
    shape = apply.get_concrete_function(params, frame).output_shapes
    if shape.rank != 2 or shape[0] not in (2, None) or shape[1] != size:
      raise ValueError(
          f'{problem}init returns the size {size}, but apply returns the shape '
          f'{shape} for 2 frames instead of (2, {size}).')


def _core_step(params, gates, done, state):
  keep = tf.cast(~done, tf.float32)[:, tf.newaxis]
  return lstm.lstm_step(
      params, 'core', gates, lstm.LSTMState(state.c * keep, state.h * keep))


def _heads(params, inputs):
  """Returns policy logits [N, NUM_ACTIONS] and baseline [N]."""
  return (layers.linear(params, 'policy_logits', inputs),
          tf.squeeze(layers.linear(params, 'baseline', inputs), -1))
