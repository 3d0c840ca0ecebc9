"""The trust region of V-trace, against the definitions of LASER's paper.

Schmitt et al., "Off-Policy Actor-Critic with Shared Experience Replay", 2020,
https://arxiv.org/abs/1909.11583. Equations and propositions are its own.
"""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import vtrace

_property = hypothesis.settings(max_examples=60)


def _softmax(logits):
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


def _slow_relevance(mu, pi, rho_bar):
  """KL(pi || implied policy) of one state by its definition, in float64."""
  truncated = [min(rho_bar * m, p) for m, p in zip(mu, pi)]
  implied = [each / sum(truncated) for each in truncated]
  return sum(p * np.log(p / i) for p, i in zip(pi, implied))


def _relevance(mu, pi, rho_bar=1.):
  """Of the project, for the probabilities of one state."""
  def logits(p):
    with np.errstate(divide='ignore'):
      return np.log(np.array(p, np.float32))[None, None]
  return vtrace.behaviour_relevance(logits(mu), logits(pi), rho_bar).numpy()[
      0, 0]


# -- The behaviour relevance --------------------------------------------------

_logits = st.lists(
    st.tuples(*2 * [st.floats(-20., 20., width=32)]), min_size=2, max_size=6)


@_property
@hypothesis.given(_logits, st.sampled_from([.5, 1., 3.]))
def test_relevance_is_that_of_the_definition(logits, rho_bar):
  behaviour, target = np.array(logits, np.float32).T
  expected = _slow_relevance(
      *(_softmax(x.astype(np.float64)) for x in (behaviour, target)), rho_bar)
  found = vtrace.behaviour_relevance(
      behaviour[None, None], target[None, None], rho_bar)
  assert found.shape == (1, 1) and found.dtype == tf.float32
  np.testing.assert_allclose(found[0, 0], expected, rtol=1e-5, atol=2e-5)


def test_relevance_is_of_every_state_by_itself():
  rng = np.random.default_rng(0)
  behaviour, target = rng.normal(size=(2, 5, 3, 4)).astype(np.float32)
  found = vtrace.behaviour_relevance(behaviour, target, 1.3)
  expected = [[_slow_relevance(_softmax(behaviour[t, b]),
                               _softmax(target[t, b]), 1.3)
               for b in range(3)] for t in range(5)]
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('phi, expected', [
    (.1, .3681), (.01, .6371), (.001, .6852), (1e-6, .6931)])
def test_relevance_of_opposite_policies(phi, expected):
  """Its limit is log 2: each policy knows one of two actions."""
  np.testing.assert_allclose(
      _relevance([phi, 1 - phi], [1 - phi, phi]), expected, atol=5e-5)


def test_relevance_is_no_distance_of_policies():
  """What V-trace learns from a near-deterministic policy is of that policy."""
  np.testing.assert_allclose(
      _relevance([.01, .99], [.9999, .0001]), .009, atol=5e-4)


@pytest.mark.parametrize('rho_bar', [None, .5, 1., 2., np.inf])
def test_the_same_policy_is_relevant(rho_bar):
  pi = _softmax(np.random.default_rng(0).normal(size=6))
  np.testing.assert_allclose(_relevance(pi, pi, rho_bar), 0, atol=1e-6)


@pytest.mark.parametrize('rho_bar', [None, np.inf])
def test_without_truncation_all_is_relevant(rho_bar):
  """The implied policy is then the target policy."""
  np.testing.assert_allclose(
      _relevance([.1, .9], [.999, .001], rho_bar), 0, atol=1e-6)


def test_actions_that_are_never_taken():
  """They do not matter where pi never takes them, and else they decide."""
  np.testing.assert_allclose(
      _relevance([.5, .5, 0.], [.25, .75, 0.]),
      _relevance([.5, .5], [.25, .75]))
  np.testing.assert_allclose(
      _relevance([.5, .25, .25], [.25, .75, 0.]),
      _slow_relevance([.5, .25], [.25, .75], 1.), rtol=1e-5)
  assert _relevance([.5, .5, 0.], [.25, .5, .25]) == np.inf


def test_no_gradient_flows_through_the_relevance():
  logits = tf.constant([[[1., 2.]]])
  with tf.GradientTape() as tape:
    tape.watch(logits)
    relevance = vtrace.behaviour_relevance(logits + 1., logits * logits)
  assert tape.gradient(relevance, logits) is None


# -- Targets ------------------------------------------------------------------


def _random_inputs(seed, num_steps=6, batch_size=4, num_actions=3, spread=1.):
  rng = np.random.default_rng(seed)
  shape = num_steps, batch_size
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  return dict(
      behaviour_policy_logits=spread * normal(*shape, num_actions),
      target_policy_logits=spread * normal(*shape, num_actions),
      actions=rng.integers(num_actions, size=shape).astype(np.int32),
      discounts=(.9 * (rng.random(shape) > .2)).astype(np.float32),
      rewards=normal(*shape), values=normal(*shape),
      bootstrap_value=normal(batch_size))


def _slow_trusted(inputs, b, rho_bar, rho_pg_bar, lambda_):
  """Equation 7 as a sum of products with the trust of every state on the way.

      V(s_t) + sum_k gamma^k (prod_{i<k} trust_i c_i) trust_k rho_k delta_k V

  In it trust is 1 where the relevance is below b; the paper's text prints
  "above", against the set that it defines above equation 5.
  """
  num_steps, batch_size = inputs['actions'].shape
  vs = np.zeros([num_steps + 1, batch_size])
  advantages = np.zeros([num_steps, batch_size])
  for j in range(batch_size):
    mu = _softmax(inputs['behaviour_policy_logits'][:, j].astype(np.float64))
    pi = _softmax(inputs['target_policy_logits'][:, j].astype(np.float64))
    v = [*inputs['values'][:, j].astype(np.float64),
         inputs['bootstrap_value'][j]]
    trust = [float(_slow_relevance(mu[t], pi[t], rho_bar) < b)
             for t in range(num_steps)]
    rho = [pi[t, a] / mu[t, a] for t, a in enumerate(inputs['actions'][:, j])]
    gamma, reward = inputs['discounts'][:, j], inputs['rewards'][:, j]
    vs[:, j] = v
    for t in range(num_steps):
      for k in range(t, num_steps):
        product = trust[k] * min(rho_bar, rho[k]) * (
            reward[k] + gamma[k] * v[k + 1] - v[k])
        for i in range(t, k):
          product *= gamma[i] * lambda_ * trust[i] * min(1., rho[i])
        vs[t, j] += product
    for t in range(num_steps):
      advantages[t, j] = trust[t] * min(rho_pg_bar, rho[t]) * (
          reward[t] + gamma[t] * vs[t + 1, j] - v[t])
  return vs[:-1], advantages


@pytest.mark.parametrize('lambda_', [1., .7])
@pytest.mark.parametrize('rho_bar, rho_pg_bar', [(1., 1.), (2., .5)])
@pytest.mark.parametrize('b', [1e-3, .05, .2, 2.])
def test_targets_and_advantages_are_those_of_equation_7(
    b, rho_bar, rho_pg_bar, lambda_):
  inputs = _random_inputs(seed=1, num_steps=8, batch_size=5)
  found = vtrace.from_logits(
      **inputs, clip_rho_threshold=rho_bar, clip_pg_rho_threshold=rho_pg_bar,
      lambda_=lambda_, trust_region_threshold=b)
  vs, advantages = _slow_trusted(inputs, b, rho_bar, rho_pg_bar, lambda_)
  np.testing.assert_allclose(found.vs, vs, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
      found.pg_advantages, advantages, rtol=1e-4, atol=1e-5)


def test_some_states_are_left_out_in_that_test():
  inputs = _random_inputs(seed=1, num_steps=8, batch_size=5)
  relevance = vtrace.behaviour_relevance(
      inputs['behaviour_policy_logits'], inputs['target_policy_logits'])
  for b in (.05, .2):
    assert .1 < np.mean(relevance < b) < .9


def _assert_same(found, expected):
  for name, a, b in zip(found._fields, found, expected):
    np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize('rho_bar', [None, 1., 2.])
def test_an_infinite_threshold_is_v_trace_to_the_bit(rho_bar):
  inputs = _random_inputs(seed=2, spread=5.)
  _assert_same(*(
      vtrace.from_logits(**inputs, clip_rho_threshold=rho_bar,
                         trust_region_threshold=b) for b in (np.inf, None)))


@pytest.mark.parametrize('rho_bar', [None, .5, 1., 2.])
def test_on_policy_a_tiny_threshold_is_v_trace_to_the_bit(rho_bar):
  inputs = _random_inputs(seed=3)
  inputs['behaviour_policy_logits'] = inputs['target_policy_logits']
  _assert_same(*(
      vtrace.from_logits(**inputs, clip_rho_threshold=rho_bar,
                         trust_region_threshold=b) for b in (1e-5, None)))


def test_far_off_policy_a_tiny_threshold_leaves_nothing():
  inputs = _random_inputs(seed=4)
  found = vtrace.from_logits(**inputs, trust_region_threshold=1e-6)
  np.testing.assert_array_equal(found.vs, inputs['values'])
  np.testing.assert_array_equal(found.pg_advantages, 0.)
  # The weights are those of all states even so.
  np.testing.assert_array_equal(
      found.log_rhos, vtrace.from_logits(**inputs).log_rhos)


# -- Propositions 4 and 5 -----------------------------------------------------

_STATES, _ACTIONS, _BEHAVIOURS, _GAMMA = 4, 3, 3, .6


class _Mdp:
  """A random MDP, and policies in it, each [STATES, ACTIONS]."""

  def __init__(self, seed):
    rng = np.random.default_rng(seed)
    self.transitions = rng.dirichlet(
        np.full(_STATES, .5), (_STATES, _ACTIONS))
    self.rewards = rng.normal(size=(_STATES, _ACTIONS))
    self.pi = rng.dirichlet(np.ones(_ACTIONS), _STATES)
    self.behaviours = [
        .9 * rng.dirichlet(np.ones(_ACTIONS), _STATES) + .1 / _ACTIONS
        for _ in range(_BEHAVIOURS)]
    self.estimate = rng.normal(size=_STATES)
    self.trust = rng.random((_BEHAVIOURS, _STATES)) < .6

  def value_of(self, policy):
    """By a linear solve."""
    transitions = np.einsum('sa,sat->st', policy, self.transitions)
    rewards = (policy * self.rewards).sum(-1)
    return np.linalg.solve(np.eye(_STATES) - _GAMMA * transitions, rewards)

  def expected_return(self, mu, **settings):
    """Of endless trajectories of mu, by the functions of the project.

    Every transition is a row of two steps. The second is taken with a reward
    and an importance weight by which its target is what was found for the next
    state so far.

    Args:
      mu: The behaviour policy.
      **settings: Arguments of `vtrace.from_logits`; or `trust`, bool [STATES],
        for no truncation, and a trust region of these states.
    """
    s, a, t = (index.ravel() for index in np.indices(
        (_STATES, _ACTIONS, _STATES)))
    after = np.full(len(s), 0)
    pair = lambda first, second: np.stack([first, second]).astype(np.float32)
    logits = lambda policy: pair(
        np.log(policy[s]), np.zeros([len(s), _ACTIONS]))
    trust = settings.pop('trust', None)
    found = self.estimate
    for _ in range(25):
      inputs = dict(
          discounts=pair(np.full(len(s), _GAMMA), after),
          rewards=pair(self.rewards[s, a], found[t]),
          values=pair(self.estimate[s], self.estimate[t]),
          bootstrap_value=np.zeros([len(s)], np.float32))
      if trust is None:
        returns = vtrace.from_logits(
            logits(mu), logits(self.pi), pair(a, after).astype(np.int32),
            **inputs, **settings)
      else:
        log_rhos = np.where(
            trust[s], np.log(self.pi[s, a] / mu[s, a]), -np.inf)
        returns = vtrace.from_importance_weights(
            pair(log_rhos, after), **inputs, clip_rho_threshold=None)
      last, found = found, np.zeros(_STATES)
      np.add.at(found, s,
                mu[s, a] * self.transitions[s, a, t] * returns.vs[0].numpy())
    np.testing.assert_allclose(found, last, atol=1e-4)
    return found


@pytest.mark.parametrize('seed', range(3))
def test_proposition_4(seed):
  """Without truncation, any trust region is nearer to the value of pi."""
  mdp = _Mdp(seed)
  value = mdp.value_of(mdp.pi)
  bound = _GAMMA * np.abs(mdp.estimate - value).max()
  found = [mdp.expected_return(mu, trust=trust)
           for mu, trust in zip(mdp.behaviours, mdp.trust)]
  for state in np.flatnonzero(mdp.trust.any(0)):
    trusted = np.mean([returns[state] for returns, trust in zip(
        found, mdp.trust) if trust[state]])
    assert abs(trusted - value[state]) <= bound + 1e-4


@pytest.mark.parametrize('seed', range(3))
def test_proposition_5(seed):
  """Towards the values of the implied policies; with <=, where < is printed."""
  mdp, rho_bar = _Mdp(seed), 1.
  relevance = np.array([
      [_slow_relevance(mu[s], mdp.pi[s], rho_bar) for s in range(_STATES)]
      for mu in mdp.behaviours])
  b = np.median(relevance)
  accepted = relevance < b
  found, fixed_points, rates = [], [], []
  for mu in mdp.behaviours:
    found.append(mdp.expected_return(mu, trust_region_threshold=b))
    truncated = np.minimum(rho_bar * mu, mdp.pi)
    fixed_points.append(mdp.value_of(
        truncated / truncated.sum(-1, keepdims=True)))
    # The bound of IMPALA's appendix A.1, from the first step alone.
    rates.append(1 - (1 - _GAMMA) * truncated.sum(-1).min())
  states = np.flatnonzero(accepted.any(0))
  assert len(states)
  for state in states:
    mine = [z for z in range(_BEHAVIOURS) if accepted[z, state]]
    trusted = np.mean([found[z][state] for z in mine])
    target = np.mean([fixed_points[z][state] for z in mine])
    bound = max(rates[z] * np.abs(mdp.estimate - fixed_points[z]).max()
                for z in mine)
    assert abs(trusted - target) <= bound + 1e-4
