"""V-trace, and the corrections for off-policy data that it is compared with.

Section 5.2.2 of the paper compares four. They are one recursion with other
weights, in the notation of `vtrace`, with rho_t = pi(a_t|x_t) / mu(a_t|x_t):

    y_t = V(x_t) + e_t,  e_T = 0
    e_t = k_t (r_t + gamma_t V(x_{t+1}) - V(x_t)) + gamma_t lambda c_t e_{t+1}
    A_t = w_t (r_t + gamma_t q_{t+1} - V(x_t))

              k_t               c_t         w_t              l_t
    vtrace    min(rho_bar, rho) min(1, rho) min(rho_pg, rho) log pi(a)
    one_step  1                 1           min(rho_pg, rho) log pi(a)
    epsilon   1                 1           1                log(pi(a) + 1e-6)
    none      1                 1           1                log pi(a)

The baseline regresses to y_t, the policy gradient is that of -A_t l_t.

Appendix E.3 compares two estimates of what comes after the next state, q_{t+1}:
y_{t+1}, which is `target`, and V(x_{t+1}), which is `baseline`.
"""

import tensorflow as tf

from scalable_agent import vtrace

CORRECTIONS = ('vtrace', 'one_step', 'epsilon', 'none')
Q_ESTIMATES = ('target', 'baseline')

_EPSILON = 1e-6
_WITH_WEIGHTED_GRADIENT = ('vtrace', 'one_step')


def epsilon_of(correction):
  """Returns what a correction, one of `CORRECTIONS`, adds to pi(a) in l_t."""
  return _EPSILON if correction == 'epsilon' else 0.


def from_logits(correction, q_estimate, behaviour_policy_logits,
                target_policy_logits, actions, discounts, rewards, values,
                bootstrap_value, clip_rho_threshold=1.0,
                clip_pg_rho_threshold=1.0, lambda_=1.0,
                trust_region_threshold=None):
  """Targets and advantages of a correction, for softmax policies.

  All arguments but the first two are those of `vtrace.from_logits`. The two
  clipping thresholds make a difference only where the table above has them.

  Args:
    correction: One of `CORRECTIONS`.
    q_estimate: One of `Q_ESTIMATES`.

  Returns:
    A `vtrace.VTraceFromLogitsReturns`: `vs` is y_t, `pg_advantages` is A_t.

  Raises:
    ValueError: There is a trust region, and it is not of V-trace with q_{t+1} =
      y_{t+1}, the only one that has it.
  """
  if trust_region_threshold is not None and (
      correction, q_estimate) != ('vtrace', 'target'):
    raise ValueError(f'{correction} with {q_estimate} has no trust region')
  returns = vtrace.from_logits(
      behaviour_policy_logits, target_policy_logits, actions, discounts,
      rewards, values, bootstrap_value, clip_rho_threshold,
      clip_pg_rho_threshold, lambda_=lambda_,
      trust_region_threshold=trust_region_threshold)
  if correction == 'vtrace' and q_estimate == 'target':
    return returns

  vs = returns.vs
  if correction != 'vtrace':
    # Thresholds below 1 would truncate even the weight of 1.
    vs = vtrace.from_importance_weights(
        tf.zeros_like(returns.log_rhos), discounts, rewards, values,
        bootstrap_value, clip_rho_threshold=None, clip_pg_rho_threshold=None,
        lambda_=lambda_).vs
  next_states = vs if q_estimate == 'target' else values
  advantages = rewards - values + discounts * tf.concat(
      [next_states[1:], bootstrap_value[tf.newaxis]], 0)
  if correction in _WITH_WEIGHTED_GRADIENT:
    rhos = tf.exp(returns.log_rhos)
    advantages *= (rhos if clip_pg_rho_threshold is None
                   else tf.minimum(clip_pg_rho_threshold, rhos))
  return returns._replace(vs=vs, pg_advantages=tf.stop_gradient(advantages))
