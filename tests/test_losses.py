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


def test_entropy_loss_with_weights(batch):
  """Of each state, or of each unroll."""
  logits, _, _ = batch
  pi = _softmax(logits)
  entropies = -(pi * np.log(pi)).sum(axis=-1)
  rng = np.random.default_rng(2)
  for shape in (entropies.shape, entropies.shape[1:]):
    weights = rng.random(shape).astype(np.float32)
    np.testing.assert_allclose(
        losses.compute_entropy_loss(logits, weights),
        -(weights * entropies).sum(), rtol=1e-5)


def test_entropy_loss_of_uniform_and_certain_policies():
  """-T B log(number of actions), and 0 without NaN."""
  uniform = losses.compute_entropy_loss(tf.zeros([2, 3, 4]))
  np.testing.assert_allclose(uniform, -6 * np.log(4.), rtol=1e-6)
  certain = tf.constant([[[200., 0., -200.]]])
  loss, gradient = _value_and_gradient(losses.compute_entropy_loss, certain)
  np.testing.assert_allclose(loss, 0., atol=1e-6)
  np.testing.assert_allclose(gradient, np.zeros([1, 1, 3]), atol=1e-6)


_WITH_IMPOSSIBLE = np.array(
    [[[1., -np.inf, 2., .5], [-np.inf, -np.inf, 3., -np.inf]]], np.float32)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_entropy_loss_with_impossible_actions(jit_compile):
  """An action with a logit of -inf counts as absent; its gradient is 0."""
  function = tf.function(losses.compute_entropy_loss, jit_compile=jit_compile)
  loss, gradient = _value_and_gradient(function, _WITH_IMPOSSIBLE)
  pi = _softmax(np.array([1., 2., .5]))
  entropy = -(pi * np.log(pi)).sum()
  np.testing.assert_allclose(loss, -entropy, rtol=1e-6)
  expected = np.zeros([1, 2, 4])
  expected[0, 0, [0, 2, 3]] = pi * (np.log(pi) + entropy)
  np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
  assert (gradient.numpy()[_WITH_IMPOSSIBLE == -np.inf] == 0.).all()


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


def test_policy_gradient_loss_with_impossible_actions():
  """An action with a logit of -inf is not pushed, and spoils no other."""
  loss, gradient = _value_and_gradient(
      lambda t: losses.compute_policy_gradient_loss(
          t, np.array([[3, 2]], np.int32), np.array([[2., 7.]], np.float32)),
      _WITH_IMPOSSIBLE)
  pi = _softmax(np.array([1., 2., .5]))
  np.testing.assert_allclose(loss, -2. * np.log(pi[2]), rtol=1e-6)
  expected = np.zeros([1, 2, 4])
  expected[0, 0, [0, 2, 3]] = 2. * (pi - [0., 0., 1.])
  np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('shape', [(1, 3), (4, 1), (4, 2)])
def test_policy_gradient_loss_refuses_other_times_or_batch(batch, shape):
  """Nothing is broadcast, not even one action for all."""
  logits, _, advantages = batch
  with pytest.raises(ValueError, match='are incompatible'):
    losses.compute_policy_gradient_loss(
        logits, np.zeros(shape, np.int32), advantages)


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


def test_behaviour_kl(batch):
  """sum(mu (log mu - log pi)) of each step, whatever is added to logits."""
  behaviour, _, _ = batch
  target = behaviour[::-1] + 3.
  mu, pi = _softmax(behaviour), _softmax(target)
  kl = losses.behaviour_kl(behaviour, target)
  assert kl.dtype == tf.float32
  expected = (mu * (np.log(mu) - np.log(pi))).sum(axis=-1)
  assert kl.shape == expected.shape == (4, 3)
  np.testing.assert_allclose(kl, expected, rtol=1e-5, atol=1e-6)
  # The other way round it is another number.
  assert np.abs(losses.behaviour_kl(target, behaviour) - expected).max() > .01
  np.testing.assert_allclose(
      losses.behaviour_kl(behaviour, behaviour + 3.), np.zeros([4, 3]),
      atol=1e-6)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_behaviour_kl_with_impossible_actions(jit_compile):
  """Finite where mu excludes an action, infinite where only pi does."""
  kl = tf.function(losses.behaviour_kl, jit_compile=jit_compile)
  target = np.array([[[.3, 1., -1., 0.], [.3, 1., -1., -np.inf]]], np.float32)
  mu, pi = _softmax(_WITH_IMPOSSIBLE), _softmax(target)
  expected = [[sum(mu[0, 0, a] * np.log(mu[0, 0, a] / pi[0, 0, a])
                   for a in (0, 2, 3)), -np.log(pi[0, 1, 2])]]
  np.testing.assert_allclose(
      kl(_WITH_IMPOSSIBLE, target), expected, rtol=1e-5)
  np.testing.assert_array_equal(
      kl(target, _WITH_IMPOSSIBLE), [[np.inf, np.inf]])


def test_no_gradient_flows_through_behaviour_kl(batch):
  logits = [tf.constant(batch[0]), tf.constant(batch[0][::-1])]
  with tf.GradientTape() as tape:
    tape.watch(logits)
    kl = losses.behaviour_kl(*logits)
  assert tape.gradient(kl, logits) == [None, None]
