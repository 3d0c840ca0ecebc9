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
    self._jit_compile = jit_compile
    self._step = tf.function(agent.step, jit_compile=jit_compile)
    self._traces = {}
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
    size = len(last_actions)
    inputs = last_actions, env_outputs, core_state
    to_numpy = lambda t: t.numpy()
    if self._jit_compile:
      # XLA compiles a program for every batch size, so let there be few.
      padding = (1 << (size - 1).bit_length()) - size
      inputs = tf.nest.map_structure(
          lambda a: np.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1)), inputs)
      to_numpy = lambda t: t.numpy()[:size]
    with tf.device(self._device):
      step = self._trace(weights, inputs)
      outputs = step(weights, tf.constant(seed),
                     *tf.nest.map_structure(tf.constant, inputs))
    agent_output, core_state = tf.nest.map_structure(to_numpy, outputs)
    versions = np.full([size], version, np.int64)
    return agent_output, core_state, versions

  def _trace(self, weights, inputs):
    """The step traced for inputs of these shapes, whatever their batch size.

    Finding it takes microseconds, where `tf.function` takes a quarter of the
    time of a small policy to compare all of its arguments with those it has
    seen.
    """
    first = 0 if self._jit_compile else 1
    key = tuple(a.shape[first:] for a in tf.nest.flatten(inputs))
    step = self._traces.get(key)
    if step is None:
      batch = (None,) * first
      spec = lambda a: tf.TensorSpec(batch + a.shape[first:], a.dtype)
      # Has a lock of its own, and traces the same shapes once.
      step = self._traces[key] = self._step.get_concrete_function(
          weights, tf.TensorSpec([2], tf.int32),
          *tf.nest.map_structure(spec, inputs))
    return step
