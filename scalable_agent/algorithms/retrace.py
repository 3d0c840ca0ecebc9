r"""Distributional Retrace: off-policy targets for distributions of returns.

Gruslys et al., "The Reactor: A fast and sample-efficient actor-critic agent for
reinforcement learning", 2018, https://arxiv.org/abs/1704.04651, section 3.2.

T is the number of time steps, B the batch size, A the number of actions. A
distribution is m probabilities on the atoms z_1 to z_m of one support, which
are equally far apart. Index t of `actions`, `rewards` and `discounts` is what
followed the state x_t; T is the state after the last of them.

With c_s = lambda min(1, pi(a_s|x_s) / mu(a_s|x_s)), the signed distribution

    w_s = sum_a pi(a|x_s) q(x_s, a) - c_s q(x_s, a_s)     c_T = 0

of mass 1 - c_s takes part in the target of each earlier t < s, with the trace
C, from the atoms of the return that it stands for:

    C = c_{t+1} ... c_{s-1}
    G = r_t + g_t r_{t+1} + ... + g_t ... g_{s-2} r_{s-1}
    target_t = sum over s of C w_s, moved to the atoms G + g_t ... g_{s-1} z

The paper prints q(x_s, a_s) under a sum over a, where q(x_s, a) has to stand
for the distribution of pi's returns to be the fixed point.
"""

import collections

import numpy as np
import tensorflow as tf

CategoricalRetraceReturns = collections.namedtuple(
    'CategoricalRetraceReturns', 'targets traces clipped')
CategoricalRetraceReturns.__doc__ = """Targets of the critic.

  targets: float [T, B, m], for the distribution of (x_t, a_t). Each sums to 1;
    single entries may be negative, unlike their expectation over mu's actions.
  traces: float [T, B], c_t.
  clipped: float [T, B], how much of the absolute mass that makes up a target
    lies beyond the ends of the support, and was moved to them.
"""


def categorical_retrace(target_probs, target_policy, actions,
                        behaviour_log_probs, rewards, discounts, support,
                        lambda_=1.):
  """Distributional Retrace (Reactor, section 3.2).

  All floats have the same dtype. T and m have to be known when TensorFlow
  traces the function.

  Args:
    target_probs: float [T+1, B, A, m], q of the target network.
    target_policy: float [T+1, B, A], the probabilities pi.
    actions: int32 [T, B], drawn from mu.
    behaviour_log_probs: float [T, B], log mu(a_t|x_t).
    rewards: float [T, B].
    discounts: float [T, B], 0 where the episode ended.
    support: float [m], the atoms z, equally far apart, in increasing order.
    lambda_: Scalar in [0, 1].

  Returns:
    `CategoricalRetraceReturns`, through which no gradient flows.
  """
  target_probs, target_policy, behaviour_log_probs, rewards, discounts = map(
      tf.convert_to_tensor, (target_probs, target_policy, behaviour_log_probs,
                             rewards, discounts))
  support = tf.cast(support, target_probs.dtype)
  num_steps, num_atoms = actions.shape[0], target_probs.shape[-1]
  batch_size = tf.shape(actions)[1]

  taken_probs = tf.gather(target_probs[:-1], actions, batch_dims=2)
  taken_policy = tf.gather(target_policy[:-1], actions, batch_dims=2)
  traces = lambda_ * tf.minimum(
      tf.ones([], target_probs.dtype),
      taken_policy / tf.exp(behaviour_log_probs))
  mean_probs = tf.einsum('tba,tbam->tbm', target_policy[1:], target_probs[1:])
  masses = mean_probs - tf.pad(
      (traces[..., tf.newaxis] * taken_probs)[1:], [[0, 1], [0, 0], [0, 0]])

  # Entry [t, k] is about the pair of t and s = t + k + 1; those beyond T are
  # left out below.
  ahead = np.arange(num_steps)[:, np.newaxis] + np.arange(num_steps)
  of = lambda values, index: tf.gather(
      values, np.minimum(index, num_steps - 1))
  discounts_ahead = of(discounts, ahead)
  trace_products = tf.math.cumprod(of(traces, ahead + 1), 1, exclusive=True)
  discount_products = tf.math.cumprod(discounts_ahead, 1)
  returns = tf.cumsum(
      of(rewards, ahead) * tf.math.cumprod(discounts_ahead, 1, exclusive=True),
      1)

  # Every pair is projected once, from its own atoms: a recursion would blur the
  # distribution at each of its steps.
  pairs = np.flatnonzero(ahead < num_steps)
  select = lambda values: tf.gather(
      tf.reshape(values, [num_steps**2, -1, 1]), pairs)
  atoms = select(returns) + select(discount_products) * support
  masses = select(trace_products) * tf.gather(masses, ahead.flat[pairs])
  rows = (pairs // num_steps)[:, np.newaxis] * batch_size + tf.range(batch_size)
  num_rows = num_steps * batch_size
  targets = project(atoms, masses, rows, num_rows, support)
  is_outside = (atoms < support[0]) | (atoms > support[-1])
  clipped = tf.math.unsorted_segment_sum(
      tf.reduce_sum(tf.abs(masses) * tf.cast(is_outside, masses.dtype), -1),
      rows, num_rows)
  return CategoricalRetraceReturns(*map(tf.stop_gradient, (
      tf.reshape(targets, [num_steps, batch_size, num_atoms]), traces,
      tf.reshape(clipped, [num_steps, batch_size]))))


def project(atoms, masses, rows, num_rows, support):
  """Moves mass to the support, and sums it by row.

  Mass between two atoms of the support is split between them so that its mean
  stays; mass beyond an end goes to that end.

  Args:
    atoms: float [..., m], where the mass is.
    masses: float [..., m], of any sign.
    rows: int32 [...], the row of the result that it counts in.
    num_rows: How many rows there are.
    support: float [m], as in `categorical_retrace`.

  Returns:
    float [num_rows, m]. Where an atom is NaN, so is the row's first.
  """
  last = support.shape[0] - 1
  first, end = support[0], support[-1]
  positions = (tf.clip_by_value(atoms, first, end) - first) * (
      last / (end - first))
  # The last atom is the upper neighbour of the one before it.
  lower = tf.clip_by_value(tf.floor(positions), 0., last - 1)
  upper_share = positions - lower
  # As an index, NaN would be one that is left out of the sum without a word.
  lower = tf.where(tf.math.is_nan(lower), tf.zeros_like(lower), lower)
  lower = rows[..., tf.newaxis] * (last + 1) + tf.cast(lower, tf.int32)
  return tf.reshape(tf.math.unsorted_segment_sum(
      tf.stack([masses * (1. - upper_share), masses * upper_share]),
      tf.stack([lower, lower + 1]), num_rows * (last + 1)), [num_rows, -1])
