"""Distributional Retrace against literal sums, and on small known worlds."""

import collections
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent.algorithms import retrace

_property = hypothesis.settings(max_examples=40)


def _hat(y, support):
  """The share of mass at y that each atom gets (Reactor, section 3.2)."""
  distance = support[1] - support[0]
  y = np.clip(y, support[0], support[-1])
  return np.maximum(0., 1. - np.abs(y - support) / distance)


def _slow_project(atoms, masses, support):
  result = np.zeros_like(support)
  for atom, mass in zip(atoms, masses):
    result += mass * _hat(atom, support)
  return result


def _project(atoms, masses, support):
  return retrace.project(
      tf.constant([atoms], tf.float64), tf.constant([masses], tf.float64),
      tf.constant([0]), 1, tf.constant(support, tf.float64))[0].numpy()


@pytest.mark.parametrize('atoms', [
    [-2., -1., 0., 1., 2.], [-1.75, -1.5, -.5, .25, 1.9], [2.] * 5, [-2.] * 5,
    [-9., -2.1, 2., 2.1, 50.], [.3] * 5])
def test_project(atoms):
  """On the grid, between its atoms, at both ends and beyond them."""
  support = np.linspace(-2., 2., 5)
  masses = np.array([.5, -.25, .75, -1., .125])
  expected = _slow_project(atoms, masses, support)
  np.testing.assert_allclose(
      _project(atoms, masses, support), expected, atol=1e-15)
  assert expected.sum() == pytest.approx(masses.sum())


def test_project_leaves_what_is_on_the_grid():
  support = np.linspace(-10., 10., 51)
  masses = np.random.default_rng(0).normal(size=51)
  np.testing.assert_allclose(
      _project(support, masses, support), masses, atol=1e-12)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_project_loses_no_nan(jit_compile):
  """Whoever gets the sum has to see that something is wrong."""
  project = tf.function(
      retrace.project, autograph=False, jit_compile=jit_compile)
  result = project(
      tf.constant([[0., np.nan], [1., 2.]]), tf.ones([2, 2]),
      tf.constant([0, 1]), tf.constant(2), tf.constant([0., 1., 2.]))
  assert np.isnan(result[0]).any()
  np.testing.assert_allclose(result[1], [0., 1., 1.])


def test_project_sums_by_row():
  support = tf.constant([0., 1., 2.])
  result = retrace.project(
      tf.constant([[0., 1., 2.], [.5, .5, 3.], [1., 1., 1.]]), tf.ones([3, 3]),
      tf.constant([1, 0, 1]), 3, support)
  np.testing.assert_allclose(
      result, [[1., 1., 1.], [1., 4., 1.], [0., 0., 0.]], atol=1e-6)


def _slow_retrace(q, pi, actions, log_mu, rewards, discounts, support, lambda_):
  """The sum over n and a with its coefficients alpha; for B = 1."""
  num_steps, num_actions = len(actions), pi.shape[-1]
  c = [lambda_ * min(1., pi[s, actions[s]] / np.exp(log_mu[s]))
       for s in range(num_steps)] + [0.]
  targets = np.zeros([num_steps, len(support)])
  sums = np.zeros([num_steps])
  for t in range(num_steps):
    for n in range(1, num_steps - t + 1):
      product = np.prod(c[t + 1:t + n])
      g = sum(np.prod(discounts[t:s]) * rewards[s] for s in range(t, t + n))
      gamma = np.prod(discounts[t:t + n])
      for a in range(num_actions):
        alpha = product * pi[t + n, a]
        if t + n < num_steps and a == actions[t + n]:
          alpha -= product * c[t + n]
        sums[t] += alpha
        for j, z in enumerate(support):
          targets[t] += alpha * q[t + n, a, j] * _hat(g + gamma * z, support)
  np.testing.assert_allclose(sums, 1.)
  return targets, np.array(c[:-1])


def _softmax(logits):
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


def _random_inputs(rng, num_steps, batch_size, num_actions, num_atoms):
  shape = num_steps, batch_size
  log_mu = np.log(_softmax(3 * rng.normal(size=[*shape, num_actions])))
  actions = rng.integers(num_actions, size=shape)
  return dict(
      target_probs=_softmax(rng.normal(
          size=[num_steps + 1, batch_size, num_actions, num_atoms])),
      target_policy=_softmax(3 * rng.normal(
          size=[num_steps + 1, batch_size, num_actions])),
      actions=actions.astype(np.int32),
      behaviour_log_probs=np.take_along_axis(
          log_mu, actions[..., None], -1)[..., 0],
      rewards=rng.normal(size=shape),
      discounts=np.where(rng.random(shape) < .3, 0., rng.uniform(.5, 1, shape)))


def _retrace(inputs, support, lambda_):
  returns = retrace.categorical_retrace(
      **inputs, support=support, lambda_=lambda_)
  return retrace.CategoricalRetraceReturns(*(v.numpy() for v in returns))


@_property
@hypothesis.given(
    st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 3),
    st.integers(1, 3), st.integers(2, 5), st.sampled_from([0., .5, 1.]))
def test_equals_the_sum_of_the_paper(
    seed, num_steps, batch_size, num_actions, num_atoms, lambda_):
  """For episodes that end inside, ratios near 0 and 20, returns that clip."""
  inputs = _random_inputs(np.random.default_rng(seed), num_steps, batch_size,
                          num_actions, num_atoms)
  support = np.linspace(-1.5, 2., num_atoms)
  returns = _retrace(inputs, support, lambda_)
  for b in range(batch_size):
    targets, traces = _slow_retrace(
        *(array[:, b] for array in inputs.values()), support, lambda_)
    np.testing.assert_allclose(returns.targets[:, b], targets, atol=1e-12)
    np.testing.assert_allclose(returns.traces[:, b], traces, atol=1e-12)


def test_entries_may_be_negative_and_sum_to_one():
  inputs = _random_inputs(np.random.default_rng(1), 6, 8, 3, 7)
  targets = _retrace(inputs, np.linspace(-3., 3., 7), 1.).targets
  assert targets.min() < -.02
  np.testing.assert_allclose(targets.sum(-1), 1.)


@pytest.mark.parametrize('lambda_', [0., .5, 1.])
def test_mean_is_scalar_retrace(lambda_):
  """On a support so wide that nothing is clipped (equations 3 and 4)."""
  inputs = _random_inputs(np.random.default_rng(2), 7, 4, 3, 21)
  inputs['target_probs'] = np.pad(
      inputs['target_probs'], [(0, 0)] * 3 + [(20, 20)])
  support = np.linspace(-60., 60., 61)
  returns = _retrace(inputs, support, lambda_)
  q = inputs['target_probs'] @ support
  v = (inputs['target_policy'] * q).sum(-1)
  q_taken = np.take_along_axis(q[:-1], inputs['actions'][..., None], -1)[..., 0]
  rewards, discounts = inputs['rewards'], inputs['discounts']
  expected = np.zeros_like(rewards)
  expected[-1] = rewards[-1] + discounts[-1] * v[-1]
  for t in reversed(range(6)):
    expected[t] = rewards[t] + discounts[t] * (
        v[t + 1] + returns.traces[t + 1] * (expected[t + 1] - q_taken[t + 1]))
  if lambda_ == 0.:
    np.testing.assert_allclose(expected, rewards + discounts * v[1:])
  np.testing.assert_allclose(returns.targets @ support, expected, atol=1e-10)
  assert returns.clipped.max() == 0.


def test_clipped_mass():
  """A reward that moves two of four atoms beyond the end."""
  inputs = dict(
      target_probs=np.full([2, 1, 1, 4], [.1, .2, .3, .4]),
      target_policy=np.ones([2, 1, 1]), actions=np.zeros([1, 1], np.int32),
      behaviour_log_probs=np.zeros([1, 1]), rewards=np.full([1, 1], 2.),
      discounts=np.ones([1, 1]))
  returns = _retrace(inputs, np.arange(4.), 1.)
  np.testing.assert_allclose(returns.clipped, [[.7]])
  np.testing.assert_allclose(returns.targets, [[[0., 0., .1, .9]]])


def test_clipped_mass_counts_by_its_size_and_at_both_ends():
  """mu is pi, so that c is 1: 1/4 - q(what was done) is the first mass."""
  probs = np.tile([[.1, .2, .3, .4], [.4, .3, .2, .1]], [3, 1, 1, 1])
  inputs = dict(
      target_probs=probs, target_policy=np.full([3, 1, 2], .5),
      actions=np.zeros([2, 1], np.int32),
      behaviour_log_probs=np.full([2, 1], np.log(.5)),
      rewards=np.array([[2.], [-2.]]), discounts=np.ones([2, 1]))
  returns = _retrace(inputs, np.arange(4.), 1.)
  # Of the first target, .15, .05, -.05 and -.15 lie at 2 to 5, and four times
  # 1/4 at 0 to 3. Of the second, four times 1/4 lie at -2 to 1.
  np.testing.assert_allclose(returns.clipped, [[.2], [.5]])
  np.testing.assert_allclose(
      returns.targets, [[[.25, .25, .4, .1]], [[.75, .25, 0., 0.]]],
      atol=1e-12)


def test_no_gradient_flows_through_targets():
  inputs = {name: tf.constant(array) for name, array in _random_inputs(
      np.random.default_rng(3), 3, 2, 2, 4).items()}
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    returns = retrace.categorical_retrace(**inputs, support=np.arange(4.))
    total = sum(tf.reduce_sum(value) for value in returns)
  assert not any(g is not None for g in tape.gradient(total, inputs).values())


@pytest.mark.parametrize('jit_compile', [False, True])
def test_as_a_compiled_graph_in_float32(jit_compile):
  inputs = _random_inputs(np.random.default_rng(4), 5, 3, 2, 6)
  support = np.linspace(-2., 2., 6)
  narrow = {name: array if array.dtype == np.int32 else
            array.astype(np.float32) for name, array in inputs.items()}
  compiled = tf.function(
      lambda inputs: retrace.categorical_retrace(**inputs, support=support),
      autograph=False, jit_compile=jit_compile)
  for actual, expected in zip(compiled(narrow), _retrace(inputs, support, 1.)):
    assert actual.dtype == tf.float32
    np.testing.assert_allclose(actual, expected, atol=2e-5)


# Small worlds: `outcomes[s][a]` is a list of (probability, reward, next state,
# whether the episode ends). After an end the next state is the first.
_Trajectories = collections.namedtuple(
    '_Trajectories', 'probs states actions rewards done')


def _enumerate(outcomes, mu, start, num_steps):
  """All trajectories of `num_steps` steps from a state, [T(+1), B] arrays."""
  partial = [(1., [start], [], [], [])]
  for _ in range(num_steps):
    partial = [
        (p * mu[states[-1], a] * q, states + [after], actions + [a],
         rewards + [reward], done + [end])
        for p, states, actions, rewards, done in partial
        for a, results in enumerate(outcomes[states[-1]])
        for q, reward, after, end in results]
  return _Trajectories(*(np.array(field).T for field in zip(*partial)))


def _targets(trajectories, q, pi, mu, gamma, support, lambda_):
  states, actions = trajectories.states, trajectories.actions
  return retrace.categorical_retrace(
      q[states], pi[states], actions.astype(np.int32),
      np.log(mu[states[:-1], actions]), trajectories.rewards.astype(np.float64),
      np.where(trajectories.done, 0., gamma), support, lambda_).targets.numpy()


def _episodic_world(rng):
  """Three layers of two states; two results of each action, some an end."""
  outcomes = []
  for layer, _ in itertools.product(range(3), range(2)):
    outcomes.append([])
    for _ in range(2):
      p = rng.uniform(.2, .8)
      results = []
      for prob in (p, 1 - p):
        end = layer == 2 or rng.random() < .2
        after = 0 if end else 2 * (layer + 1) + rng.integers(2)
        results.append((prob, int(rng.integers(-2, 3)), after, end))
      outcomes[-1].append(results)
  return outcomes


def _return_distributions(outcomes, pi, support):
  """The distribution of pi's return for each state and action, [S, A, m]."""
  size = len(support)
  q = np.zeros([len(outcomes), 2, size])
  zero = np.eye(size)[list(support).index(0.)]
  for s in reversed(range(len(outcomes))):
    for a, results in enumerate(outcomes[s]):
      for prob, reward, after, end in results:
        q[s, a] += prob * np.roll(zero if end else pi[after] @ q[after], reward)
  return q


@hypothesis.settings(max_examples=12)
@hypothesis.given(st.integers(0, 2**31), st.integers(1, 5),
                  st.sampled_from([0., .5, .9, 1.]))
def test_expectation_over_all_trajectories_is_the_return_distribution(
    seed, num_steps, lambda_):
  """For any behaviour, lambda and length, across the ends of episodes."""
  rng = np.random.default_rng(seed)
  outcomes = _episodic_world(rng)
  pi, mu = (_softmax(2 * rng.normal(size=[6, 2])) for _ in range(2))
  support = np.arange(-6., 7.)
  q = _return_distributions(outcomes, pi, support)
  np.testing.assert_allclose(q.sum(-1), 1.)
  start = int(rng.integers(6))
  trajectories = _enumerate(outcomes, mu, start, num_steps)
  targets = _targets(trajectories, q, pi, mu, 1., support, lambda_)
  for t in range(num_steps):
    for s, a in itertools.product(range(6), range(2)):
      probs = trajectories.probs * (
          (trajectories.states[t] == s) & (trajectories.actions[t] == a))
      np.testing.assert_allclose(
          probs @ targets[t], probs.sum() * q[s, a], atol=1e-14)


def test_trajectories_of_the_worlds_cross_ends_and_have_negative_targets():
  """So that the test above means something."""
  rng = np.random.default_rng(5)
  outcomes = _episodic_world(rng)
  pi, mu = (_softmax(2 * rng.normal(size=[6, 2])) for _ in range(2))
  support = np.arange(-6., 7.)
  trajectories = _enumerate(outcomes, mu, 0, 5)
  assert trajectories.done[:-1].any(0).mean() > .5
  assert trajectories.probs.sum() == pytest.approx(1.)
  targets = _targets(
      trajectories, _return_distributions(outcomes, pi, support), pi, mu, 1.,
      support, 1.)
  assert targets.min() < -.05


class _SmallWorld:
  """3 states, 2 actions, discounts of .9, no end, and a policy.

  Attributes:
    true_q: The values of the policy, [3, 2].
  """

  def __init__(self, rng):
    transitions = rng.dirichlet(np.ones(3), size=[3, 2])
    rewards = rng.uniform(-1, 1, size=[3, 2])
    self._outcomes = [
        [[(transitions[s, a, after], rewards[s, a], after, False)
          for after in range(3)] for a in range(2)] for s in range(3)]
    self._pi = _softmax(rng.normal(size=[3, 2]))
    following = np.einsum('sat,tb->satb', transitions, self._pi).reshape(6, 6)
    self.true_q = np.linalg.solve(
        np.eye(6) - .9 * following, rewards.ravel()).reshape(3, 2)

  def make_backup(self, mu, lambda_):
    """Returns a function from values, [3, 2], to their expected targets.

    Those are over all trajectories of 3 steps, in which mu acts.
    """
    trajectories = _Trajectories(*map(np.hstack, zip(*(
        _enumerate(self._outcomes, mu, s, 3) for s in range(3)))))
    support = np.array([-40., 40.])

    def backup(q):
      probs = np.stack([.5 - q / 80, .5 + q / 80], -1)
      targets = _targets(trajectories, probs, self._pi, mu, .9, support,
                         lambda_)[0] @ support
      result = np.zeros([3, 2])
      for s, a in itertools.product(range(3), range(2)):
        weights = trajectories.probs * (
            (trajectories.states[0] == s) & (trajectories.actions[0] == a))
        result[s, a] = weights @ targets / weights.sum()
      return result

    return backup


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.integers(0, 2**31), st.sampled_from([0., 1., 5.]),
                  st.sampled_from([0., .5, .9, 1.]))
def test_values_of_a_policy_are_the_fixed_point(seed, scale, lambda_):
  """Whoever acts, at random or nearly always the same, and for any lambda."""
  rng = np.random.default_rng(seed)
  world = _SmallWorld(rng)
  backup = world.make_backup(
      _softmax(scale * rng.normal(size=[3, 2])), lambda_)
  np.testing.assert_allclose(backup(world.true_q), world.true_q, atol=1e-12)


def test_values_of_a_policy_are_reached():
  rng = np.random.default_rng(6)
  world = _SmallWorld(rng)
  backup = world.make_backup(_softmax(rng.normal(size=[3, 2])), 1.)
  q = np.zeros([3, 2])
  for _ in range(60):
    q = backup(q)
  np.testing.assert_allclose(q, world.true_q, atol=1e-5)
