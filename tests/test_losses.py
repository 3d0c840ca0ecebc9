import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import losses

_REWARDS = np.array(
    [[-1e4, -20., -5., -1.5], [-1., -.3, -0., .3], [1., 1.5, 5., 1e4]],
    np.float32)


def _clip_as_released(rewards):
  return [[5 * np.tanh(r / 5) if r >= 0 else .3 * 5 * np.tanh(r / 5)
           for r in row] for row in rewards]


@pytest.mark.parametrize('mode, expected', [
    ('abs_one', [[min(max(r, -1.), 1.) for r in row] for row in _REWARDS]),
    ('soft_asymmetric', _clip_as_released(_REWARDS)),
    ('none', _REWARDS)])
def test_clip_rewards(mode, expected):
  clipped = losses.clip_rewards(tf.constant(_REWARDS), mode)
  np.testing.assert_allclose(clipped, expected, rtol=1e-6)


def test_soft_asymmetric_is_as_released_not_as_printed():
  """1 is almost 1, and not the 3.8 of the paper's Figure D.1."""
  assert losses.clip_rewards(
      tf.constant(1.), 'soft_asymmetric').numpy() == pytest.approx(.98688, 1e-4)


def test_every_mode_is_listed_and_another_is_refused():
  for mode in losses.REWARD_CLIPPINGS:
    assert losses.clip_rewards(tf.constant(_REWARDS), mode).shape == (3, 4)
  with pytest.raises(ValueError, match="'abs_two'.*abs_one.*none"):
    losses.clip_rewards(tf.constant(_REWARDS), 'abs_two')


def _softmax(logits):
  exp = np.exp(logits.astype(np.float64))
  return exp / exp.sum(axis=-1, keepdims=True)


@pytest.fixture
def batch():
  """Logits, actions and advantages of T=4, B=3 and 5 actions."""
  rng = np.random.default_rng(0)
  return (rng.normal(size=[4, 3, 5]).astype(np.float32),
          rng.integers(5, size=[4, 3]).astype(np.int32),
          rng.normal(size=[4, 3]).astype(np.float32))


def _value_and_gradient(function, argument):
  argument = tf.constant(argument)
  with tf.GradientTape() as tape:
    tape.watch(argument)
    value = function(argument)
  assert value.shape == ()
  return value, tape.gradient(value, argument)


def test_baseline_loss(batch):
  """Half the sum of squares; the gradient with respect to V is -(vs - V)."""
  _, _, vs = batch
  baseline = np.random.default_rng(1).normal(size=vs.shape).astype(np.float32)
  loss, gradient = _value_and_gradient(
      lambda v: losses.compute_baseline_loss(vs - v), baseline)
  expected = sum(.5 * (a - b) ** 2
                 for a, b in zip(vs.ravel(), baseline.ravel()))
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  np.testing.assert_allclose(gradient, baseline - vs, rtol=1e-6)


def test_entropy_loss(batch):
  """Minus the entropies' sum; the gradient is pi (log pi + H)."""
  logits, _, _ = batch
  loss, gradient = _value_and_gradient(losses.compute_entropy_loss, logits)
  pi = _softmax(logits)
  entropy = -(pi * np.log(pi)).sum(axis=-1, keepdims=True)
  np.testing.assert_allclose(loss, -entropy.sum(), rtol=1e-6)
  np.testing.assert_allclose(
      gradient, pi * (np.log(pi) + entropy), rtol=1e-5, atol=1e-6)


def test_entropy_loss_of_uniform_and_certain_policies():
  """-T B log(number of actions), and 0 without NaN."""
  uniform = losses.compute_entropy_loss(tf.zeros([2, 3, 4]))
  np.testing.assert_allclose(uniform, -6 * np.log(4.), rtol=1e-6)
  certain = tf.constant([[[200., 0., -200.]]])
  loss, gradient = _value_and_gradient(losses.compute_entropy_loss, certain)
  np.testing.assert_allclose(loss, 0., atol=1e-6)
  np.testing.assert_allclose(gradient, np.zeros([1, 1, 3]), atol=1e-6)


def test_policy_gradient_loss(batch):
  """-sum(log pi(a) adv); the gradient is adv (pi - onehot(a))."""
  logits, actions, advantages = batch
  loss, gradient = _value_and_gradient(
      lambda t: losses.compute_policy_gradient_loss(t, actions, advantages),
      logits)
  pi = _softmax(logits)
  expected = -sum(np.log(pi[t, b, actions[t, b]]) * advantages[t, b]
                  for t, b in np.ndindex(actions.shape))
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  np.testing.assert_allclose(
      gradient, advantages[..., np.newaxis] * (pi - np.eye(5)[actions]),
      rtol=1e-5, atol=1e-6)


def test_policy_gradient_does_not_train_advantages(batch):
  logits, actions, advantages = batch
  _, gradient = _value_and_gradient(
      lambda t: losses.compute_policy_gradient_loss(logits, actions, t),
      advantages)
  assert gradient is None


@pytest.mark.parametrize('axis', [0, 1])
def test_losses_are_sums(batch, axis):
  """Twice the time or twice the batch is twice the loss."""
  twice = [np.concatenate([array, array], axis) for array in batch]
  for function in (
      lambda logits, actions, adv: losses.compute_baseline_loss(adv),
      lambda logits, actions, adv: losses.compute_entropy_loss(logits),
      losses.compute_policy_gradient_loss):
    np.testing.assert_allclose(
        function(*twice), 2 * function(*batch).numpy(), rtol=1e-5)
