r"""V-trace off-policy actor-critic targets.

Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
Actor-Learner Architectures", 2018, https://arxiv.org/abs/1802.01561, section 4.

T is the number of time steps, B the batch size. Index t of `actions`,
`discounts` and `rewards` is what followed the state whose value is `values[t]`.
"""

import collections
import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

VTraceFromLogitsReturns = collections.namedtuple(
    'VTraceFromLogitsReturns',
    ['vs', 'pg_advantages', 'log_rhos',
     'behaviour_action_log_probs', 'target_action_log_probs'])

VTraceReturns = collections.namedtuple('VTraceReturns', 'vs pg_advantages')


def log_probs_from_logits_and_actions(policy_logits, actions):
  """Log-probabilities of the actions taken under a softmax policy.

  Args:
    policy_logits: float32 [T, B, NUM_ACTIONS], un-normalised.
    actions: int32 [T, B].

  Returns:
    float32 [T, B].

  Raises:
    ValueError: An argument has another rank, or their T or B differ.
  """
  policy_logits = tf.convert_to_tensor(policy_logits, dtype=tf.float32)
  actions = tf.convert_to_tensor(actions, dtype=tf.int32)
  policy_logits.shape.assert_has_rank(3)
  actions.shape.assert_has_rank(2)
  # Otherwise a T or B of 1 would be broadcast.
  policy_logits.shape[:-1].assert_is_compatible_with(actions.shape)
  return tfp.distributions.Categorical(logits=policy_logits).log_prob(actions)


def behaviour_relevance(behaviour_policy_logits, target_policy_logits,
                        clip_rho_threshold=1.0):
  r"""How far the policy that V-trace evaluates is from the target policy.

  Its truncation makes V-trace estimate the value of the implied policy, not
  that of the target policy pi. This is the behaviour relevance of Schmitt et
  al., "Off-Policy Actor-Critic with Shared Experience Replay", 2020,
  https://arxiv.org/abs/1909.11583, section 4.3:

      KL(pi || implied),  implied(a) = min(rho_bar mu(a), pi(a)) / Z

  Args:
    behaviour_policy_logits: float32 [T, B, NUM_ACTIONS], un-normalised, of mu.
    target_policy_logits: float32 [T, B, NUM_ACTIONS], un-normalised, of pi.
    clip_rho_threshold: Scalar above 0, rho_bar as in `from_importance_weights`.
      With None or infinity the implied policy is pi.

  Returns:
    float32 [T, B], in nats, through which no gradient flows: 0 where mu and pi
    are the same, infinite where mu never takes an action that pi takes and
    rho_bar is finite.
  """
  log_pi = tf.math.log_softmax(target_policy_logits)
  if clip_rho_threshold is None:
    return tf.zeros_like(log_pi[..., 0])
  rho_bar = tf.cast(clip_rho_threshold, tf.float32)
  truncated = tf.minimum(
      tf.math.log_softmax(behaviour_policy_logits) + tf.math.log(rho_bar),
      log_pi)
  # Infinity times a probability of 0 would be NaN.
  log_implied = tf.where(tf.math.is_inf(rho_bar), log_pi, truncated)
  divergence = tfp.distributions.Categorical(logits=log_pi).kl_divergence(
      tfp.distributions.Categorical(logits=log_implied))
  # Of an implied policy that is 0 everywhere, Z is 0 too.
  return tf.stop_gradient(tf.where(
      tf.reduce_all(tf.math.is_inf(log_implied), axis=-1), math.inf,
      divergence))


def is_trusted(relevance, threshold):
  """Whether a trust region keeps states (LASER, equation 7), bool [T, B].

  Args:
    relevance: float32 [T, B], of `behaviour_relevance`.
    threshold: Scalar, b. Infinity keeps all, also where the relevance is
      infinite.
  """
  return (relevance < threshold) | tf.math.is_inf(
      tf.cast(threshold, tf.float32))


def from_logits(behaviour_policy_logits, target_policy_logits, actions,
                discounts, rewards, values, bootstrap_value,
                clip_rho_threshold=1.0, clip_pg_rho_threshold=1.0,
                name='vtrace_from_logits', *, lambda_=1.0,
                trust_region_threshold=None):
  """V-trace for softmax policies.

  The behaviour policy (mu in the paper) took the actions, the target policy
  (pi) is being learned.

  Args:
    behaviour_policy_logits: float32 [T, B, NUM_ACTIONS], un-normalised.
    target_policy_logits: float32 [T, B, NUM_ACTIONS], un-normalised.
    actions: int32 [T, B], drawn from the behaviour policy.
    discounts: float32 [T, B], 0 where the episode ended.
    rewards: float32 [T, B].
    values: float32 [T, B], estimates V(x_t) under the target policy.
    bootstrap_value: float32 [B], the estimate V(x_T).
    clip_rho_threshold: As in `from_importance_weights`.
    clip_pg_rho_threshold: As in `from_importance_weights`.
    name: Name scope of the operations.
    lambda_: As in `from_importance_weights`.
    trust_region_threshold: Scalar, b of LASER (see `behaviour_relevance`,
      equation 7). A state whose relevance is b or more is left out: its target
      is its value, its advantage is 0, and traces end there. The paper's text
      prints that those above b are kept, against its own definition. None
      leaves none out.

  Returns:
    A `VTraceFromLogitsReturns` of float32 [T, B] tensors: `vs` and
    `pg_advantages` as in `from_importance_weights`; `log_rhos`, the log
    importance weights of all states; `behaviour_action_log_probs` and
    `target_action_log_probs`, log mu(a_t) and log pi(a_t).

  Raises:
    ValueError: An argument has another rank.
  """
  behaviour_policy_logits = tf.convert_to_tensor(
      behaviour_policy_logits, dtype=tf.float32)
  target_policy_logits = tf.convert_to_tensor(
      target_policy_logits, dtype=tf.float32)

  with tf.name_scope(name):
    target_action_log_probs = log_probs_from_logits_and_actions(
        target_policy_logits, actions)
    behaviour_action_log_probs = log_probs_from_logits_and_actions(
        behaviour_policy_logits, actions)
    log_rhos = target_action_log_probs - behaviour_action_log_probs
    trusted_log_rhos = log_rhos
    if trust_region_threshold is not None:
      relevance = behaviour_relevance(
          behaviour_policy_logits, target_policy_logits, clip_rho_threshold)
      trusted_log_rhos = tf.where(
          is_trusted(relevance, trust_region_threshold), log_rhos, -np.inf)
    returns = from_importance_weights(
        trusted_log_rhos, discounts, rewards, values, bootstrap_value,
        clip_rho_threshold, clip_pg_rho_threshold, lambda_=lambda_)
    return VTraceFromLogitsReturns(
        vs=returns.vs,
        pg_advantages=returns.pg_advantages,
        log_rhos=log_rhos,
        behaviour_action_log_probs=behaviour_action_log_probs,
        target_action_log_probs=target_action_log_probs)


def from_importance_weights(log_rhos, discounts, rewards, values,
                            bootstrap_value,
                            clip_rho_threshold=1.0, clip_pg_rho_threshold=1.0,
                            name='vtrace_from_importance_weights', *,
                            lambda_=1.0):
  r"""V-trace from log importance weights.

  Equation 1 of the paper, computed backwards by Remark 1:

      v_s = V(x_s) + delta_s + gamma_s c_s (v_{s+1} - V(x_{s+1}))
      delta_s = min(rho_bar, rho_s) (r_s + gamma_s V(x_{s+1}) - V(x_s))
      c_s = lambda min(1, rho_s)

  All tensors may have the same number of further dimensions, e.g. `rewards`
  [T, B, C], `values` [T, B, C] and `bootstrap_value` [B, C]. Every dimension,
  T too, may be unknown when TensorFlow traces the function.

  Args:
    log_rhos: float32 [T, B], log(pi(a_t | x_t) / mu(a_t | x_t)).
    discounts: float32 [T, B], 0 where the episode ended.
    rewards: float32 [T, B].
    values: float32 [T, B], estimates V(x_t) under the target policy.
    bootstrap_value: float32 [B], the estimate V(x_T).
    clip_rho_threshold: Scalar, rho_bar of the paper: the level at which the
      weights of the temporal differences are truncated. None does not truncate.
    clip_pg_rho_threshold: Scalar, the level at which the weights rho_s of the
      policy gradient rho_s (r_s + gamma v_{s+1} - V(x_s)) are truncated (paper,
      section 4.2). None does not truncate.
    name: Name scope of the operations.
    lambda_: Scalar in [0, 1], the additional discount of Remark 2.

  Returns:
    A `VTraceReturns` of float32 [T, B] tensors through which no gradient flows:
    `vs`, the regression targets of the baseline, and `pg_advantages`, the
    advantages of the policy gradient.

  Raises:
    ValueError: An argument has another rank, T or B.
  """
  log_rhos = tf.convert_to_tensor(log_rhos, dtype=tf.float32)
  discounts = tf.convert_to_tensor(discounts, dtype=tf.float32)
  rewards = tf.convert_to_tensor(rewards, dtype=tf.float32)
  values = tf.convert_to_tensor(values, dtype=tf.float32)
  bootstrap_value = tf.convert_to_tensor(bootstrap_value, dtype=tf.float32)

  # Otherwise a T or B of 1 would be broadcast, as further dimensions may be.
  shape = log_rhos.shape
  for steps in discounts, rewards, values:
    shape.assert_same_rank(steps.shape)
    shape[:2].assert_is_compatible_with(steps.shape[:2])
  shape[1:].assert_same_rank(bootstrap_value.shape)
  shape[1:2].assert_is_compatible_with(bootstrap_value.shape[:1])
  for threshold in (clip_rho_threshold, clip_pg_rho_threshold):
    if threshold is not None:
      tf.convert_to_tensor(threshold, tf.float32).shape.assert_has_rank(0)

  def truncate(rhos, threshold):
    return rhos if threshold is None else tf.minimum(threshold, rhos)

  with tf.name_scope(name):
    rhos = tf.exp(log_rhos)
    cs = lambda_ * tf.minimum(1.0, rhos)
    values_t_plus_1 = tf.concat([values[1:], bootstrap_value[tf.newaxis]], 0)
    deltas = truncate(rhos, clip_rho_threshold) * (
        rewards + discounts * values_t_plus_1 - values)

    vs = values + _reverse_linear_recursion(discounts * cs, deltas)

    vs_t_plus_1 = tf.concat([vs[1:], bootstrap_value[tf.newaxis]], 0)
    pg_advantages = truncate(rhos, clip_pg_rho_threshold) * (
        rewards + discounts * vs_t_plus_1 - values)

    return VTraceReturns(vs=tf.stop_gradient(vs),
                         pg_advantages=tf.stop_gradient(pg_advantages))


def _reverse_linear_recursion(decays, deltas):
  """x_t = deltas_t + decays_t x_{t+1} with x_T = 0, for [T, ...] tensors.

  Each step is a linear function of x_{t+1}, a slope and an offset. The
  composition of linear functions is linear and associative, so an associative
  scan, which needs log T steps in sequence, composes those of all later times.
  Where T is unknown when a function is traced, its graph would have a branch for
  every number of these steps, and XLA would not compile it. A plain scan is used
  then.
  """
  if deltas.shape[0] is None:
    return tf.scan(lambda x, step: step[1] + step[0] * x, (decays, deltas),
                   tf.zeros_like(deltas[0]), reverse=True)

  def compose(later, earlier):
    later_slope, later_offset = later
    slope, offset = earlier
    return slope * later_slope, offset + slope * later_offset

  _, xs = tfp.math.scan_associative(
      compose, (tf.reverse(decays, [0]), tf.reverse(deltas, [0])))
  return tf.reverse(xs, [0])
