"""The agent: a torso, an LSTM core and heads, as functions of their weights.

Weights are a flat dict of name to float32 array. Nothing here holds state, so
the learner, its replicas, acting and a compiled function use the same code
with whichever version of the weights they have.
"""

import numpy as np
import tensorflow as tf
import tree

from scalable_agent import trajectories
from scalable_agent.networks import frames
from scalable_agent.networks import instructions
from scalable_agent.networks import layers
from scalable_agent.networks import lstm
from scalable_agent.networks import steps

_CORE_SIZE = 256


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
               precision='float32', channel_multiplier=1,
               subtract_background=False):
    """Initializes the agent.

    Args:
      num_actions: Size of the action set.
      observation_spec: The pool's tuple of `ArraySpec`.
      torso: The value of --network: a key of `TORSOS`, or
        'package.module:Name' for a class of the user's, see `torsos`.
      use_lstm: Whether there is an LSTM core of 256 units.
      precision: 'float32' or 'bfloat16', what a torso for images computes in.
        Weights, core, heads and their gradients are float32 either way.
      channel_multiplier: What the channels of the torso's convolutions are
        multiplied by, an int.
      subtract_background: Whether each frame is an image of which the torso
        sees how its pixels differ from the background.

    Raises:
      ValueError: There is no such torso, or it or `subtract_background` does
        not fit the observation.
    """
    self.num_actions = num_actions
    self.observation_spec = observation_spec
    self._frames = frames.Frames(
        observation_spec[0], torso, precision, channel_multiplier,
        subtract_background)
    self._use_lstm = use_lstm
    self._has_instruction = len(observation_spec) > 1

  @property
  def sparse_params(self):
    """Names of the weights whose gradient is sparse, a tuple."""
    return (instructions.EMBEDDING,) if self._has_instruction else ()

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
    size = self._frames.init(initializer) + 1 + self.num_actions
    if self._has_instruction:
      size += instructions.init_encoder(initializer)
    if self._use_lstm:
      lstm.init_lstm(initializer, 'core', size, _CORE_SIZE)
      size = _CORE_SIZE
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
    return lstm.LSTMState(*(np.zeros([batch_size, _CORE_SIZE], np.float32)
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
      core_state = lstm.lstm_step(
          params, 'core', gates, lstm.reset(core_state, env_outputs.done))
      out = core_state.h
    logits, baseline = _heads(params, out)
    action = steps.draw_actions(logits, seed)
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
    split = lambda t: steps.split_time(t, done)
    out = self._features(
        params, tf.reshape(last_actions, [-1]),
        tree.map_structure(steps.join_time, env_outputs._replace(info=())))
    if self._use_lstm:
      out, core_state = lstm.lstm_unroll(
          params, 'core', split(out), done, core_state)
    logits, baseline = _heads(params, out)
    return (split(logits), split(baseline)), core_state

  def _features(self, params, last_actions, env_outputs):
    """Returns what goes into the core: of [N, ...] tensors, [N, size]."""
    observation = env_outputs.observation
    features = [
        self._frames.apply(params, observation[0]),
        tf.expand_dims(tf.clip_by_value(env_outputs.reward, -1., 1.), 1),
        tf.one_hot(last_actions, self.num_actions)]
    if self._has_instruction:
      features.append(instructions.encode(params, observation[1]))
    return tf.concat(features, axis=1)


def _heads(params, inputs):
  """Returns policy logits [N, NUM_ACTIONS] and baseline [N]."""
  return (layers.linear(params, 'policy_logits', inputs),
          tf.squeeze(layers.linear(params, 'baseline', inputs), -1))
