"""Runs the agent's step for actors, with the newest weights."""

import collections
import copy
import itertools
import threading

import numpy as np
import tensorflow as tf
import tree

from scalable_agent import trajectories
from scalable_agent.process import host_tensors

# Seeds and numbers of calls are of 32 bits.
_NUM_SEEDS = 2**31

_Program = collections.namedtuple('_Program', 'function output_dtypes')


class Policy:
  """Runs an agent's step on a device with weights that can be exchanged.

  `update` swaps all weights at once, so that no step sees half of a version.
  Calls from several threads are allowed.

  Attributes:
    device: Name of the device that it runs on, None where TensorFlow chooses.
    jit_compile: Whether XLA compiles the step.
  """

  def __init__(self, agent, weights, version, seed, device, jit_compile=False):
    """Initializes the policy.

    Args:
      agent: An agent of `networks`.
      weights: A dict of name to tensor.
      version: The update that the weights are from.
      seed: Seed of the actions' sampling.
      device: Name of the device to run on, None to leave it to TensorFlow.
      jit_compile: Whether XLA compiles the step.
    """
    self._step = agent.step
    self.device = device
    self._seed = seed % _NUM_SEEDS
    self._calls = itertools.count()
    self.jit_compile = jit_compile
    self._programs = {}
    self._lock = threading.Lock()
    self.update(weights, version)

  def update(self, weights, version):
    """Replaces the weights.

    Args:
      weights: A dict of name to tensor.
      version: The update that they are from.
    """
    with tf.device(self.device):
      weights = dict(zip(weights, tf.identity_n(list(weights.values()))))
    self._current = weights, tree.flatten(weights), version

  def fork(self):
    """Returns another policy, whose `update` leaves this one's weights alone.

    Both share what was traced, and draw different actions.
    """
    return copy.copy(self)

  @property
  def weights(self):
    """A dict of name to tensor on the policy's device."""
    return self._current[0]

  @property
  def version(self):
    """The update that the weights are from."""
    return self._current[-1]

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
    weights, flat_weights, version = self._current
    size = len(last_actions)
    inputs = last_actions, env_outputs, core_state
    flat_inputs = tree.flatten(inputs)
    if self.jit_compile:
      # XLA compiles a program for every batch size, so let there be few.
      padding = (1 << (size - 1).bit_length()) - size
      flat_inputs = [np.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1))
                     for a in flat_inputs]
    program = self._program(weights, inputs, flat_inputs)
    seed = np.array([self._seed, next(self._calls) % _NUM_SEEDS], np.int32)
    flat_inputs = [seed, *flat_inputs]
    if self.device != '/cpu:0':
      flat_inputs = host_tensors.of(flat_inputs)
    with tf.device(self.device):
      # A call of the function itself checks every argument in Python, which
      # takes as long as a small network.
      outputs = tf.raw_ops.StatefulPartitionedCall(
          args=[*flat_weights, *flat_inputs], Tout=program.output_dtypes,
          f=program.function)
    outputs = [output.numpy()[:size] for output in outputs]
    num_fields = len(trajectories.AgentOutput._fields)
    agent_output = trajectories.AgentOutput(*outputs[:num_fields])
    if core_state:
      core_state = tree.unflatten_as(core_state, outputs[num_fields:])
    versions = np.full([size], version, np.int64)
    return agent_output, core_state, versions

  def _program(self, weights, inputs, flat_inputs):
    """The step for inputs of these shapes, whatever their batch size.

    Args:
      weights: A dict of name to tensor.
      inputs: The nest whose leaves `flat_inputs` are, but for padding.
      flat_inputs: A list of arrays.

    Returns:
      A `_Program`.
    """
    first = 0 if self.jit_compile else 1
    key = tuple([a.shape[first:] for a in flat_inputs])
    with self._lock:
      if key not in self._programs:
        self._programs[key] = self._trace((
            tree.map_structure(tf.TensorSpec.from_tensor, weights),
            tf.TensorSpec([2], tf.int32),
            *tree.unflatten_as(inputs, [
                tf.TensorSpec((None,) * first + a.shape[first:], a.dtype)
                for a in flat_inputs])))
      return self._programs[key]

  def _trace(self, specs):
    """Returns the step as a function of the leaves of its arguments."""
    def step(*tensors):
      return self._step(*tree.unflatten_as(specs, tensors))

    function = tf.function(step, autograph=False)
    if self.jit_compile:
      # The operation in `__call__` runs a function as it is, also one that XLA
      # is to compile. XLA compiles the one that is called inside.
      compiled = tf.function(step, autograph=False, jit_compile=True)
      function = tf.function(
          lambda *tensors: compiled(*tensors), autograph=False)
    function = function.get_concrete_function(*tree.flatten(specs))
    assert not function.captured_inputs, (
        'A step is a function of its arguments.')
    return _Program(function, [t.dtype for t in function.outputs])
