"""Theorems 1 and 2 of the paper, on random MDPs, for what `vtrace` computes."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import vtrace

_STATES, _ACTIONS, _GAMMA = 4, 3, .7
_STEPS = 3


class _MDP:
  """A random MDP, a target policy pi, and a behaviour policy mu.

  p is [state, action, next state], the others are [state, action].
  """

  def __init__(self, seed):
    rng = np.random.default_rng(seed)
    dirichlet = lambda *shape: rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    self.p = dirichlet(_STATES, _ACTIONS, _STATES)
    self.r = rng.normal(size=[_STATES, _ACTIONS])
    self.pi = dirichlet(_STATES, _ACTIONS)
    self.mu = .8 * dirichlet(_STATES, _ACTIONS) + .2 / _ACTIONS

  def value_of(self, policy):
    """Solves the Bellman equation of a policy."""
    transitions = np.einsum('xa,xay->xy', policy, self.p)
    rewards = (policy * self.r).sum(1)
    return np.linalg.solve(np.eye(_STATES) - _GAMMA * transitions, rewards)

  def truncated_policy(self, rho_bar):
    """pi_rho_bar of equation 3."""
    weights = np.minimum(rho_bar * self.mu, self.pi)
    return weights / weights.sum(1, keepdims=True)

  def operator(self, rho_bar, c_bar, lambda_=1.):
    """Returns C, and E[rho delta] as the matrix and the offset of V."""
    rho = np.minimum(self.pi / self.mu, rho_bar)
    c = lambda_ * np.minimum(self.pi / self.mu, c_bar)
    traces = np.einsum('xa,xay->xy', self.mu * c, self.p)
    p_rho = np.einsum('xa,xay->xy', self.mu * rho, self.p)
    delta = _GAMMA * p_rho - np.diag((self.mu * rho).sum(1))
    return traces, delta, (self.mu * rho * self.r).sum(1)

  def apply(self, v, rho_bar, c_bar):
    """The V-trace operator R of equation 4 on v, in closed form."""
    traces, delta, rewards = self.operator(rho_bar, c_bar)
    return v + np.linalg.solve(
        np.eye(_STATES) - _GAMMA * traces, rewards + delta @ v)


@pytest.mark.parametrize('seed', range(20))
def test_operator_is_a_contraction(seed):
  """Its matrix has no negative entry, and rows that sum to less than 1."""
  mdp = _MDP(seed)
  for rho_bar, c_bar in [(1., 1.), (2., 1.), (.5, .5)]:
    traces, delta, _ = mdp.operator(rho_bar, c_bar)
    matrix = np.eye(_STATES) + np.linalg.solve(
        np.eye(_STATES) - _GAMMA * traces, delta)
    assert matrix.min() > -1e-12
    expected_rho = (mdp.mu * np.minimum(mdp.pi / mdp.mu, rho_bar)).sum(1)
    assert matrix.sum(1).max() <= 1 - (1 - _GAMMA) * expected_rho.min() + 1e-12


@pytest.mark.parametrize('seed', range(20))
def test_fixed_point_is_the_value_of_the_truncated_policy(seed):
  """It depends on rho_bar, and not on c_bar."""
  mdp = _MDP(seed)
  for rho_bar, c_bar in [(1., 1.), (1., .3), (2., 1.), (1e9, 1.)]:
    v = mdp.value_of(mdp.truncated_policy(rho_bar))
    np.testing.assert_allclose(mdp.apply(v, rho_bar, c_bar), v, atol=1e-12)
  np.testing.assert_allclose(
      mdp.truncated_policy(1e9), mdp.pi, atol=1e-12)
  other = mdp.value_of(mdp.truncated_policy(1.))
  assert np.abs(mdp.apply(other, 2., 1.) - other).max() > 1e-3


def _expected_targets(mdp, v, rho_bar, lambda_):
  """E[v_0] from each state, over all trajectories of `vtrace`'s own targets."""
  paths = np.array(list(itertools.product(
      range(_STATES), *[range(_ACTIONS), range(_STATES)] * _STEPS))).T
  states, actions = paths[::2], paths[1::2]
  at = states[:-1], actions
  probabilities = np.prod(mdp.mu[at] * mdp.p[(*at, states[1:])], axis=0)
  returns = vtrace.from_importance_weights(
      log_rhos=np.log(mdp.pi[at] / mdp.mu[at]),
      discounts=np.full(actions.shape, _GAMMA), rewards=mdp.r[at],
      values=v[states[:-1]], bootstrap_value=v[states[-1]],
      clip_rho_threshold=rho_bar, lambda_=lambda_)
  return np.bincount(states[0], probabilities * returns.vs.numpy()[0])


@pytest.mark.parametrize('rho_bar, lambda_', [(1., 1.), (2., 1.), (1., .6)])
@pytest.mark.parametrize('seed', range(3))
def test_targets_are_the_operator_of_theorem_1(seed, rho_bar, lambda_):
  """In expectation, its first terms; so they have the same fixed point."""
  mdp = _MDP(seed)
  traces, delta, rewards = mdp.operator(rho_bar, 1., lambda_)
  v = np.random.default_rng(seed).normal(size=_STATES)
  expected = v + sum(
      np.linalg.matrix_power(_GAMMA * traces, k) @ (rewards + delta @ v)
      for k in range(_STEPS))
  np.testing.assert_allclose(
      _expected_targets(mdp, v, rho_bar, lambda_), expected, atol=1e-5)
  fixed = mdp.value_of(mdp.truncated_policy(rho_bar))
  np.testing.assert_allclose(
      _expected_targets(mdp, fixed, rho_bar, lambda_), fixed, atol=1e-5)


def test_online_updates_converge_to_the_value_of_the_truncated_policy():
  """Theorem 2, with steps of 1 / visits^0.7, for 200 learners at once."""
  mdp = _MDP(3)
  num_learners, num_updates = 200, 1000
  rng = np.random.default_rng(0)
  targets = tf.function(
      lambda *args: vtrace.from_importance_weights(*args).vs[0])
  draw = lambda p: (rng.random(p.shape[:-1] + (1,)) > p.cumsum(-1)).sum(-1)
  learners = np.arange(num_learners)
  v = np.zeros([num_learners, _STATES])
  visits = np.zeros([num_learners, _STATES])
  for _ in range(num_updates):
    states = [rng.integers(_STATES, size=num_learners)]
    actions = []
    for _ in range(_STEPS):
      actions.append(draw(mdp.mu[states[-1]]))
      states.append(draw(mdp.p[states[-1], actions[-1]]))
    at = np.array(states[:-1]), np.array(actions)
    values = v[learners, np.array(states)].astype(np.float32)
    vs = targets(*[np.float32(array) for array in (
        np.log(mdp.pi[at] / mdp.mu[at]), np.full(at[0].shape, _GAMMA),
        mdp.r[at], values[:-1], values[-1])]).numpy()
    visits[learners, states[0]] += 1
    v[learners, states[0]] += (
        (vs - values[0]) / visits[learners, states[0]] ** .7)
  mean, error = v.mean(0), v.std(0, ddof=1) / np.sqrt(num_learners)
  distance = lambda policy: (
      np.abs(mean - mdp.value_of(policy)) / error).max()
  assert distance(mdp.truncated_policy(1.)) < 4
  assert distance(mdp.pi) > 8 and distance(mdp.mu) > 8
