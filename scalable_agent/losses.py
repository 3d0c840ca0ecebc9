"""Reward clipping, the three losses of the actor-critic, and a diagnostic.

Losses are summed over time and batch, never averaged (paper, Table D.1), so
that the gradient of a batch is the sum of the gradients of its parts.
"""

import math

import tensorflow as tf
import tensorflow_probability as tfp

REWARD_CLIPPINGS = ('abs_one', 'soft_asymmetric', 'none')


def clip_rewards(rewards, mode):
  """Clips rewards for the learner.

  `soft_asymmetric` is the optimistic asymmetric clipping as released:
  5 tanh(r/5), and 0.3 times that where r < 0. Figure D.1 of the paper prints it
  as 0.3 min(tanh r, 0) + 5 max(tanh r, 0), which saturates five times earlier.

  Args:
    rewards: float32 tensor of any shape.
    mode: 'abs_one' (to [-1, 1]), 'soft_asymmetric' or 'none'.

  Returns:
    float32 tensor of the same shape.

  Raises:
    ValueError: `mode` is none of these.
  """
  if mode == 'abs_one':
    return tf.clip_by_value(rewards, -1., 1.)
  if mode == 'soft_asymmetric':
    squeezed = tf.tanh(rewards / 5.)
    return tf.where(rewards < 0., .3 * squeezed, squeezed) * 5.
  if mode == 'none':
    return tf.identity(rewards)
  raise ValueError(
      f'reward_clipping is {mode!r}, expected one of {REWARD_CLIPPINGS}.')


def compute_baseline_loss(advantages):
  """Half the squared error, so that d loss / d baseline = -advantage.

  Args:
    advantages: float32 [T, B], vs - V(x).

  Returns:
    float32 scalar.
  """
  return .5 * tf.reduce_sum(tf.square(advantages))


def compute_entropy_loss(logits, weights=1.):
  """Minus the entropy of the policy.

  Args:
    logits: float32 [T, B, NUM_ACTIONS], un-normalised. A logit of -inf is an
      action that the policy never takes; its gradient is 0.
    weights: float32, what the entropy of each state is multiplied by, of a
      shape that can be broadcast to [T, B].

  Returns:
    float32 scalar.
  """
  return -tf.reduce_sum(
      weights * tfp.distributions.Categorical(logits=logits).entropy())


def compute_policy_gradient_loss(logits, actions, advantages, epsilon=0.):
  """-log(pi(a) + epsilon) times the advantage, which is taken as a constant.

  Args:
    logits: float32 [T, B, NUM_ACTIONS], un-normalised.
    actions: int32 [T, B].
    advantages: float32 [T, B].
    epsilon: Float, by which the gradient of an action that pi hardly ever takes
      is kept small (paper, section 5.2.2).

  Returns:
    float32 scalar.

  Raises:
    ValueError: `logits` and `actions` differ in T or B.
  """
  logits, actions = tf.convert_to_tensor(logits), tf.convert_to_tensor(actions)
  # Otherwise a T or B of 1 would be broadcast.
  logits.shape[:-1].assert_is_compatible_with(actions.shape)
  log_probs = tfp.distributions.Categorical(logits=logits).log_prob(actions)
  if epsilon:
    log_probs = tfp.math.log_add_exp(log_probs, math.log(epsilon))
  return -tf.reduce_sum(log_probs * tf.stop_gradient(advantages))


def behaviour_kl(behaviour_logits, target_logits):
  """KL(mu || pi): how far the learner's policy is from the one that acted.

  Args:
    behaviour_logits: float32 [T, B, NUM_ACTIONS], un-normalised, of the policy
      mu that took the actions.
    target_logits: float32 [T, B, NUM_ACTIONS], un-normalised, of the learner's
      policy pi.

  Returns:
    float32 [T, B], in nats, through which no gradient flows. It is infinite
    where mu takes an action that pi never takes.
  """
  return tf.stop_gradient(
      tfp.distributions.Categorical(logits=behaviour_logits).kl_divergence(
          tfp.distributions.Categorical(logits=target_logits)))
