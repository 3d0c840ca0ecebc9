"""What IMPALA's loss makes of the replayed unrolls in a batch (LASER)."""

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import gradients as gradients_lib
from scalable_agent import losses
from scalable_agent import placing
from scalable_agent import vtrace
from scalable_agent.algorithms import impala
from tests import learners

_REPLAYED = np.array([False, True, False, True])
_STEPS = learners.T * _REPLAYED.sum()


class _ScriptedAgent:
  """Its outputs are its weights."""

  def unroll(self, params, unused_actions, unused_outputs, core_state):
    return (params['logits'], params['baseline']), core_state


def _params(seed, spread=1.):
  rng = np.random.default_rng(seed)
  shape = learners.T + 1, learners.B
  return dict(
      logits=tf.constant(
          spread * rng.normal(size=[*shape, learners.NUM_ACTIONS]), tf.float32),
      baseline=tf.constant(rng.normal(size=shape), tf.float32))


def _loss(batch, params, **settings):
  """Returns loss, logs and gradients."""
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, logs, _ = impala.compute_loss(
        _ScriptedAgent(), learners.LOSS._replace(**settings), params, batch)
  return loss, logs, tape.gradient(loss, params)


def _batch(is_replayed):
  return learners.make_batch(0)._replace(is_replayed=is_replayed)


def test_entropy_of_new_unrolls_alone():
  params = _params(0)
  logs = lambda value: _loss(
      _batch(_REPLAYED), params, entropy_on_replay=value)[1]
  entropy = lambda logits: learners.LOSS.entropy_cost * (
      losses.compute_entropy_loss(logits))
  logits = params['logits'][:-1].numpy()
  np.testing.assert_allclose(logs(True)['entropy_loss'], entropy(logits))
  np.testing.assert_allclose(
      logs(False)['entropy_loss'], entropy(logits[:, ~_REPLAYED]), rtol=1e-6)
  for name in ('policy_gradient_loss', 'baseline_loss'):
    np.testing.assert_array_equal(logs(True)[name], logs(False)[name])


def _relevance(batch, params, clip_rho_threshold=1.):
  return vtrace.behaviour_relevance(
      batch.unrolls.agent_outputs.policy_logits[1:], params['logits'][:-1],
      clip_rho_threshold)


@pytest.mark.parametrize('clip_rho_threshold', [1., 2.])
@pytest.mark.parametrize('threshold', [1e-3, .1, .3])
def test_relevance_is_logged_of_replayed_states(threshold, clip_rho_threshold):
  """As sums and counts, since those of replicas are added up.

  Of new states only how many are left out.
  """
  batch, params = _batch(_REPLAYED), _params(1)
  _, logs, _ = _loss(batch, params, trust_region_threshold=threshold,
                     clip_rho_threshold=clip_rho_threshold)
  relevance = _relevance(batch, params, clip_rho_threshold)
  of_replayed = relevance.numpy()[:, _REPLAYED]
  total, count = logs['relevance_mean']
  assert count == _STEPS
  np.testing.assert_allclose(total, of_replayed.sum(), rtol=1e-5)
  rejected, count = logs['replay_rejected']
  assert count == _STEPS
  assert rejected == (of_replayed >= threshold).sum()
  rejected, count = logs['online_rejected']
  assert count == relevance.shape.num_elements() - _STEPS
  assert rejected == (relevance.numpy()[:, ~_REPLAYED] >= threshold).sum()


def test_states_are_counted_where_few_are_replayed():
  is_replayed = np.arange(len(_REPLAYED)) == 0
  batch, params = _batch(is_replayed), _params(1)
  _, logs, _ = _loss(batch, params, trust_region_threshold=.1)
  num_states = _relevance(batch, params).shape.num_elements()
  _, num_replayed = logs['replay_rejected']
  _, num_new = logs['online_rejected']
  assert num_replayed == num_states / len(_REPLAYED)
  assert num_new == num_states - num_replayed


def test_a_relevance_at_the_threshold_is_rejected():
  """As V-trace does, which trusts what is below it."""
  batch, params = _batch(_REPLAYED), _params(1)
  of_replayed = np.sort(_relevance(batch, params).numpy()[:, _REPLAYED].ravel())
  _, logs, _ = _loss(
      batch, params, trust_region_threshold=float(of_replayed[3]))
  rejected, _ = logs['replay_rejected']
  assert rejected == _STEPS - 3


def test_without_replay_there_is_no_relevance_to_log():
  _, logs, _ = _loss(_batch(~_REPLAYED & _REPLAYED), _params(1),
                     trust_region_threshold=1e-3)
  for name in ('relevance_mean', 'replay_rejected'):
    assert [float(value) for value in logs[name]] == [0., 0.]


def test_of_rejected_states_entropy_alone_has_a_gradient():
  """Far off policy nothing is left but the entropy of new unrolls."""
  params = _params(2, spread=9.)
  _, _, gradients = _loss(
      _batch(_REPLAYED), params, trust_region_threshold=1e-9,
      entropy_on_replay=False)
  with tf.GradientTape() as tape:
    tape.watch(params)
    entropy = learners.LOSS.entropy_cost * losses.compute_entropy_loss(
        tf.boolean_mask(params['logits'][:-1], ~_REPLAYED, axis=1))
  expected = tape.gradient(entropy, params)
  np.testing.assert_allclose(
      gradients['logits'], expected['logits'], rtol=1e-5, atol=1e-9)
  np.testing.assert_array_equal(gradients['baseline'], 0.)


@pytest.mark.parametrize('is_replayed, settings', [
    (_REPLAYED, dict(trust_region_threshold=np.inf)),
    (~_REPLAYED & _REPLAYED, dict(entropy_on_replay=False)),
    (~_REPLAYED & _REPLAYED, dict(trust_region_threshold=np.inf,
                                  entropy_on_replay=False))])
def test_limits_are_impala_to_the_bit(is_replayed, settings):
  """An infinite threshold, and batches without replay: also after updates."""
  params = _params(3, spread=3.)
  batch = _batch(is_replayed)
  loss, logs, gradients = _loss(batch, params, **settings)
  expected_loss, expected_logs, expected_gradients = _loss(batch, params)
  np.testing.assert_array_equal(loss, expected_loss)
  for name in expected_logs:
    np.testing.assert_array_equal(logs[name], expected_logs[name])
  for name in params:
    np.testing.assert_array_equal(gradients[name], expected_gradients[name])

  trained = []
  for loss_settings in (learners.LOSS, learners.LOSS._replace(**settings)):
    learner = learners.make_learner(loss=loss_settings)
    for seed in range(3):
      learner.step(learner.place(
          learners.make_batch(seed)._replace(is_replayed=is_replayed)))
    trained.append({k: v.numpy() for k, v in learner.weights().items()})
  for name, value in trained[0].items():
    np.testing.assert_array_equal(value, trained[1][name], err_msg=name)


def test_parts_of_a_batch_reject_as_the_whole_does():
  """Rows stay with their flags where replicas share a batch."""
  settings = learners.LOSS._replace(
      trust_region_threshold=.1, entropy_on_replay=False)
  batch = _batch(np.array([False, False, True, True]))
  agent = learners.make_agent()
  loss_fn = impala.make_loss_fn(agent, settings)
  params = {k: tf.constant(v) for k, v in agent.initial_params(0).items()}
  whole = gradients_lib.loss_and_gradients(
      loss_fn, params, None, placing.place(batch, '/cpu:0'))
  parts = [gradients_lib.loss_and_gradients(
      loss_fn, params, None, placing.place(batch, '/cpu:0', rows))
           for rows in (slice(0, 2), slice(2, 4))]
  for name, values in whole[1].items():
    np.testing.assert_allclose(
        values, np.sum([part[1][name] for part in parts], axis=0), rtol=1e-5)
  for name, value in whole[0][0].items():
    np.testing.assert_allclose(
        value, sum(part[0][0][name] for part in parts), rtol=1e-4, atol=1e-5)
