"""The loss of IMPALA: an actor-critic on V-trace targets (paper, section 4.2).

Other targets may take the place of V-trace's, see `corrections`.
"""

import collections

import tensorflow as tf

from scalable_agent import losses
from scalable_agent import vtrace
from scalable_agent.algorithms import corrections

LossSettings = collections.namedtuple(
    'LossSettings', 'discounting reward_clipping baseline_cost entropy_cost '
    'clip_rho_threshold clip_pg_rho_threshold lambda_ off_policy_correction '
    'q_estimate trust_region_threshold entropy_on_replay',
    defaults=(1.0, 1.0, 1.0, 'vtrace', 'target', None, True))
LossSettings.__doc__ = """What the loss depends on besides weights and batch.

  discounting: Float, the discount factor per agent step.
  reward_clipping: One of `losses.REWARD_CLIPPINGS`.
  baseline_cost: Float, multiplier of the baseline loss.
  entropy_cost: Float, multiplier of the entropy loss.
  clip_rho_threshold: See `vtrace.from_importance_weights`, as for the next two.
  clip_pg_rho_threshold: See above.
  lambda_: See above.
  off_policy_correction: One of `corrections.CORRECTIONS`.
  q_estimate: One of `corrections.Q_ESTIMATES`.
  trust_region_threshold: See `vtrace.from_logits`.
  entropy_on_replay: Whether replayed unrolls have an entropy loss too.
"""


def make_loss_fn(agent, settings):
  """Returns the loss function of a `Learner`.

  Args:
    agent: A `networks.Agent`.
    settings: A `LossSettings`.
  """
  def loss_fn(params, unused_target_params, batch):
    return compute_loss(agent, settings, params, batch)

  return loss_fn


def compute_loss(agent, settings, params, batch):
  """The loss of a batch of unrolls.

  Args:
    agent: A `networks.Agent`.
    settings: A `LossSettings`.
    params: The agent's weights.
    batch: A `placing.PlacedBatch`.

  Returns:
    A triple of the loss, a float32 scalar that is summed over time and batch; a
    dict of what to log, as `Learner` takes it; and None, since IMPALA has no
    priorities.
  """
  env_outputs, agent_outputs = (
      batch.unrolls.env_outputs, batch.unrolls.agent_outputs)
  (policy_logits, baseline), _ = agent.unroll(
      params, agent_outputs.action, env_outputs, batch.unrolls.agent_state)

  # Entry t of the inputs led to entry t of the network's outputs. From here on
  # index t means: learner output t, the action taken there, and its outcome.
  bootstrap_value = baseline[-1]
  policy_logits, baseline = policy_logits[:-1], baseline[:-1]
  actions = agent_outputs.action[1:]
  behaviour_logits = agent_outputs.policy_logits[1:]
  rewards = losses.clip_rewards(env_outputs.reward[1:],
                                settings.reward_clipping)
  discounts = (
      tf.cast(~env_outputs.done[1:], tf.float32) * settings.discounting)

  returns = corrections.from_logits(
      settings.off_policy_correction,
      settings.q_estimate,
      behaviour_policy_logits=behaviour_logits,
      target_policy_logits=tf.stop_gradient(policy_logits),
      actions=actions,
      discounts=discounts,
      rewards=rewards,
      values=tf.stop_gradient(baseline),
      bootstrap_value=tf.stop_gradient(bootstrap_value),
      clip_rho_threshold=settings.clip_rho_threshold,
      clip_pg_rho_threshold=settings.clip_pg_rho_threshold,
      lambda_=settings.lambda_,
      trust_region_threshold=settings.trust_region_threshold)

  policy_gradient_loss = losses.compute_policy_gradient_loss(
      policy_logits, actions, returns.pg_advantages,
      epsilon=corrections.epsilon_of(settings.off_policy_correction))
  baseline_loss = settings.baseline_cost * losses.compute_baseline_loss(
      returns.vs - baseline)
  entropy_loss = settings.entropy_cost * losses.compute_entropy_loss(
      policy_logits,
      1. if settings.entropy_on_replay else
      tf.cast(~batch.is_replayed, tf.float32))
  total_loss = policy_gradient_loss + baseline_loss + entropy_loss

  num_steps = tf.cast(tf.size(actions), tf.float32)
  kl = losses.behaviour_kl(behaviour_logits, policy_logits)
  logs = dict(
      total_loss=total_loss,
      policy_gradient_loss=policy_gradient_loss,
      baseline_loss=baseline_loss,
      entropy_loss=entropy_loss,
      behaviour_kl=(tf.reduce_sum(kl), num_steps),
      rho_clipped=(_num_truncated(returns.log_rhos,
                                  settings.clip_rho_threshold), num_steps))
  if settings.trust_region_threshold is not None:
    logs.update(_relevance(
        settings, behaviour_logits, policy_logits, batch.is_replayed))
  return total_loss, logs, None


def _relevance(settings, behaviour_logits, policy_logits, is_replayed):
  """The mean relevance of replayed states, and which share is left out.

  New states have a share of their own, which should be small.
  """
  relevance = vtrace.behaviour_relevance(
      behaviour_logits, policy_logits, settings.clip_rho_threshold)
  is_rejected = ~vtrace.is_trusted(
      relevance, settings.trust_region_threshold)
  is_replayed = tf.broadcast_to(is_replayed, tf.shape(relevance))
  count = lambda mask: tf.reduce_sum(tf.cast(mask, tf.float32))
  num_replayed = count(is_replayed)
  return dict(
      relevance_mean=(
          tf.reduce_sum(tf.where(is_replayed, relevance, 0.)), num_replayed),
      replay_rejected=(count(is_replayed & is_rejected), num_replayed),
      online_rejected=(count(~is_replayed & is_rejected), count(~is_replayed)))


def _num_truncated(log_rhos, threshold):
  """How many importance weights V-trace truncates, float32 scalar."""
  if threshold is None:
    return tf.zeros([])
  return tf.reduce_sum(tf.cast(tf.exp(log_rhos) > threshold, tf.float32))
