"""Reactor's agent, against Keras layers, and who trains what in it."""

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent.algorithms import policy_gradients
from scalable_agent.environments import ArraySpec
from tests.networks import agents
from tests.networks import block_cell

_A, _M = agents.NUM_ACTIONS, 5
_E = .1


def _make(torso='vector', use_lstm=True, spec=None):
  return networks.ReactorAgent(
      _A, spec or (agents.FRAMES[torso],), torso, use_lstm, num_atoms=_M,
      v_min=-1., v_max=3., policy_uniform=_E)


def _random_state(seed=0):
  rng = np.random.default_rng(seed)
  return tree.map_structure(
      lambda a: rng.normal(size=a.shape).astype(np.float32),
      _make().initial_state(2))


def test_number_of_parameters():
  """Table 3, for 6 actions and 51 atoms; ConcatReLU doubles the channels."""
  agent = networks.ReactorAgent(
      6, (ArraySpec((84, 84, 1), np.uint8),), 'reactor', True, 51, -10., 10.,
      .01)
  params = agent.initial_params(0)
  torso = (8 * 8 * 1 + 1) * 16 + (4 * 4 * 32 + 1) * 32 + (
      3 * 3 * 64 + 1) * 32 + (7 * 7 * 64 + 1) * 128
  cores = 2 * (256 + 128 + 1) * 4 * 128
  heads = 3 * (128 + 1) * 32 + (64 + 1) * (6 + 51 + 6 * 51)
  total = sum(w.size for w in params.values())
  assert total == torso + cores + heads == 867_675


@pytest.mark.parametrize('torso, use_lstm', [
    ('vector', True), ('vector', False), ('reactor', True)])
def test_unroll_equals_steps(torso, use_lstm):
  """Policy, values and core states, with episodes that end on the way."""
  agent = _make(torso, use_lstm)
  params = agents.params(agent)
  actions, env_outputs = agents.inputs(torso, 5, 2)
  env_outputs = env_outputs._replace(done=tf.constant(
      [[True, False], [False, False], [False, True], [True, True],
       [False, False]]))
  state = initial_state = _random_state() if use_lstm else ()
  (log_policy, value_logits), last_state = agent.unroll(
      params, actions, env_outputs, initial_state)
  assert log_policy.shape == (5, 2, _A)
  assert value_logits.shape == (5, 2, _A, _M)
  values = tf.nn.softmax(value_logits) @ agent.support[:, np.newaxis]
  for t in range(5):
    output, state = agent.step(
        params, [0, t], actions[t],
        tree.map_structure(lambda a: a[t], env_outputs), state)
    assert output.action.shape == (2,) and output.action.dtype == tf.int32
    agents.assert_close(output.policy_logits, log_policy[t])
    agents.assert_close(output.baseline, tf.reduce_sum(
        tf.exp(log_policy[t]) * values[t, ..., 0], -1))
  agents.assert_close(state, last_state)


def test_outputs():
  """Cores and heads by other code, from the torso's output on."""
  agent = _make()
  params = agents.params(agent)
  actions, env_outputs = agents.inputs('vector', 1, 2)
  env_outputs = env_outputs._replace(done=tf.zeros([1, 2], tf.bool))
  features = env_outputs.observation[0][0]
  for i in range(2):
    features = tf.nn.relu(features @ params[f'torso/linear_{i}/w'] +
                          params[f'torso/linear_{i}/b'])
  states = _random_state()
  policy_state, value_state = (
      block_cell.step(params, name, features, state)
      for name, state in zip(('policy_core', 'value_core'), states))

  def head(name, state):
    hidden = (state.h @ params[f'{name}/hidden/w'] +
              params[f'{name}/hidden/b']).numpy()
    both = np.concatenate([np.maximum(hidden, 0), np.maximum(-hidden, 0)], 1)
    return both @ params[f'{name}/output/w'] + params[f'{name}/output/b']

  advantages = head('advantages', value_state).reshape([2, _A, _M])
  expected = np.array([[[
      head('value', value_state)[b, i] + advantages[b, a, i] -
      advantages[b, :, i].mean() for i in range(_M)] for a in range(_A)]
                       for b in range(2)])
  policy = (1 - _E) * tf.nn.softmax(head('policy', policy_state)) + _E / _A
  (log_policy, value_logits), state = agent.unroll(
      params, actions, env_outputs, states)
  agents.assert_close(state, (policy_state, value_state))
  agents.assert_close(log_policy[0], np.log(policy))
  agents.assert_close(value_logits[0], expected)


def test_no_action_is_too_improbable():
  agent = _make(use_lstm=False)
  params = agents.params(agent)
  params['policy/output/b'] = np.array([500., 0., 0., -500.], np.float32)
  actions, env_outputs = agents.inputs('vector', 2, 3)
  (log_policy, _), _ = agent.unroll(params, actions, env_outputs, ())
  policy = np.exp(log_policy)
  np.testing.assert_allclose(policy.sum(-1), 1., rtol=1e-5)
  np.testing.assert_allclose(policy.min(-1), _E / _A, rtol=1e-5)


def test_the_same_more_for_all_advantages_changes_nothing():
  agent = _make(use_lstm=False)
  params = agents.params(agent)
  inputs = (*agents.inputs('vector', 2, 3), ())
  (_, before), _ = agent.unroll(params, *inputs)
  more = np.random.default_rng(1).normal(size=_M).astype(np.float32)
  params['advantages/output/b'] += np.tile(more, _A)
  (_, after), _ = agent.unroll(params, *inputs)
  agents.assert_close(after, before)
  params['value/output/b'] += more
  (_, after), _ = agent.unroll(params, *inputs)
  agents.assert_close(after, before + more)


@pytest.mark.parametrize('use_lstm', [True, False])
def test_what_the_policy_trains_is_none_of_the_critics(use_lstm):
  agent = _make(use_lstm=use_lstm)
  params = tree.map_structure(tf.constant, agents.params(agent))
  actions, env_outputs = agents.inputs('vector', 3, 2)
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(params)
    (log_policy, value_logits), _ = agent.unroll(
        params, actions, env_outputs, agent.initial_state(2))
    policy = tf.exp(log_policy)
    entropy = tf.reduce_sum(policy * log_policy)
    policy_loss = tf.reduce_sum(policy_gradients.beta_leave_one_out_loss(
        policy, tf.tensordot(tf.nn.softmax(value_logits), agent.support, 1),
        actions, tf.zeros([3, 2]), log_policy, 1.))
    critic_loss = tf.reduce_sum(tf.nn.log_softmax(value_logits)[..., 0])

  def trained_by(loss):
    gradients = tape.gradient(loss, params)
    return {name for name, g in gradients.items()
            if g is not None and np.abs(g).max() > 0}

  mine = {name for name in params if name.startswith('policy')}
  assert len(mine) == (6 if use_lstm else 4)
  assert trained_by(policy_loss) == trained_by(entropy) == mine
  assert trained_by(critic_loss) == params.keys() - mine


def _draw(agent, params):
  """Returns the shares of the actions in 4000 draws, and the policy, [A]."""
  _, env_output = agents.inputs('vector', 1, 1)
  one = tree.map_structure(
      lambda a: tf.repeat(a[0], 4000, axis=0), env_output)
  output, _ = agent.step(params, [1, 2], tf.zeros([4000], tf.int32), one, ())
  counts = np.bincount(output.action, minlength=_A)
  return counts / 4000, np.exp(output.policy_logits[0])


def test_actions_are_drawn_from_the_policy():
  agent = _make(use_lstm=False)
  shares, policy = _draw(agent, agents.params(agent))
  np.testing.assert_allclose(shares, policy, atol=.04)


def test_improbable_actions_are_drawn_too():
  """As often as the share of the uniform policy has it."""
  agent = _make(use_lstm=False)
  params = agents.params(agent)
  params['policy/output/b'] = np.array([500., 0., 0., -500.], np.float32)
  shares, _ = _draw(agent, params)
  np.testing.assert_allclose(shares[1:], _E / _A, rtol=.3)


def test_instructions_are_refused():
  with pytest.raises(ValueError, match='no network for instructions'):
    _make(spec=(agents.FRAMES['shallow'], agents.WORDS))


def test_bfloat16_is_of_the_torso_alone():
  weights = None
  for precision in ('float32', 'bfloat16'):
    agent = networks.ReactorAgent(
        _A, (agents.FRAMES['reactor'],), 'reactor', True, _M, -1., 3., _E,
        precision)
    weights = weights or agents.params(agent)
    actions, env_outputs = agents.inputs('reactor', 2, 2)
    outputs, _ = agent.unroll(
        weights, actions, env_outputs, agent.initial_state(2))
    assert {t.dtype for t in outputs} == {tf.float32}
    if precision == 'float32':
      exact = outputs
  agents.assert_close(outputs, exact, 3e-2)
  assert not np.allclose(outputs[1], exact[1], atol=1e-6)
