"""Agents on small frames, their inputs, and how to compare results."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import StepOutput

NUM_ACTIONS = 4
FRAMES = {'deep': ArraySpec((13, 18, 3), np.uint8),
          'shallow': ArraySpec((24, 21, 2), np.uint8),
          'small': ArraySpec((10, 9, 4), np.uint8),
          'reactor': ArraySpec((36, 41, 1), np.uint8),
          'vector': ArraySpec((5,), np.float32)}
WORDS = ArraySpec((3,), np.int32)


class Plain:
  """A torso of a user's, which has no weights."""

  def __init__(self, frame_shape):
    self._size, = frame_shape

  def init(self, unused_initializer):
    return self._size

  def apply(self, unused_params, frame):
    return frame


def make(torso, use_lstm, instruction=False, num_actions=NUM_ACTIONS, **kwargs):
  """Returns an agent with a torso of the project's."""
  spec = (FRAMES[torso],) + ((WORDS,) if instruction else ())
  return networks.Agent(num_actions, spec, torso, use_lstm, **kwargs)


def params(agent, seed=0):
  """Returns initial weights, with biases that are not zero."""
  rng = np.random.default_rng(seed)
  return {name: w if w.any() else rng.normal(size=w.shape).astype(np.float32)
          for name, w in agent.initial_params(seed).items()}


def inputs(frame, time, batch, seed=0, instruction=False):
  """Returns random last actions and environment outputs, [T, B].

  Args:
    frame: The frames' `ArraySpec`, or the name of a torso for its own.
    time: T.
    batch: B.
    seed: An int.
    instruction: Whether there are up to 3 words.
  """
  rng = np.random.default_rng(seed)
  frame = FRAMES.get(frame, frame)
  if frame.dtype == np.uint8:
    observation = rng.integers(256, size=(time, batch) + frame.shape)
  else:
    observation = rng.normal(size=(time, batch) + frame.shape)
  observation = (tf.constant(observation.astype(frame.dtype)),)
  if instruction:
    words = rng.integers(1000, size=[time, batch, 3])
    num_words = rng.integers(4, size=[time, batch, 1])
    observation += (tf.constant(
        np.where(np.arange(3) < num_words, words, -1).astype(np.int32)),)
  return (tf.constant(rng.integers(NUM_ACTIONS, size=[time, batch]), tf.int32),
          StepOutput(
              reward=tf.constant(rng.normal(size=[time, batch]), tf.float32),
              info=(), done=tf.constant(rng.random([time, batch]) < .3),
              observation=observation))


def random_state(batch, seed=0):
  """Returns a core state that is not zero."""
  rng = np.random.default_rng(seed)
  return networks.LSTMState(*(
      rng.normal(size=[batch, 256]).astype(np.float32) for _ in range(2)))


def assert_close(actual, expected, tolerance=1e-5):
  """Compares two nests of arrays."""
  tree.map_structure(
      lambda a, b: np.testing.assert_allclose(
          a, b, rtol=tolerance, atol=tolerance), actual, expected)


def assert_unroll_equals_steps(agent, weights, frame, instruction=False):
  """Compares logits, baselines and core state; episodes end on the way."""
  actions, env_outputs = inputs(frame, 5, 2, instruction=instruction)
  env_outputs = env_outputs._replace(done=tf.constant(
      [[True, False], [False, False], [False, True], [True, True],
       [False, False]]))
  state = initial_state = random_state(2) if agent.initial_state(2) else ()

  outputs = []
  for t in range(5):
    output, state = agent.step(
        weights, [0, t], actions[t],
        tree.map_structure(lambda a: a[t], env_outputs), state)
    assert output.action.shape == output.baseline.shape == (2,)
    assert output.policy_logits.shape == (2, NUM_ACTIONS)
    outputs.append((output.policy_logits, output.baseline))
  expected = tuple(tf.stack(ts) for ts in zip(*outputs))

  unrolled, last_state = agent.unroll(
      weights, actions, env_outputs, initial_state)
  assert_close(unrolled, expected)
  assert_close(last_state, state)


def without_background(images):
  """Subtracts from each image the lower median of at most 8 x 8 pixels."""
  out = []
  for image in images:
    height, width, _ = image.shape
    grid = image[::math.ceil(height / 8), ::math.ceil(width / 8)]
    assert max(grid.shape[:2]) <= 8
    out.append(image - np.sort(grid, axis=None)[(grid.size - 1) // 2])
  return np.stack(out)


def assert_bytes_are_scaled(torso, shape):
  """Bytes are divided by 255; floats are taken as they are."""
  rng = np.random.default_rng(0)
  frame = rng.integers(256, size=(1, 3) + shape)
  logits = []
  for values in (frame.astype(np.uint8), (frame / 255).astype(np.float32)):
    agent = networks.Agent(
        NUM_ACTIONS, (ArraySpec(shape, values.dtype),), torso, False)
    env_output = StepOutput(
        reward=tf.zeros([1, 3]), info=(), done=tf.zeros([1, 3], tf.bool),
        observation=(tf.constant(values),))
    (result, _), _ = agent.unroll(
        agent.initial_params(0), tf.zeros([1, 3], tf.int32), env_output, ())
    logits.append(result)
  assert_close(*logits)
  assert np.abs(logits[0][0, 0] - logits[0][0, 1]).max() > 1e-3


def assert_near_in_bfloat16(make_agent, frame, is_faster=True):
  """Outputs and gradients are float32, and within bfloat16's rounding.

  Args:
    make_agent: Takes `precision`, returns an agent with LSTM.
    frame: As in `inputs`.
    is_faster: Whether the torso computes in bfloat16 at all.
  """
  agent, fast = make_agent('float32'), make_agent('bfloat16')
  weights = tree.map_structure(tf.constant, params(agent))
  actions, env_output = inputs(frame, 4, 3)
  results = []
  for one in (agent, fast):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      (logits, baseline), state = one.unroll(
          weights, actions, env_output, one.initial_state(3))
      loss = tf.reduce_sum(tf.nn.log_softmax(logits)[..., 0] + baseline)
    results.append(((logits, baseline, state), tape.gradient(loss, weights)))
    assert {t.dtype for t in tree.flatten(results[-1])} == {tf.float32}
  (outputs, gradients), (fast_outputs, fast_gradients) = results
  if not is_faster:
    assert_close(fast_outputs, outputs)
    return
  assert_close(fast_outputs, outputs, 3e-2)
  assert not np.allclose(fast_outputs[0], outputs[0], rtol=1e-5, atol=1e-5)
  for name, gradient in gradients.items():
    error = np.linalg.norm(fast_gradients[name] - gradient)
    assert error < .1 * np.linalg.norm(gradient), name


def assert_truncated_normal(name, values, stddev):
  """Checks mean, spread and bounds of a weight that was drawn."""
  # What is left of the variance of a normal that is cut at two sigma.
  shrunk = .8796
  assert np.abs(values).max() <= 2 * stddev * (1 + 1e-6), name
  assert abs(values.mean()) < 5 * stddev / values.size ** .5, name
  assert values.std() == pytest.approx(
      shrunk * stddev, rel=4 / (2 * values.size) ** .5), name
  if values.size > 1000:
    assert np.abs(values).max() > 1.9 * stddev, name


def assert_uniform(name, values, limit):
  """Checks mean, spread and bounds of a weight that was drawn."""
  assert .99 * limit < np.abs(values).max() <= limit * (1 + 1e-6), name
  assert abs(values.mean()) < 5 * limit / (3 * values.size) ** .5, name
  # The share of values in each tenth of the range.
  shares = np.histogram(values, 10, (-limit, limit))[0] / values.size
  np.testing.assert_allclose(
      shares, .1, atol=5 * (.09 / values.size) ** .5, err_msg=name)
