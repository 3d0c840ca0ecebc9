"""The loss of Reactor, against a transcription with its own indices."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent.algorithms import policy_gradients
from scalable_agent.algorithms import reactor
from scalable_agent.algorithms import retrace
from tests import learners

_NUM_ACTIONS, _T, _B = learners.NUM_ACTIONS, learners.T, learners.B
_NUM_ATOMS = 5
_SUPPORT = np.linspace(-2., 2., _NUM_ATOMS).astype(np.float32)
_SETTINGS = learners.REACTOR_LOSS
_LOSSES = ('critic_loss', 'policy_gradient_loss', 'entropy_loss')


def _softmax(logits):
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


class _ScriptedAgent:
  """Its outputs are its weights; it remembers what it was given."""

  support = _SUPPORT

  def __init__(self):
    self.given = []

  def unroll(self, params, last_actions, env_outputs, core_state):
    self.given.append((last_actions, env_outputs, core_state))
    return (tf.nn.log_softmax(params['policy']), params['values']), core_state


def _params(rng, length):
  return dict(
      policy=tf.constant(
          rng.normal(size=[length, _B, _NUM_ACTIONS]), tf.float32),
      values=tf.constant(rng.normal(
          size=[length, _B, _NUM_ACTIONS, _NUM_ATOMS]), tf.float32))


def _slow_losses(settings, params, target_params, unrolls):
  """Every loss of every sequence, a dict of float [B], and priorities [B].

  The k-th step of a sequence, from 0, is taken on seeing entry k; its action,
  reward and end are in entry k + 1.
  """
  actor, env = unrolls.agent_outputs, unrolls.env_outputs
  policy, q = (_softmax(params[name].numpy()) for name in ('policy', 'values'))
  target_policy, target_q = (
      _softmax(target_params[name].numpy()) for name in ('policy', 'values'))
  parts = collections.defaultdict(lambda: np.zeros([_B]))
  for b in range(_B):
    action = [actor.action[k + 1, b] for k in range(_T)]
    log_mu = np.stack([actor.policy_logits[k + 1, b] for k in range(_T)])
    returns = retrace.categorical_retrace(
        target_q[:, b:b + 1], target_policy[:, b:b + 1],
        np.array(action, np.int32)[:, None],
        np.array([[log_mu[k][action[k]]] for k in range(_T)]),
        np.array([[np.clip(env.reward[k + 1, b], -1, 1)] for k in range(_T)],
                 np.float32),
        np.array([[0. if env.done[k + 1, b] else settings.discounting]
                  for k in range(_T)], np.float32),
        _SUPPORT, settings.lambda_)
    targets = returns.targets.numpy()[:, 0]
    parts['retrace_c_mean'][b] = returns.traces.numpy().sum()
    parts['target_clipped'][b] = returns.clipped.numpy().sum()
    for k in range(_T):
      mine = q[k, b, action[k]]
      parts['critic_loss'][b] -= targets[k] @ np.log(mine)
      values = q[k, b] @ _SUPPORT
      beta = min(settings.beta_loo_clip, 1 / np.exp(log_mu[k][action[k]]))
      parts['policy_gradient_loss'][b] -= (
          beta * (targets[k] @ _SUPPORT - values[action[k]]) *
          policy[k, b, action[k]] + values @ policy[k, b])
      parts['entropy_loss'][b] += settings.entropy_cost * (
          policy[k, b] @ np.log(policy[k, b]))
      parts['priorities'][b] += np.abs(targets[k] - mine).sum() / _T
      parts['behaviour_kl'][b] += np.exp(log_mu[k]) @ (
          log_mu[k] - np.log(policy[k, b]))
  return parts


@pytest.fixture(name='networks')
def _networks():
  rng = np.random.default_rng(0)
  return _params(rng, _T), _params(rng, _T + 1)


def test_compute_loss(networks):
  """Values equal a slow transcription; weights multiply whole sequences."""
  params, target_params = networks
  weights = np.linspace(.2, 3., _B)
  batch = learners.make_reactor_batch(
      0, weights, (np.arange(_B, dtype=np.float32),))
  assert batch.unrolls.env_outputs.done[1:].any()
  agent = _ScriptedAgent()
  loss, logs, priorities = reactor.compute_loss(
      agent, _SETTINGS, params, target_params, batch)
  parts = _slow_losses(_SETTINGS, params, target_params, batch.unrolls)
  for name in _LOSSES:
    np.testing.assert_allclose(
        logs[name], weights @ parts[name], rtol=1e-4, err_msg=name)
  np.testing.assert_allclose(
      loss, sum(weights @ parts[name] for name in _LOSSES), rtol=1e-4)
  assert logs['total_loss'] is loss
  np.testing.assert_allclose(priorities, parts['priorities'], rtol=1e-4)
  total, count = logs['priority_mean']
  np.testing.assert_allclose(total / count, parts['priorities'].mean(), 1e-4)
  assert set(logs) == {'total_loss', *_LOSSES, 'behaviour_kl',
                       'retrace_c_mean', 'target_clipped', 'priority_mean'}
  for name in ('behaviour_kl', 'retrace_c_mean', 'target_clipped'):
    assert logs[name][0] > 0. and logs[name][1] == _T * _B, name
    np.testing.assert_allclose(
        logs[name][0], parts[name].sum(), rtol=1e-4, err_msg=name)
  # The network sees the entries as they are; the target network all of them.
  unrolls = batch.unrolls
  inputs = unrolls.agent_outputs.action, unrolls.env_outputs._replace(info=())
  online, target = ((given[0], given[1]._replace(info=()), given[2])
                    for given in agent.given)
  tree.map_structure(np.testing.assert_array_equal, target,
                     (*inputs, unrolls.agent_state))
  tree.map_structure(
      np.testing.assert_array_equal, online,
      (*tree.map_structure(lambda a: a[:-1], inputs), unrolls.agent_state))


def test_gradients(networks):
  """Critic and actor each get their own loss's gradient, the targets none."""
  params, target_params = networks
  weights = np.linspace(.2, 3., _B)
  batch = learners.make_reactor_batch(0, weights)
  with tf.GradientTape() as tape:
    tape.watch((params, target_params))
    loss, _, _ = reactor.compute_loss(
        _ScriptedAgent(), _SETTINGS, params, target_params, batch)
  gradients, target_gradients = tape.gradient(loss, (params, target_params))
  assert set(target_gradients.values()) == {None}

  unrolls = batch.unrolls
  actions = unrolls.agent_outputs.action[1:]
  targets = retrace.categorical_retrace(
      tf.nn.softmax(target_params['values']),
      tf.nn.softmax(target_params['policy']), actions,
      tf.gather(unrolls.agent_outputs.policy_logits[1:], actions, batch_dims=2),
      np.clip(unrolls.env_outputs.reward[1:], -1, 1),
      np.where(unrolls.env_outputs.done[1:], 0., .9).astype(np.float32),
      _SUPPORT, .8).targets
  # By the logits of the action taken: q - target, times the weight.
  q = tf.nn.softmax(params['values']).numpy()
  is_taken = np.eye(_NUM_ACTIONS)[actions][..., None]
  expected = (is_taken * (q - targets.numpy()[:, :, None]) *
              weights[:, None, None])
  np.testing.assert_allclose(gradients['values'], expected, atol=1e-5)
  assert targets.numpy().min() < -.01

  with tf.GradientTape() as tape:
    tape.watch(params)
    log_policy = tf.nn.log_softmax(params['policy'])
    policy = tf.exp(log_policy)
    own = tf.reduce_sum(weights.astype(np.float32) * (
        policy_gradients.beta_leave_one_out_loss(
            policy, q @ _SUPPORT, actions,
            tf.tensordot(targets, _SUPPORT, 1),
            unrolls.agent_outputs.policy_logits[1:], 1.5) +
        .3 * tf.reduce_sum(policy * log_policy, -1)))
  np.testing.assert_allclose(
      gradients['policy'], tape.gradient(own, params)['policy'], atol=1e-5)


def test_a_weight_of_two_is_the_sequence_twice(networks):
  params, target_params = networks
  loss = lambda weights: reactor.compute_loss(
      _ScriptedAgent(), _SETTINGS, params, target_params,
      learners.make_reactor_batch(0, weights))[0]
  one, two = np.ones([_B]), np.ones([_B])
  two[0] = 2.
  alone = np.zeros([_B])
  alone[0] = 1.
  np.testing.assert_allclose(loss(two), loss(one) + loss(alone), rtol=1e-5)


@pytest.mark.parametrize('changes', [
    dict(policy_gradient='tislr'), dict(lambda_=0.), dict(beta_loo_clip=np.inf),
    dict(reward_clipping='none'), dict(discounting=.5), dict(entropy_cost=0.)])
def test_every_setting_makes_a_difference(networks, changes):
  batch = learners.make_reactor_batch(0, np.ones([_B]))
  losses = [
      reactor.compute_loss(_ScriptedAgent(), settings, *networks, batch)[0]
      for settings in (_SETTINGS, _SETTINGS._replace(**changes))]
  assert abs(losses[0] - losses[1]) > 1e-3


def _train(**split):
  """A learner after a few updates, and the priorities of the last."""
  learner = learners.make_reactor_learner(
      learners.make_reactor_agent(), **split)
  for seed in range(3):
    logs, priorities = learner.step(learner.place(learners.make_reactor_batch(
        seed, np.linspace(.5, 2., _B))))
    assert not logs['skipped']
  return learner, priorities


@pytest.fixture(scope='module', name='whole')
def _whole():
  return _train()


@pytest.mark.parametrize('in_parts', [False, True])
def test_two_replicas_and_parts_equal_one_learner(mirrored, whole, in_parts):
  """Weights, targets and slots; priorities are those of the whole batch."""
  learner, priorities = whole
  other, others_priorities = _train(
      **dict(num_parts=3) if in_parts else dict(strategy=mirrored))
  assert priorities.shape == (_B,)
  np.testing.assert_allclose(priorities, others_priorities, rtol=1e-4)
  for one, two in zip(learner.variables(), other.variables(), strict=True):
    np.testing.assert_allclose(one.numpy(), two.numpy(), atol=2e-5)
  target = learner.target_params['policy/output/w'].numpy()
  online = learner.params['policy/output/w'].numpy()
  initial = learners.make_reactor_agent().initial_params(1)['policy/output/w']
  assert np.abs(target - online).max() > 1e-4
  assert np.abs(target - initial).max() > 1e-4


def test_as_a_function_that_xla_compiles():
  agent = learners.make_reactor_agent()
  params = agent.initial_params(0)
  batch = learners.make_reactor_batch(0, np.ones([_B]))
  batch = batch._replace(
      keys=(), unrolls=batch.unrolls._replace(
          level_name=(), policy_version=(),
          env_outputs=batch.unrolls.env_outputs._replace(info=())))
  loss_fn = reactor.make_loss_fn(agent, _SETTINGS)
  compiled = tf.function(loss_fn, autograph=False, jit_compile=True)
  for one, other in zip(tree.flatten(compiled(params, params, batch)),
                        tree.flatten(loss_fn(params, params, batch))):
    np.testing.assert_allclose(one, other, rtol=1e-4)
