"""The corrections that V-trace is compared with, against their definition."""

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import losses
from scalable_agent.algorithms import corrections
from scalable_agent.algorithms import impala
from tests import learners

_T, _B, _NUM_ACTIONS = learners.T, learners.B, learners.NUM_ACTIONS
_SETTINGS = learners.LOSS._replace(
    entropy_cost=.3, clip_rho_threshold=.7, clip_pg_rho_threshold=1.4,
    lambda_=.8)
_variants = pytest.mark.parametrize('q_estimate', corrections.Q_ESTIMATES)


class _ScriptedAgent:
  """Its outputs are its weights."""

  def unroll(self, params, unused_actions, unused_env_outputs, core_state):
    return (params['logits'], params['baseline']), core_state


def _inputs(seed=6, is_on_policy=False):
  """A batch and outputs, with importance weights from 0.006 to 790."""
  rng = np.random.default_rng(seed)
  batch = learners.make_batch(seed)
  logits = rng.normal(size=[_T + 1, _B, _NUM_ACTIONS])
  # Actions that epsilon makes a difference for.
  for b, action in enumerate(batch.unrolls.agent_outputs.action[2]):
    logits[1, b, action] -= 14
  shift = 0 if is_on_policy else 2 * rng.normal(size=logits[:-1].shape)
  batch.unrolls.agent_outputs.policy_logits[1:] = logits[:-1] + shift
  return batch, dict(
      logits=tf.constant(logits, tf.float32),
      baseline=tf.constant(rng.normal(size=[_T + 1, _B]), tf.float32))


def _compute(settings, batch, params):
  """Returns losses and gradients, a dict of arrays."""
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, logs, _ = impala.compute_loss(
        _ScriptedAgent(), settings, params, batch)
  return dict({name: logs[name].numpy() for name in (
      'policy_gradient_loss', 'baseline_loss')}, **{
          name: gradient.numpy()
          for name, gradient in tape.gradient(loss, params).items()})


def _transcribe(settings, batch, params):
  """The same by the definition, in O(T^2) and float64, gradients by hand."""
  correction = settings.off_policy_correction
  actor, env = batch.unrolls.agent_outputs, batch.unrolls.env_outputs
  softmax = lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum()
  result = dict(policy_gradient_loss=0., baseline_loss=0.,
                logits=np.zeros([_T + 1, _B, _NUM_ACTIONS]),
                baseline=np.zeros([_T + 1, _B]))
  rhos = []
  for b in range(_B):
    values = params['baseline'].numpy()[:, b].astype(np.float64)
    pi = [softmax(params['logits'].numpy()[t, b].astype(np.float64))
          for t in range(_T)]
    mu = [softmax(actor.policy_logits[t + 1, b].astype(np.float64))
          for t in range(_T)]
    action = actor.action[1:, b]
    reward = np.clip(env.reward[1:, b], -1, 1).astype(np.float64)
    gamma = np.where(env.done[1:, b], 0., settings.discounting)
    rho = np.array([pi[t][action[t]] / mu[t][action[t]] for t in range(_T)])
    rhos.extend(rho)
    k = c = w = np.ones(_T)
    if correction == 'vtrace':
      k = np.minimum(rho, settings.clip_rho_threshold)
      c = np.minimum(rho, 1)
    if correction in ('vtrace', 'one_step'):
      w = np.minimum(rho, settings.clip_pg_rho_threshold)
    y = values.copy()
    for t in range(_T):
      for j in range(t, _T):
        y[t] += np.prod(gamma[t:j] * settings.lambda_ * c[t:j]) * k[j] * (
            reward[j] + gamma[j] * values[j + 1] - values[j])
    q = y if settings.q_estimate == 'target' else values
    for t in range(_T):
      p = pi[t][action[t]]
      added = 1e-6 if correction == 'epsilon' else 0.
      advantage = w[t] * (reward[t] + gamma[t] * q[t + 1] - values[t])
      entropy = -(pi[t] * np.log(pi[t])).sum()
      result['policy_gradient_loss'] -= advantage * np.log(p + added)
      result['baseline_loss'] += (
          settings.baseline_cost * .5 * (y[t] - values[t]) ** 2)
      taken = np.eye(_NUM_ACTIONS)[action[t]]
      result['logits'][t, b] = (
          advantage * p / (p + added) * (pi[t] - taken) +
          settings.entropy_cost * pi[t] * (np.log(pi[t]) + entropy))
      result['baseline'][t, b] = -settings.baseline_cost * (y[t] - values[t])
  assert min(rhos) < .01 and max(rhos) > 100
  return result


@_variants
@pytest.mark.parametrize('correction', corrections.CORRECTIONS)
def test_equals_the_definition(correction, q_estimate):
  """Values and gradients, with episodes that end inside."""
  batch, params = _inputs()
  assert batch.unrolls.env_outputs.done[1:].any()
  settings = _SETTINGS._replace(
      off_policy_correction=correction, q_estimate=q_estimate)
  expected = _transcribe(settings, batch, params)
  for name, value in _compute(settings, batch, params).items():
    np.testing.assert_allclose(
        value, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


def test_no_two_variants_are_the_same():
  """So that the test above tells each from the others."""
  batch, params = _inputs()
  found = [_compute(_SETTINGS._replace(
      off_policy_correction=correction, q_estimate=q_estimate), batch, params)
           for correction in corrections.CORRECTIONS
           for q_estimate in corrections.Q_ESTIMATES]
  for i, one in enumerate(found):
    for other in found[:i]:
      assert max(np.abs(one[name] - other[name]).max()
                 for name in ('logits', 'baseline')) > 1e-2


@_variants
def test_on_policy_all_corrections_are_the_same(q_estimate, monkeypatch):
  monkeypatch.setattr(corrections, '_EPSILON', 0.)
  batch, params = _inputs(1, is_on_policy=True)
  settings = _SETTINGS._replace(
      clip_rho_threshold=1., clip_pg_rho_threshold=1., q_estimate=q_estimate)
  found = [_compute(settings._replace(off_policy_correction=correction), batch,
                    params) for correction in corrections.CORRECTIONS]
  for other in found[1:]:
    for name, value in other.items():
      np.testing.assert_allclose(
          value, found[0][name], rtol=1e-6, atol=1e-6, err_msg=name)


@_variants
@pytest.mark.parametrize('correction', corrections.CORRECTIONS)
def test_without_a_threshold_nothing_is_truncated(correction, q_estimate):
  batch, params = _inputs()
  settings = _SETTINGS._replace(
      off_policy_correction=correction, q_estimate=q_estimate)
  found, expected = (
      _compute(settings._replace(clip_pg_rho_threshold=threshold), batch,
               params) for threshold in (None, np.inf))
  for name, value in found.items():
    np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize('correction', corrections.CORRECTIONS)
def test_of_a_single_step_both_q_estimates_are_the_same(correction):
  """The value after the last step is the bootstrap's."""
  rng = np.random.default_rng(2)
  normal = lambda *shape: tf.constant(rng.normal(size=shape), tf.float32)
  inputs = dict(
      behaviour_policy_logits=normal(1, 3, 4),
      target_policy_logits=normal(1, 3, 4),
      actions=tf.constant([[0, 1, 3]]), discounts=normal(1, 3),
      rewards=normal(1, 3), values=normal(1, 3), bootstrap_value=normal(3))
  found = [corrections.from_logits(correction, q_estimate, **inputs)
           for q_estimate in corrections.Q_ESTIMATES]
  np.testing.assert_allclose(
      found[0].pg_advantages, found[1].pg_advantages, rtol=1e-6)


def _gradient_of_policy_loss(logits, epsilon):
  logits = tf.constant([[logits]], tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = losses.compute_policy_gradient_loss(
        logits, [[0]], [[1.]], epsilon=epsilon)
  return np.abs(tape.gradient(loss, logits)).max()


def test_epsilon_takes_the_gradient_of_improbable_actions_away():
  improbable = [np.log(1e-12), 0.]
  without = _gradient_of_policy_loss(improbable, 0.)
  assert without > .99
  assert _gradient_of_policy_loss(improbable, 1e-6) < 1e-5 * without
  # And of all actions, if it is large.
  assert _gradient_of_policy_loss([0., 0.], 1e-6) > .49
  assert _gradient_of_policy_loss([0., 0.], 1e30) < 1e-6


def test_epsilon_is_finite_where_the_policy_excludes_the_action():
  assert _gradient_of_policy_loss([-np.inf, 0.], 1e-6) == 0.


def test_what_is_declared_is_all_there_is():
  """The declarations cannot import this, which loads TensorFlow."""
  choices = lambda name: config_lib.SETTINGS[name].choices
  assert choices('off_policy_correction') == corrections.CORRECTIONS
  assert choices('q_estimate') == corrections.Q_ESTIMATES
