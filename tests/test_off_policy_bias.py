"""Where learning from another's actions ends, and what repairs it.

A bandit with two actions is played by mu, which hardly ever takes the better
one. Whatever is expected of an update is computed exactly, by the functions of
the project on all pairs of context and action, each weighed by its probability.

Propositions 2 and 3 of Schmitt et al., "Off-Policy Actor-Critic with Shared
Experience Replay", 2020, https://arxiv.org/abs/1909.11583.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import losses
from scalable_agent import vtrace

_REWARDS = 2., 5.
_MU = np.array([.9, .1], np.float32)
_OTHER_REWARD = -5.
_INFINITE = np.float32(np.inf)
_RATE = .05


def _rows(num_contexts):
  """All that may happen, as arrays [B]: context, whether it is new, action."""
  return [index.ravel() for index in np.indices((num_contexts, 2, 2))]


@functools.lru_cache
def _trainer(num_contexts, exact_value):
  """Returns a compiled function that trains, see `_train`."""
  context, is_new, action = _rows(num_contexts)
  rewards = np.where(
      context == 0, np.take(_REWARDS, action), _OTHER_REWARD)
  one_step = lambda a: tf.constant(a, tf.float32)[None]

  def row_logits(logits):
    """Of both policies in each row [1, B, 2]; the second context is on policy.
    """
    target = tf.where((context == 0)[:, None], logits, np.log(_MU))
    behaviour = tf.where((is_new == 1)[:, None], target, np.log(_MU))
    return behaviour[None], target[None]

  def loss(logits, value, share_new, threshold, rho_bar):
    behaviour, target = row_logits(logits)
    probabilities = tf.gather(tf.nn.softmax(behaviour)[0], action, batch_dims=1)
    weights = tf.stop_gradient(probabilities) / num_contexts * tf.where(
        is_new == 1, share_new, 1. - share_new)
    if exact_value:
      value = tf.stop_gradient(tf.where(
          context == 0, tf.reduce_sum(tf.nn.softmax(logits) * _REWARDS),
          _OTHER_REWARD))
    values = tf.broadcast_to(value, [1, len(action)])
    returns = vtrace.from_logits(
        tf.stop_gradient(behaviour), tf.stop_gradient(target), action[None],
        one_step(np.zeros(len(action))), one_step(rewards),
        tf.stop_gradient(values), one_step(np.zeros(len(action)))[0],
        clip_rho_threshold=rho_bar, clip_pg_rho_threshold=rho_bar,
        trust_region_threshold=threshold)
    return (
        losses.compute_policy_gradient_loss(
            target, action[None], weights * returns.pg_advantages) +
        losses.compute_baseline_loss(
            tf.sqrt(weights) * (returns.vs - values)))

  @functools.partial(tf.function, autograph=False, jit_compile=True)
  def train(logits, share_new, threshold, rho_bar, value_rate, num_updates):
    def update(i, logits, value):
      with tf.GradientTape() as tape:
        tape.watch([logits, value])
        total = loss(logits, value, share_new, threshold, rho_bar)
      for_logits, for_value = tape.gradient(
          total, [logits, value],
          unconnected_gradients=tf.UnconnectedGradients.ZERO)
      return i + 1, logits - _RATE * for_logits, value - value_rate * for_value

    _, logits, value = tf.while_loop(
        lambda i, *_: i < num_updates, update,
        (0, logits, tf.zeros([])))
    return tf.nn.softmax(logits), value

  return train


def _train(num_contexts, share_new, threshold=_INFINITE, rho_bar=1.,
           value_rate=.25, exact_value=False, start=.5, num_updates=20_000):
  """Trains a softmax policy, and a critic that has one value for all contexts.

  Args:
    num_contexts: 1, or 2 for a second context in half of all cases, in which
      the reward is low whatever is done, and the policy stays that of mu.
    share_new: Share of actions that the policy takes itself.
    threshold: Of the trust region.
    rho_bar: Truncates the importance weights of both losses.
    value_rate: Learning rate of the critic; 0 leaves it at 0, no baseline.
    exact_value: Whether the baseline is the value of the policy in each context
      in place of the critic's.
    start: The probability of the better action at the start.
    num_updates: An int.

  Returns:
    The probability of the better action.
  """
  arguments = [np.float32(x) for x in (
      np.log([1. - start, start]), share_new, threshold, rho_bar, value_rate)]
  policy, _ = _trainer(num_contexts, exact_value)(
      *arguments, np.int32(num_updates))
  return float(policy[1])


def test_proposition_2():
  """Without a baseline mu's action wins, though not as far as is printed.

  The paper ends at (1, 0), with the weights (1, 0.2) of the start. They change
  with the policy: where both actions' weighted rewards are the same, at
  (0.75, 0.25), it stays.
  """
  pi = np.array([.5, .5])
  np.testing.assert_allclose(np.minimum(_MU / pi, 1.), [1., .2], rtol=1e-6)
  np.testing.assert_allclose(_train(1, 0., value_rate=0.), .25, atol=1e-3)


@pytest.mark.parametrize('share_new, expected', [
    (1 / 8, .318), (1 / 4, .5), (.4, 1.)])
def test_proposition_3(share_new, expected):
  """Own actions help, and beyond a third of them it is right."""
  np.testing.assert_allclose(
      _train(1, share_new, value_rate=0.), expected, atol=2e-3)


@pytest.mark.parametrize('pi, expected', [
    ([.5, .5], .294), ([.75, .25], .0666)])
def test_relevance_in_the_bandit(pi, expected):
  logits = lambda p: np.log(np.array(p, np.float32))[None, None]
  np.testing.assert_allclose(
      vtrace.behaviour_relevance(logits(_MU), logits(pi)), [[expected]],
      atol=5e-4)


@pytest.mark.parametrize('threshold, expected', [(.3, .318), (.05, .99)])
def test_a_trust_region_in_the_bandit(threshold, expected):
  """It helps if it is narrow enough to leave out mu's actions on the way."""
  np.testing.assert_allclose(
      _train(1, 1 / 8, threshold, value_rate=0.), expected, atol=5e-3)


def test_a_critic_that_sees_the_context_suffices():
  assert _train(1, 0.) > .99


@pytest.mark.parametrize('num_contexts', [1, 2])
def test_the_exact_value_suffices(num_contexts):
  """With the value of the policy itself as baseline no own action is needed."""
  assert _train(num_contexts, 0., exact_value=True) > .99


@pytest.mark.parametrize('start', [.01, .1, .3, .5, .7, .9, .99])
def test_an_update_with_the_exact_value(start):
  """Biased in size, but it favours the better action wherever it starts.

  Each action's advantage is weighed by min(mu, pi). Without a baseline its
  reward takes the place of that, and beyond 0.25 this leads the wrong way.
  """
  pi = np.array([1. - start, start])
  advantages = np.minimum(_MU, pi) * (_REWARDS - pi @ _REWARDS)
  expected = _RATE * (advantages - pi * advantages.sum())
  weights = pi * np.exp(expected)
  found = _train(1, 0., exact_value=True, start=start, num_updates=1)
  np.testing.assert_allclose(
      found, weights[1] / weights.sum(), rtol=0., atol=3e-7)
  assert found > start
  without = _train(1, 0., value_rate=0., start=start, num_updates=1)
  assert (without > start) == (start < .25)


@pytest.mark.parametrize('share_new, threshold, rho_bar, expected', [
    # The more actions are its own the better, but an eighth are not enough.
    (0., _INFINITE, 1., .19), (1 / 8, _INFINITE, 1., .21),
    (1 / 4, _INFINITE, 1., .26), (1 / 2, _INFINITE, 1., .99),
    # An eighth are enough with a trust region.
    (1 / 8, .05, 1., .99),
    # Less truncation has less bias, and a variance that is not seen here.
    (0., _INFINITE, 2., .37), (0., _INFINITE, 4., .74),
    (0., _INFINITE, 10., 1.)])
def test_a_critic_that_does_not_see_the_context(
    share_new, threshold, rho_bar, expected):
  """Sharing without a trust region ends at the wrong action."""
  np.testing.assert_allclose(
      _train(2, share_new, threshold, rho_bar, num_updates=60_000), expected,
      atol=.01)
