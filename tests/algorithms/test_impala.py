"""The loss, against a transcription with its own indices."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent.algorithms import impala
from tests import learners

_NUM_ACTIONS, _T, _B = learners.NUM_ACTIONS, learners.T, learners.B
_LOSS = learners.LOSS
_agent, _batch = learners.make_agent, learners.make_batch

# What is logged as a sum.
_LOSSES = ('total_loss', 'policy_gradient_loss', 'baseline_loss',
           'entropy_loss')


class _ScriptedAgent:
  """Its outputs are its weights; it remembers what it was given."""

  def unroll(self, params, last_actions, env_outputs, core_state):
    self.given = last_actions, env_outputs, core_state
    return (params['logits'], params['baseline']), core_state


def _slow_loss(settings, logits, baseline, unrolls):
  """The loss with every index written out, and its gradient by hand.

  The k-th step of an unroll, from 0, is taken on seeing entry k; its action,
  reward and end are in entry k + 1.
  """
  actor, env = unrolls.agent_outputs, unrolls.env_outputs
  softmax = lambda x: np.exp(x) / np.exp(x).sum()
  parts = collections.Counter()
  logits_gradient = np.zeros(logits.shape)
  baseline_gradient = np.zeros(baseline.shape)
  for b in range(_B):
    pi = [softmax(logits[k, b]) for k in range(_T)]
    mu = [softmax(actor.policy_logits[k + 1, b]) for k in range(_T)]
    action = [actor.action[k + 1, b] for k in range(_T)]
    reward = [np.clip(env.reward[k + 1, b], -1, 1) for k in range(_T)]
    discount = [0. if env.done[k + 1, b] else settings.discounting
                for k in range(_T)]
    rho = [pi[k][action[k]] / mu[k][action[k]] for k in range(_T)]
    vs = [0.] * _T + [baseline[_T, b]]
    for k in reversed(range(_T)):
      delta = min(settings.clip_rho_threshold, rho[k]) * (
          reward[k] + discount[k] * baseline[k + 1, b] - baseline[k, b])
      vs[k] = baseline[k, b] + delta + (
          discount[k] * settings.lambda_ * min(1., rho[k]) *
          (vs[k + 1] - baseline[k + 1, b]))
    for k in range(_T):
      advantage = min(settings.clip_pg_rho_threshold, rho[k]) * (
          reward[k] + discount[k] * vs[k + 1] - baseline[k, b])
      entropy = -(pi[k] * np.log(pi[k])).sum()
      parts['policy_gradient_loss'] -= np.log(pi[k][action[k]]) * advantage
      parts['baseline_loss'] += (
          settings.baseline_cost * .5 * (vs[k] - baseline[k, b]) ** 2)
      parts['entropy_loss'] -= settings.entropy_cost * entropy
      logits_gradient[k, b] = (
          advantage * (pi[k] - np.eye(_NUM_ACTIONS)[action[k]]) +
          settings.entropy_cost * pi[k] * (np.log(pi[k]) + entropy))
      baseline_gradient[k, b] = (
          -settings.baseline_cost * (vs[k] - baseline[k, b]))
  parts['total_loss'] = sum(parts.values())
  return parts, logits_gradient, baseline_gradient


def test_compute_loss():
  """Values and gradients equal a slow transcription with its own indices."""
  rng = np.random.default_rng(0)
  batch = _batch(0)
  assert batch.unrolls.env_outputs.done[1:].any()
  settings = _LOSS._replace(
      entropy_cost=.3, clip_rho_threshold=1.2, clip_pg_rho_threshold=.9,
      lambda_=.8)
  params = dict(
      logits=tf.constant(rng.normal(size=[_T + 1, _B, 3]), tf.float32),
      baseline=tf.constant(rng.normal(size=[_T + 1, _B]), tf.float32))
  agent = _ScriptedAgent()
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, logs, priorities = impala.compute_loss(
        agent, settings, params, batch)
  gradients = tape.gradient(loss, params)

  parts, logits_gradient, baseline_gradient = _slow_loss(
      settings, *(value.numpy() for value in params.values()), batch.unrolls)
  np.testing.assert_allclose(loss, parts['total_loss'], rtol=1e-5)
  assert priorities is None
  assert set(parts) == set(_LOSSES)
  assert set(logs) == set(parts) | {'behaviour_kl', 'rho_clipped'}
  for name, value in parts.items():
    np.testing.assert_allclose(logs[name], value, rtol=1e-5, err_msg=name)
  np.testing.assert_allclose(
      gradients['logits'], logits_gradient, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
      gradients['baseline'], baseline_gradient, rtol=1e-4, atol=1e-5)
  # The network itself sees all T+1 entries as they are.
  unrolls = batch.unrolls
  tree.map_structure(
      np.testing.assert_array_equal, agent.given,
      (unrolls.agent_outputs.action, unrolls.env_outputs,
       unrolls.agent_state))


def test_loss_of_the_real_agent():
  """The real network's outputs enter the same loss."""
  batch = _batch(1, use_lstm=True)
  agent = _agent(use_lstm=True)
  params = agent.initial_params(0)
  _, logs, _ = impala.compute_loss(agent, _LOSS, params, batch)
  unrolls = batch.unrolls
  (logits, baseline), _ = agent.unroll(
      params, unrolls.agent_outputs.action, unrolls.env_outputs,
      unrolls.agent_state)
  parts, _, _ = _slow_loss(_LOSS, logits.numpy(), baseline.numpy(), unrolls)
  for name in _LOSSES:
    np.testing.assert_allclose(logs[name], parts[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize('mode, expected', [
    ('abs_one', 1.), ('soft_asymmetric', 5 * np.tanh(2.)), ('none', 10.)])
def test_reward_clipping_is_the_settings(mode, expected):
  """With V = 0, no discount and pi = mu, the target is the clipped reward."""
  batch = _batch(0)
  batch.unrolls.env_outputs.reward[:] = 10.
  params = dict(logits=batch.unrolls.agent_outputs.policy_logits,
                baseline=np.zeros([_T + 1, _B], np.float32))
  params['logits'] = np.roll(params['logits'], -1, axis=0)
  _, logs, _ = impala.compute_loss(
      _ScriptedAgent(), _LOSS._replace(reward_clipping=mode, discounting=0.),
      params, batch)
  np.testing.assert_allclose(
      logs['baseline_loss'], .5 * .5 * _T * _B * expected ** 2, rtol=1e-5)


@pytest.mark.parametrize('threshold', [None, .5, 1., 2.])
def test_diagnostics(threshold):
  """KL(mu || pi) by its definition, and the share of truncated weights."""
  rng = np.random.default_rng(3)
  batch = _batch(3)
  params = dict(
      logits=tf.constant(rng.normal(size=[_T + 1, _B, 3]), tf.float32),
      baseline=tf.zeros([_T + 1, _B]))
  _, logs, _ = impala.compute_loss(
      _ScriptedAgent(), _LOSS._replace(clip_rho_threshold=threshold), params,
      batch)

  def softmax(logits):
    weights = np.exp(logits.astype(np.float64))
    return weights / weights.sum(-1, keepdims=True)

  agent_outputs = batch.unrolls.agent_outputs
  pi = softmax(params['logits'].numpy()[:-1])
  mu = softmax(agent_outputs.policy_logits[1:])
  kl = (mu * np.log(mu / pi)).sum(-1)
  actions = agent_outputs.action[1:, :, None]
  rhos = np.take_along_axis(pi / mu, actions, -1)
  total, count = logs['behaviour_kl']
  assert count == _T * _B
  np.testing.assert_allclose(total, kl.sum(), rtol=1e-5)
  truncated, count = logs['rho_clipped']
  assert count == _T * _B
  assert truncated == (0 if threshold is None else (rhos > threshold).sum())
  assert threshold is None or 0 < truncated < count


def test_on_policy_no_weight_is_truncated():
  """All are 1, which is the threshold, to the bit."""
  batch = _batch(3)
  logits = np.roll(batch.unrolls.agent_outputs.policy_logits, -1, axis=0)
  _, logs, _ = impala.compute_loss(
      _ScriptedAgent(), _LOSS,
      dict(logits=tf.constant(logits), baseline=tf.zeros([_T + 1, _B])), batch)
  assert logs['rho_clipped'] == (0., _T * _B)
