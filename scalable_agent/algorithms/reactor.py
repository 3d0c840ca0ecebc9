"""The loss of Reactor: a distributional actor-critic that trains on replay.

Gruslys et al., "The Reactor", 2018, https://arxiv.org/abs/1704.04651. The
critic learns the distribution of the return of every action, on targets of
distributional Retrace. The actor follows the gradient over all actions.
"""

import collections

import tensorflow as tf
import tree

from scalable_agent import losses
from scalable_agent.algorithms import policy_gradients
from scalable_agent.algorithms import retrace

LossSettings = collections.namedtuple(
    'LossSettings', 'discounting reward_clipping entropy_cost lambda_ '
    'policy_gradient beta_loo_clip')
LossSettings.__doc__ = """What the loss depends on besides weights and batch.

  discounting: Float, the discount factor per agent step.
  reward_clipping: One of `losses.REWARD_CLIPPINGS`.
  entropy_cost: Float, multiplier of the entropy loss.
  lambda_: See `retrace.categorical_retrace`.
  policy_gradient: One of `policy_gradients.POLICY_GRADIENTS`.
  beta_loo_clip: `clip` of the policy gradient.
"""


def make_loss_fn(agent, settings):
  """Returns the loss function of a `Learner`.

  Args:
    agent: A `networks.ReactorAgent`.
    settings: A `LossSettings`.
  """
  def loss_fn(params, target_params, batch):
    return compute_loss(agent, settings, params, target_params, batch)

  return loss_fn


def compute_loss(agent, settings, params, target_params, batch):
  """The loss of a batch of sequences.

  Args:
    agent: A `networks.ReactorAgent`.
    settings: A `LossSettings`.
    params: The agent's weights.
    target_params: The target network's weights.
    batch: A `placing.PlacedBatch`, whose weights multiply the loss of a
      sequence.

  Returns:
    A triple of the loss, a float32 scalar that is summed over time and batch; a
    dict of what to log, as `Learner` takes it; and float32 [B], the priorities:
    the mean over time of the L1 distance of the critic from its target.
  """
  env_outputs, agent_outputs = (
      batch.unrolls.env_outputs, batch.unrolls.agent_outputs)
  core_state = batch.unrolls.agent_state
  without_last = lambda nest: tree.map_structure(lambda a: a[:-1], nest)
  # Entry t of the inputs led to entry t of the networks' outputs. The target
  # network alone sees the last entry, after which nothing was done. It begins
  # where the other does, so that both have the same context.
  (log_policy, value_logits), _ = agent.unroll(
      params, agent_outputs.action[:-1], without_last(env_outputs), core_state)
  (target_log_policy, target_logits), _ = agent.unroll(
      target_params, agent_outputs.action, env_outputs, core_state)

  actions = agent_outputs.action[1:]
  behaviour_log_policy = agent_outputs.policy_logits[1:]
  rewards = losses.clip_rewards(env_outputs.reward[1:],
                                settings.reward_clipping)
  discounts = (
      tf.cast(~env_outputs.done[1:], tf.float32) * settings.discounting)
  targets, traces, clipped = retrace.categorical_retrace(
      tf.nn.softmax(target_logits), tf.exp(target_log_policy), actions,
      tf.gather(behaviour_log_policy, actions, batch_dims=2), rewards,
      discounts, agent.support, settings.lambda_)

  taken_log_probs = tf.gather(
      tf.nn.log_softmax(value_logits), actions, batch_dims=2)
  # Entries of the targets that are negative count as they are.
  critic_loss = -tf.reduce_sum(targets * taken_log_probs, -1)
  policy_gradient_loss_fn = policy_gradients.POLICY_GRADIENTS[
      settings.policy_gradient]
  policy_gradient_loss = policy_gradient_loss_fn(
      tf.exp(log_policy),
      tf.tensordot(tf.nn.softmax(value_logits), agent.support, 1), actions,
      tf.tensordot(targets, agent.support, 1), behaviour_log_policy,
      settings.beta_loo_clip)
  entropy_loss = settings.entropy_cost * tf.reduce_sum(
      tf.exp(log_policy) * log_policy, -1)
  sums = {name: tf.reduce_sum(batch.weights * loss) for name, loss in dict(
      critic_loss=critic_loss, policy_gradient_loss=policy_gradient_loss,
      entropy_loss=entropy_loss).items()}
  total_loss = tf.add_n(list(sums.values()))

  priorities = tf.stop_gradient(tf.reduce_mean(tf.reduce_sum(
      tf.abs(targets - tf.exp(taken_log_probs)), -1), 0))
  per_step = lambda values: (
      tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32))
  return total_loss, dict(
      total_loss=total_loss,
      **sums,
      behaviour_kl=per_step(
          losses.behaviour_kl(behaviour_log_policy, log_policy)),
      retrace_c_mean=per_step(traces),
      target_clipped=per_step(clipped),
      priority_mean=per_step(priorities),
  ), priorities
