"""The gradients over all actions, by their expectation and their variance."""

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent.algorithms import policy_gradients

_NUM_ACTIONS = 4
_LOSSES = dict(beta_loo=policy_gradients.beta_leave_one_out_loss,
               tislr=policy_gradients.tislr_loss)


def _softmax(logits):
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


@pytest.fixture(name='bandit')
def _bandit():
  """Logits of pi, mu, estimates Q, true values; float64 [A]."""
  rng = np.random.default_rng(1)
  logits, mu_logits, q, true_q = rng.normal(size=[4, _NUM_ACTIONS])
  return logits, _softmax(2 * mu_logits), q, true_q


def _estimates(loss, logits, mu, q, returns, clip):
  """Minus the gradient by the logits for every action as the one taken.

  Args:
    returns: float64 [A], of every action.

  Returns:
    float64 [A, A], by action taken and logit.
  """
  logits = tf.constant(np.tile(logits, [_NUM_ACTIONS, 1, 1]))
  tile = lambda values: np.tile(values, [_NUM_ACTIONS, 1, 1])
  with tf.GradientTape() as tape:
    tape.watch(logits)
    # As in the agent, so that the gradient flows through the mixture.
    policy = .9 * tf.nn.softmax(logits) + .1 / _NUM_ACTIONS
    values = loss(policy, tf.constant(tile(q)),
                  tf.range(_NUM_ACTIONS)[:, tf.newaxis],
                  tf.constant(returns[:, np.newaxis]),
                  tf.constant(np.log(tile(mu))), clip)
    assert values.shape == (_NUM_ACTIONS, 1)
  return -tape.gradient(values, logits).numpy()[:, 0]


def _mixture(logits):
  """pi and its Jacobian by the logits, [A, A]."""
  softmax = _softmax(logits)
  jacobian = .9 * (np.diag(softmax) - np.outer(softmax, softmax))
  return .9 * softmax + .1 / _NUM_ACTIONS, jacobian


@pytest.mark.parametrize('clip', [0., 1., 1.5, 3., np.inf])
def test_bias_of_beta_leave_one_out(bandit, clip):
  """Proposition 1, for any Q; none of it is left where beta is 1 / mu."""
  logits, mu, q, true_q = bandit
  _, jacobian = _mixture(logits)
  estimates = _estimates(
      _LOSSES['beta_loo'], logits, mu, q, true_q, clip)
  beta = np.minimum(clip, 1 / mu)
  bias = ((1 - mu * beta) * (q - true_q)) @ jacobian
  truth = true_q @ jacobian
  np.testing.assert_allclose(mu @ estimates - truth, bias, atol=1e-12)
  assert (np.abs(bias).max() > .01) == (clip < np.inf)


def _variance(estimates, probs):
  """The trace of the covariance of estimates [N, A] with probabilities [N]."""
  mean = probs @ estimates
  return probs @ ((estimates - mean) ** 2).sum(-1)


def test_variance_rises_with_the_clip_and_stays_below_the_likelihood_ratios(
    bandit):
  """With exact values and returns that are 1 more or 1 less."""
  logits, mu, _, true_q = bandit
  policy, jacobian = _mixture(logits)
  probs = np.concatenate([mu, mu]) / 2
  returns = true_q + np.array([[-1.], [1.]])
  variances = [
      _variance(np.concatenate([
          _estimates(_LOSSES['beta_loo'], logits, mu, true_q, r, clip)
          for r in returns]), probs)
      for clip in (0., 1., 3., np.inf)]
  likelihood_ratio = (
      (returns - policy @ true_q) / mu)[..., np.newaxis] * jacobian
  variances.append(_variance(likelihood_ratio.reshape([-1, 4]), probs))
  assert variances[0] < 1e-20
  assert np.all(np.diff(variances) > .01)


@pytest.mark.parametrize('clip', [0., .5, 1., np.inf])
def test_tislr(bandit, clip):
  """Its definition, term by term; with true values it has no bias."""
  logits, mu, q, true_q = bandit
  policy, jacobian = _mixture(logits)
  for values in (q, true_q):
    v = policy @ values
    expected = np.zeros([_NUM_ACTIONS, _NUM_ACTIONS])
    for taken in range(_NUM_ACTIONS):
      expected[taken] = min(clip, policy[taken] / mu[taken]) * (
          true_q[taken] - v) * jacobian[taken] / policy[taken]
      for a in range(_NUM_ACTIONS):
        if policy[a] / mu[a] > clip:
          expected[taken] += (policy[a] / mu[a] - clip) * mu[a] * (
              values[a] - v) * jacobian[a] / policy[a]
    estimates = _estimates(_LOSSES['tislr'], logits, mu, values, true_q, clip)
    np.testing.assert_allclose(estimates, expected, atol=1e-12)
  np.testing.assert_allclose(mu @ estimates, true_q @ jacobian, atol=1e-12)


@pytest.mark.parametrize('clip', [1., np.inf])
def test_tislr_where_mu_excludes_an_action(bandit, clip):
  """Its weight is infinite, but what is left of it is pi, or 0 for no clip."""
  logits, mu, q, true_q = bandit
  policy, jacobian = _mixture(logits)
  mu = np.concatenate([[0.], mu[1:] / mu[1:].sum()])
  v = policy @ q
  rest = np.maximum(policy - mu, 0.) if clip == 1. else np.zeros_like(policy)
  expected = np.tile((rest * (q - v)) @ (jacobian / policy[:, None]), [4, 1])
  for taken in range(1, _NUM_ACTIONS):
    expected[taken] += min(clip, policy[taken] / mu[taken]) * (
        true_q[taken] - v) * jacobian[taken] / policy[taken]
  with np.errstate(divide='ignore'):
    estimates = _estimates(_LOSSES['tislr'], logits, mu, q, true_q, clip)
  np.testing.assert_allclose(estimates[1:], expected[1:], atol=1e-12)


@pytest.mark.parametrize('name', policy_gradients.POLICY_GRADIENTS)
def test_the_gradient_flows_through_the_policy_alone(name):
  rng = np.random.default_rng(2)
  inputs = dict(
      policy=tf.constant(_softmax(rng.normal(size=[3, 2, 4]))),
      action_values=tf.constant(rng.normal(size=[3, 2, 4])),
      returns=tf.constant(rng.normal(size=[3, 2])),
      behaviour_log_policy=tf.constant(
          np.log(_softmax(rng.normal(size=[3, 2, 4])))))
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    loss = tf.reduce_sum(_LOSSES[name](
        actions=tf.zeros([3, 2], tf.int32), clip=1., **inputs))
  gradients = tape.gradient(loss, inputs)
  assert [k for k, g in gradients.items() if g is not None] == ['policy']
