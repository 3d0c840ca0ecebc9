"""The policy as actors call it: the newest weights, one compiled step."""

import itertools

import numpy as np
import tensorflow as tf


class Policy:
  """Runs an agent's step on a device with weights that can be exchanged.

  `update` swaps all weights at once, so that no step sees half of a version.
  Calls from several threads are allowed.
  """

  def __init__(self, agent, weights, version, seed, device, jit_compile=False):
    """Initializes the policy.

    Args:
      agent: A `networks.Agent`.
      weights: A dict of name to tensor.
      version: The learner step the weights are from.
      seed: Seed of the actions' sampling.
      device: Name of the device to run on.
      jit_compile: Whether XLA compiles the step.
    """
    self._device = device
    self._seed = seed
    self._calls = itertools.count()
    self._step = tf.function(
        agent.step, jit_compile=jit_compile, reduce_retracing=True)
    self.update(weights, version)

  def update(self, weights, version):
    """Replaces the weights.

    Args:
      weights: A dict of name to tensor.
      version: The learner step they are from.
    """
    with tf.device(self._device):
      weights = {k: tf.identity(v) for k, v in weights.items()}
    self._current = weights, version

  @property
  def version(self):
    """The learner step that the weights are from."""
    return self._current[1]

  def __call__(self, last_actions, env_outputs, core_state):
    """Acts in B environments.

    Args:
      last_actions: int32 [B], the actions that led to `env_outputs`.
      env_outputs: A `StepOutput` of arrays [B, ...], with an empty `info`.
      core_state: The core state before this step, [B, ...].

    Returns:
      A triple of `AgentOutput`, next core state and the version of the weights,
      int64 [B], in NumPy arrays.
    """
    weights, version = self._current
    seed = np.array([self._seed, next(self._calls)], np.int32)
    with tf.device(self._device):
      outputs = self._step(
          weights, seed, last_actions, env_outputs, core_state)
    agent_output, core_state = tf.nest.map_structure(
        lambda t: t.numpy(), outputs)
    versions = np.full([len(last_actions)], version, np.int64)
    return agent_output, core_state, versions
