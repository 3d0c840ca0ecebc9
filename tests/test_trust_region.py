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


def _kl(p, q):
  return np.sum(p * np.log(p / q), -1)


def _implied(mu, pi, rho_bar):
  truncated = np.minimum(rho_bar * mu, pi) if np.isfinite(rho_bar) else pi
  return truncated / truncated.sum(-1, keepdims=True)


def _slow_relevance(mu, pi, rho_bar):
  """KL(pi || implied policy) by its definition, in float64."""
  mu, pi = np.array(mu, np.float64), np.array(pi, np.float64)
  return _kl(pi, _implied(mu, pi, rho_bar))


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
@pytest.mark.parametrize('mu, pi', [
    ([.1, .9], [.999, .001]), ([1., 0.], [.25, .75]),
    ([0., .5, .5], [.5, .5, 0.]), ([.5, 0., .5], [.5, 0., .5])])
def test_without_truncation_all_is_relevant(mu, pi, rho_bar):
  """The implied policy is then the target policy."""
  np.testing.assert_allclose(_relevance(mu, pi, rho_bar), 0, atol=1e-6)


def test_actions_that_are_never_taken():
  """They do not matter where pi never takes them, and else they decide."""
  np.testing.assert_allclose(
      _relevance([.5, .5, 0.], [.25, .75, 0.]),
      _relevance([.5, .5], [.25, .75]))
  np.testing.assert_allclose(
      _relevance([.5, .25, .25], [.25, .75, 0.]),
      _slow_relevance([.5, .25], [.25, .75], 1.), rtol=1e-5)
  assert _relevance([.5, .5, 0.], [.25, .5, .25]) == np.inf
  assert _relevance([1., 0.], [0., 1.]) == np.inf


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
    trust = (_slow_relevance(mu, pi, rho_bar) < b).astype(float)
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


def _inputs_of_equation_7(spread):
  return _random_inputs(seed=1, num_steps=8, batch_size=5, spread=spread)


@pytest.mark.parametrize('spread', [1., 3.])
@pytest.mark.parametrize('lambda_', [1., .7])
@pytest.mark.parametrize('rho_bar, rho_pg_bar', [(1., 1.), (2., .5)])
@pytest.mark.parametrize('b', [1e-3, .05, .2, 2.])
def test_targets_and_advantages_are_those_of_equation_7(
    b, rho_bar, rho_pg_bar, lambda_, spread):
  inputs = _inputs_of_equation_7(spread)
  found = vtrace.from_logits(
      **inputs, clip_rho_threshold=rho_bar, clip_pg_rho_threshold=rho_pg_bar,
      lambda_=lambda_, trust_region_threshold=b)
  vs, advantages = _slow_trusted(inputs, b, rho_bar, rho_pg_bar, lambda_)
  np.testing.assert_allclose(found.vs, vs, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
      found.pg_advantages, advantages, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('spread', [1., 3.])
@pytest.mark.parametrize('b', [.05, .2])
def test_some_states_are_left_out_in_that_test(b, spread):
  inputs = _inputs_of_equation_7(spread)
  relevance = vtrace.behaviour_relevance(
      inputs['behaviour_policy_logits'], inputs['target_policy_logits'])
  assert .1 < np.mean(relevance < b) < .9


def _other_divergences(mu, pi, rho_bar):
  """Those that might be taken for the relevance."""
  implied = _implied(mu, pi, rho_bar)
  return {'KL(implied || pi)': _kl(implied, pi), 'KL(pi || mu)': _kl(pi, mu),
          'KL(mu || pi)': _kl(mu, pi)}


@pytest.mark.parametrize('rho_bar', [1., 2.])
@pytest.mark.parametrize('b', [.05, .2])
def test_another_divergence_leaves_out_others_in_that_test(b, rho_bar):
  inputs = _inputs_of_equation_7(spread=3.)
  mu, pi = (_softmax(inputs[f'{name}_policy_logits'].astype(np.float64))
            for name in ('behaviour', 'target'))
  trusted = _slow_relevance(mu, pi, rho_bar) < b
  for name, divergence in _other_divergences(mu, pi, rho_bar).items():
    assert (trusted != (divergence < b)).any(), name


@pytest.mark.parametrize('shape', [(4, 1), (1, 4)])
def test_the_trust_region_is_of_the_divergence_from_pi(shape):
  """KL(pi || implied) < b, where KL(implied || pi) leaves out other states."""
  b = .2
  mu = np.array([[1 - 1e-6, 1e-6], [.01, .99], [.5, .5], [.99, .01]])
  pi = np.array([[.95, .05], [.999, .001], [.55, .45], [.01, .99]])
  trusted = [False, True, True, False]
  np.testing.assert_array_equal(_slow_relevance(mu, pi, 1.) < b, trusted)
  others = _other_divergences(mu, pi, 1.)
  np.testing.assert_array_equal(
      others['KL(implied || pi)'] < b, [True, False, True, False])
  np.testing.assert_array_equal(
      others['KL(pi || mu)'] < b, [False, False, True, False])

  logits = lambda policy: np.log(policy).reshape(*shape, 2).astype(np.float32)
  zeros = np.zeros(shape, np.float32)
  found = vtrace.from_logits(
      logits(mu), logits(pi), np.zeros(shape, np.int32), discounts=zeros,
      rewards=zeros + 1., values=zeros, bootstrap_value=zeros[0],
      trust_region_threshold=b)
  expected = trusted * np.minimum(1., pi / mu)[:, 0]
  for outcome in (found.vs, found.pg_advantages):
    np.testing.assert_allclose(outcome, expected.reshape(shape), rtol=1e-5)


@pytest.mark.parametrize('rho_bar, num_left_out', [(1., 2), (np.inf, 0)])
def test_where_actions_are_never_taken_targets_are_those_of_equation_7(
    rho_bar, num_left_out):
  """Truncation leaves such states out, and without it none is."""
  inputs = _random_inputs(seed=1, num_steps=4, batch_size=1)
  logits = inputs['behaviour_policy_logits']
  logits[:] = inputs['target_policy_logits'] + .01 * logits
  logits[1:3, 0, 0] = -np.inf
  inputs['actions'][1:3] = 1
  relevance = vtrace.behaviour_relevance(
      logits, inputs['target_policy_logits'], rho_bar)
  assert np.isinf(relevance).sum() == num_left_out
  found = vtrace.from_logits(
      **inputs, clip_rho_threshold=rho_bar, clip_pg_rho_threshold=2.,
      trust_region_threshold=.2)
  with np.errstate(divide='ignore'):
    vs, advantages = _slow_trusted(inputs, .2, rho_bar, 2., 1.)
  np.testing.assert_allclose(found.vs, vs, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
      found.pg_advantages, advantages, rtol=1e-4, atol=1e-5)


def _assert_same(found, expected):
  for name, a, b in zip(found._fields, found, expected):
    np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize('rho_bar', [None, 1., 2.])
def test_an_infinite_threshold_is_v_trace_to_the_bit(rho_bar):
  inputs = _random_inputs(seed=2, spread=5.)
  _assert_same(*(
      vtrace.from_logits(**inputs, clip_rho_threshold=rho_bar,
                         trust_region_threshold=b) for b in (np.inf, None)))


def test_an_infinite_threshold_keeps_what_is_infinitely_far():
  """As where mu never takes an action that pi takes."""
  inputs = _random_inputs(seed=2)
  inputs['behaviour_policy_logits'][0, 0, 1:] = -np.inf
  inputs['actions'][0, 0] = 0
  relevance = vtrace.behaviour_relevance(
      inputs['behaviour_policy_logits'], inputs['target_policy_logits'], 1.)
  assert np.isinf(relevance[0, 0]) and np.isfinite(relevance[1:]).all()
  _assert_same(*(
      vtrace.from_logits(**inputs, trust_region_threshold=b)
      for b in (np.inf, None)))


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
_STEPS = 2
_all_seeds = pytest.mark.parametrize('seed', range(15))
_all_rho_bars = pytest.mark.parametrize(
    'rho_bar, pg_rho_bar', [(1., 2.), (1.5, .5)])


class _Mdp:
  """A random MDP, and what is known of it by linear solves in float64.

  Policies are [STATES, ACTIONS], the behaviour policies mu_z are
  [BEHAVIOURS, STATES, ACTIONS], and `trust` is a bool [BEHAVIOURS, STATES].
  """

  def __init__(self, seed):
    rng = np.random.default_rng(seed)
    self.transitions = rng.dirichlet(
        np.full(_STATES, .5), (_STATES, _ACTIONS))
    self.rewards = rng.normal(size=(_STATES, _ACTIONS))
    self.pi = rng.dirichlet(np.ones(_ACTIONS), _STATES)
    self.mu = .9 * rng.dirichlet(
        np.ones(_ACTIONS), (_BEHAVIOURS, _STATES)) + .1 / _ACTIONS
    self.estimate = rng.normal(size=_STATES)
    self.random_trust = rng.random((_BEHAVIOURS, _STATES)) < .6

  def truncated(self, rho_bar):
    """mu min(rho_bar, rho), [BEHAVIOURS, STATES, ACTIONS]."""
    return np.minimum(rho_bar * self.mu, self.pi)

  def value_of(self, policy):
    transitions = np.einsum('sa,sat->st', policy, self.transitions)
    rewards = (policy * self.rewards).sum(-1)
    return np.linalg.solve(np.eye(_STATES) - _GAMMA * transitions, rewards)

  def implied_values(self, rho_bar):
    """V^z, to which V-trace leads without trust, [BEHAVIOURS, STATES]."""
    return np.array([self.value_of(policy) for policy in _implied(
        self.mu, self.pi, rho_bar)])

  def q_values(self, next_values):
    """[..., STATES, ACTIONS]."""
    return self.rewards + _GAMMA * np.einsum(
        'sat,...t->...sa', self.transitions, next_values)

  def returns(self, values, trust, rho_bar):
    """Equation 7 in expectation over endless trajectories of each mu_z.

    It is the solution of a recursion, in which trust is 0 or 1:

        G = V + trust E[min(rho_bar, rho) (r + gamma V' - V)
                        + gamma min(1, rho) (G' - V')]

    Args:
      values: [STATES], V.
      trust: See above.
      rho_bar: A float.

    Returns:
      [BEHAVIOURS, STATES].
    """
    deltas = (self.truncated(rho_bar) * (
        self.q_values(values) - values[:, None])).sum(-1)
    traces = np.einsum('zsa,sat->zst', self.truncated(1.), self.transitions)
    return values + np.linalg.solve(
        np.eye(_STATES) - _GAMMA * trust[..., None] * traces,
        (trust * deltas)[..., None])[..., 0]

  def trusted_fixed_point(self, trust, rho_bar):
    """The V that is the mean of its own returns of the mu_z trusted there.

    Where none is trusted, it stays at the estimate.
    """
    def update(values):
      return np.where(
          trust.any(0), _mean_of_trusted(self.returns(values, trust, rho_bar),
                                         trust), self.estimate)

    offset = update(np.zeros(_STATES))
    matrix = np.transpose([update(unit) - offset for unit in np.eye(_STATES)])
    return np.linalg.solve(np.eye(_STATES) - matrix, offset)

  def found_by_the_project(self, values, returns, mask, **settings):
    """Means of targets and advantages over all trajectories of `_STEPS` steps.

    Another step, on policy and to the end of the episode, gives the last state
    the target that is expected of it. So only if no target is wrong are all
    those of `returns`.

    Args:
      values: [STATES], V.
      returns: [BEHAVIOURS, STATES], expected targets.
      mask: The threshold of the trust region; or what is trusted.
      **settings: Further arguments of the functions of `vtrace`.

    Returns:
      Targets [BEHAVIOURS, STATES]; advantages times the probability of their
      action, [BEHAVIOURS, STATES, ACTIONS].
    """
    z, *path = np.indices(
        (_BEHAVIOURS, _STATES) + (_ACTIONS, _STATES) * _STEPS).reshape(
            2 + 2 * _STEPS, -1)
    states, a = np.array(path[::2]), np.array(path[1::2])
    s, last_state = states[:-1], states[-1]
    mu, pi = self.mu[z, s], self.pi[s]
    probabilities = np.prod(
        self.mu[z, s, a] * self.transitions[s, a, states[1:]], 0)

    def add_step(steps, last):
      return np.append(steps, np.full_like(steps[:1], last), 0)

    settings.update(
        discounts=add_step(np.full(a.shape, _GAMMA), 0.),
        rewards=add_step(self.rewards[s, a], returns[z, last_state]),
        values=values[states], bootstrap_value=np.zeros(len(z)))
    if np.ndim(mask):
      weights = mask[z, s] * self.pi[s, a] / self.mu[z, s, a]
      with np.errstate(divide='ignore'):
        found = vtrace.from_importance_weights(
            np.log(add_step(weights, 1.)), **settings)
    else:
      found = vtrace.from_logits(
          add_step(np.log(mu), 0.), add_step(np.log(pi), 0.), add_step(a, 0),
          trust_region_threshold=mask, **settings)

    def mean(outcome):
      result = np.zeros([_BEHAVIOURS, _STATES, _ACTIONS])
      np.add.at(result, (z, s[0], a[0]), probabilities * outcome[0].numpy())
      return result

    return mean(found.vs).sum(-1), mean(found.pg_advantages)

  def check_the_project(self, values, trust, rho_bar, pg_rho_bar, b=None):
    """Asserts that the project finds what equation 7 expects.

    Args:
      values: [STATES], V.
      trust: See above.
      rho_bar: A float, may be infinite.
      pg_rho_bar: The same for the policy gradient.
      b: A threshold, by which the project finds out what to trust. With None
        it is told.

    Returns:
      Expected targets, see `returns`.
    """
    returns = self.returns(values, trust, rho_bar)
    advantages = trust[..., None] * self.truncated(pg_rho_bar) * (
        self.q_values(returns) - values[:, None])
    found = self.found_by_the_project(
        values, returns, trust if b is None else b, clip_rho_threshold=rho_bar,
        clip_pg_rho_threshold=pg_rho_bar)
    for actual, expected in zip(found, (returns, advantages)):
      np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    return returns

  def trust_region(self, rho_bar):
    """Returns a threshold that rejects half of all, and what it leaves."""
    relevance = _slow_relevance(self.mu, self.pi, rho_bar)
    b = np.median(relevance)
    # In float32 the same are rejected.
    assert np.abs(relevance - b).min() > 1e-5
    return b, relevance < b


def _mean_of_trusted(outcomes, trust):
  """[BEHAVIOURS, STATES] to [STATES]; 0 where none is trusted."""
  return (trust * outcomes).sum(0) / np.maximum(trust.sum(0), 1)


@_all_seeds
def test_proposition_4(seed):
  """Without truncation, any trust region is nearer to the value of pi."""
  mdp = _Mdp(seed)
  trust = mdp.random_trust
  returns = mdp.check_the_project(mdp.estimate, trust, np.inf, np.inf)
  value = mdp.value_of(mdp.pi)
  bound = _GAMMA * np.abs(mdp.estimate - value).max()
  distance = np.abs(_mean_of_trusted(returns, trust) - value)
  assert distance[trust.any(0)].max() <= bound + 1e-12


@_all_seeds
@_all_rho_bars
def test_proposition_5(seed, rho_bar, pg_rho_bar):
  """Towards the values of the implied policies; with <=, where < is printed."""
  mdp = _Mdp(seed)
  b, trust = mdp.trust_region(rho_bar)
  returns = mdp.check_the_project(
      mdp.estimate, trust, rho_bar, pg_rho_bar, b)
  implied_values = mdp.implied_values(rho_bar)
  # The bound of IMPALA's appendix A.1, from the first step alone.
  rates = 1 - (1 - _GAMMA) * mdp.truncated(rho_bar).sum(-1).min(-1)
  bounds = rates * np.abs(mdp.estimate - implied_values).max(-1)
  distance = np.abs(_mean_of_trusted(returns - implied_values, trust))
  assert (distance <= (trust * bounds[:, None]).max(0) + 1e-12).all()


@_all_seeds
@_all_rho_bars
def test_where_a_trust_region_leads(seed, rho_bar, pg_rho_bar):
  """Not to the mean of the values of the implied policies that are trusted.

  States that are left out bootstrap from the estimate that all have in common.
  """
  mdp = _Mdp(seed)
  b, trust = mdp.trust_region(rho_bar)
  fixed_point = mdp.trusted_fixed_point(trust, rho_bar)
  returns = mdp.check_the_project(fixed_point, trust, rho_bar, pg_rho_bar, b)
  states = trust.any(0)
  np.testing.assert_allclose(
      _mean_of_trusted(returns, trust)[states], fixed_point[states], atol=1e-12)
  other = _mean_of_trusted(mdp.implied_values(rho_bar), trust)
  assert np.abs(fixed_point - other)[states].max() > 1e-3
