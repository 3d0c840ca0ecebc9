r"""Policy gradients that use the values of all actions.

Gruslys et al., "The Reactor", 2018, https://arxiv.org/abs/1704.04651, section
3.1. They estimate, from an action a_t of mu and its return R_t,

    G = sum_a Q^pi(x_t, a) grad pi(a|x_t)

T is the number of time steps, B the batch size, A the number of actions. Each
function returns losses, float [T, B], whose gradient is minus the estimate. It
flows through `policy` and nothing else.
"""

import tensorflow as tf


def beta_leave_one_out_loss(policy, action_values, actions, returns,
                            behaviour_log_policy, clip):
  """Leaves out the action that was taken, whose return is known (eq. 9 to 11).

  The estimate is

      beta (R_t - Q(a_t)) grad pi(a_t) + sum_a Q(a) grad pi(a)
      beta = min(clip, 1 / mu(a_t))

  Its bias is sum_a (1 - mu(a) beta(a)) (Q(a) - Q^pi(a)) grad pi(a) (Proposition
  1), which is 0 for an infinite `clip`. A small `clip` keeps the variance low.

  Args:
    policy: float [T, B, A], the probabilities pi.
    action_values: float [T, B, A], the estimates Q.
    actions: int32 [T, B], drawn from mu.
    returns: float [T, B], R.
    behaviour_log_policy: float [T, B, A], the log-probabilities of mu.
    clip: Scalar, c of the paper; 1 is leave-one-out.

  Returns:
    float [T, B].
  """
  action_values = tf.stop_gradient(action_values)
  beta = tf.minimum(
      tf.cast(clip, policy.dtype),
      tf.exp(-tf.gather(behaviour_log_policy, actions, batch_dims=2)))
  correction = tf.stop_gradient(
      beta * (returns - tf.gather(action_values, actions, batch_dims=2)))
  return -(correction * tf.gather(policy, actions, batch_dims=2) +
           tf.reduce_sum(action_values * policy, -1))


def tislr_loss(policy, action_values, actions, returns, behaviour_log_policy,
               clip):
  """Truncated importance sampling with a correction of the bias (section 3.1).

  The estimate, with V = sum_a pi(a) Q(a), is that of ACER:

      min(clip, pi(a_t) / mu(a_t)) (R_t - V) grad log pi(a_t)
      + sum_a max(0, pi(a) / mu(a) - clip) mu(a) (Q(a) - V) grad log pi(a)

  Args:
    policy: As for `beta_leave_one_out_loss`, as are all others.
    action_values: See above.
    actions: See above.
    returns: See above.
    behaviour_log_policy: See above.
    clip: Scalar, where importance weights are truncated.

  Returns:
    float [T, B].
  """
  taken = lambda values: tf.gather(values, actions, batch_dims=2)
  log_policy = tf.math.log(policy)
  ratios = tf.exp(log_policy - behaviour_log_policy)
  clip = tf.cast(clip, policy.dtype)
  values = tf.reduce_sum(policy * action_values, -1, keepdims=True)
  weights = tf.stop_gradient(
      tf.minimum(clip, taken(ratios)) * (returns - values[..., 0]))
  # Not (ratio - clip) mu, which an infinite ratio or clip would make NaN.
  rest = tf.stop_gradient(
      tf.where(ratios > clip, policy - clip * tf.exp(behaviour_log_policy), 0.)
      * (action_values - values))
  return -(weights * taken(log_policy) + tf.reduce_sum(rest * log_policy, -1))


POLICY_GRADIENTS = dict(beta_loo=beta_leave_one_out_loss, tislr=tislr_loss)
