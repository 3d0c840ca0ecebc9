"""Reactor's agent: a policy, and distributions of the returns of all actions.

Gruslys et al., "The Reactor", 2018, https://arxiv.org/abs/1704.04651, sections
3.4.1 and 6.4, Table 3. Weights and observations are as for `Agent`, but there
are no instructions, and the cores see neither reward nor last action:

    frame -> torso -+-> stop_gradient -> LSTM -> policy
                    '-> LSTM -> value of the state, advantages of the actions

The critic trains the torso, the policy trains nothing that the critic uses.
"""

import numpy as np
import tensorflow as tf

from scalable_agent import trajectories
from scalable_agent.networks import frames
from scalable_agent.networks import layers
from scalable_agent.networks import lstm
from scalable_agent.networks import steps

_CORE_SIZE = 128
_HIDDEN_SIZE = 32
_CORES = ('policy_core', 'value_core')


class ReactorAgent:
  """An agent with the methods of `Agent`, but for what `unroll` returns.

  Attributes:
    num_actions: Size of the action set, A.
    observation_spec: The pool's tuple of `ArraySpec`.
    sparse_params: Names of the weights whose gradient is sparse: none.
    support: float32 [m], the atoms of the distributions of returns.
  """

  sparse_params = ()

  def __init__(self, num_actions, observation_spec, torso, use_lstm, num_atoms,
               v_min, v_max, policy_uniform, precision='float32',
               channel_multiplier=1, subtract_background=False):
    """Initializes the agent.

    Args:
      num_actions: Size of the action set.
      observation_spec: The pool's tuple of `ArraySpec`.
      torso: As for `Agent`.
      use_lstm: Whether policy and values have an LSTM of 128 units each.
      num_atoms: m.
      v_min: The return that the first atom stands for.
      v_max: The return that the last atom stands for.
      policy_uniform: Share of the uniform policy in the agent's, in (0, 1).
      precision: As for `Agent`.
      channel_multiplier: As for `Agent`.
      subtract_background: As for `Agent`.

    Raises:
      ValueError: As for `Agent`, or the observation has an instruction.
    """
    if len(observation_spec) > 1:
      raise ValueError('--agent=reactor has no network for instructions, which '
                       'the observations of this level have.')
    self.num_actions = num_actions
    self.observation_spec = observation_spec
    self.support = np.linspace(v_min, v_max, num_atoms).astype(np.float32)
    self._frames = frames.Frames(
        observation_spec[0], torso, precision, channel_multiplier,
        subtract_background)
    self._use_lstm = use_lstm
    self._policy_uniform = policy_uniform

  def initial_params(self, seed):
    """Makes new weights, see `Agent`."""
    initializer = layers.Initializer(seed)
    size = self._frames.init(initializer)
    if self._use_lstm:
      for name in _CORES:
        lstm.init_lstm(initializer, name, size, _CORE_SIZE)
      size = _CORE_SIZE
    num_atoms = len(self.support)
    for name, output_size in (
        ('policy', self.num_actions), ('value', num_atoms),
        ('advantages', self.num_actions * num_atoms)):
      initializer.linear(f'{name}/hidden', size, _HIDDEN_SIZE)
      initializer.linear(f'{name}/output', 2 * _HIDDEN_SIZE, output_size)
    return initializer.params

  def initial_state(self, batch_size):
    """Returns the core states at the start of an episode.

    Args:
      batch_size: B.

    Returns:
      A pair of `LSTMState`s of zeros, float32 [B, 128] NumPy arrays, of policy
      and values; an empty tuple without LSTM.
    """
    if not self._use_lstm:
      return ()
    zeros = np.zeros([batch_size, _CORE_SIZE], np.float32)
    return tuple(lstm.LSTMState(zeros.copy(), zeros.copy()) for _ in _CORES)

  def step(self, params, seed, last_actions, env_outputs, core_state):
    """Makes one step of acting.

    Args:
      params: The weights.
      seed: As for `Agent`.
      last_actions: Makes no difference.
      env_outputs: A `StepOutput` of [B, ...] tensors.
      core_state: The core states before this step, [B, ...].

    Returns:
      A pair of `AgentOutput` ([B, ...]) and the next core states. The logits
      are the log-probabilities of the policy, the baseline is its value.
    """
    del last_actions
    outputs = self._core_inputs(params, env_outputs.observation[0])
    if self._use_lstm:
      core_state = tuple(
          lstm.lstm_step(params, name, lstm.lstm_gates(params, name, inputs),
                         lstm.reset(state, env_outputs.done))
          for name, inputs, state in zip(_CORES, outputs, core_state))
      outputs = [state.h for state in core_state]
    log_policy, value_logits = self._heads(params, *outputs)
    action_values = tf.tensordot(
        tf.nn.softmax(value_logits), self.support, 1)
    return trajectories.AgentOutput(
        steps.draw_actions(log_policy, seed), log_policy,
        tf.reduce_sum(tf.exp(log_policy) * action_values, -1)), core_state

  def unroll(self, params, last_actions, env_outputs, core_state):
    """Runs the network over trajectories.

    Args:
      params: The weights.
      last_actions: Makes no difference.
      env_outputs: A `StepOutput` of [T, B, ...] tensors. Where `done`, the core
        states are reset before that step.
      core_state: The core states before the first step, [B, ...].

    Returns:
      ((log_policy, value_logits), core states): float32 [T, B, A], the
      log-probabilities of the policy; float32 [T, B, A, m], whose softmax over
      the atoms is the distribution of an action's return; and the core states
      after the last step.
    """
    del last_actions
    done = env_outputs.done
    split = lambda t: steps.split_time(t, done)
    outputs = self._core_inputs(
        params, steps.join_time(env_outputs.observation[0]))
    if self._use_lstm:
      outputs, core_state = lstm.lstm_unrolls(
          params, _CORES, list(map(split, outputs)), done, core_state)
      core_state = tuple(core_state)
    heads = self._heads(params, *outputs)
    return tuple(map(split, heads)), core_state

  def _core_inputs(self, params, frame):
    """Returns what goes into the cores of policy and values, [N, size] each."""
    features = self._frames.apply(params, frame)
    return [tf.stop_gradient(features), features]

  def _heads(self, params, policy_input, value_input):
    """Returns log-probabilities [N, A] and logits of the returns [N, A, m]."""
    head = lambda name, inputs: layers.linear(
        params, f'{name}/output', tf.nn.crelu(
            layers.linear(params, f'{name}/hidden', inputs)))
    # The mixture keeps every probability, and so every logarithm, bounded.
    policy = (1. - self._policy_uniform) * tf.nn.softmax(
        head('policy', policy_input)) + self._policy_uniform / self.num_actions
    advantages = tf.reshape(
        head('advantages', value_input),
        [-1, self.num_actions, len(self.support)])
    advantages -= tf.reduce_mean(advantages, 1, keepdims=True)
    values = tf.expand_dims(head('value', value_input), 1)
    return tf.math.log(policy), values + advantages
