"""The contextual priority tree, against a recursion over a dict of keys."""

from hypothesis import settings
from hypothesis import stateful
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent.replay import priority_tree

_NUM_LEAVES = 16


def _node(priorities, first, size):
  """Count and mean (None if unknown) of the keys at `size` leaves.

  Args:
    priorities: A dict of leaf to priority, None if it is unknown.
  """
  if size == 1:
    return (1, priorities[first]) if first in priorities else (0, None)
  half = size // 2
  parts = [_node(priorities, first, half),
           _node(priorities, first + half, half)]
  count = sum(c for c, _ in parts)
  known = [(c, m) for c, m in parts if m is not None]
  if not known:
    return count, None
  return count, sum(c * m for c, m in known) / sum(c for c, _ in known)


def _probability(priorities, leaf, first=0, size=_NUM_LEAVES):
  """The product of the shares of the parts on the way down to a leaf."""
  if size == 1:
    return 1.
  half = size // 2
  starts = first, first + half
  parts = [_node(priorities, start, half) for start in starts]
  _, mean = _node(priorities, first, size)
  weights = [
      c * (1. if mean is None else mean if m is None else m) for c, m in parts]
  i = int(leaf >= starts[1])
  return weights[i] / sum(weights) * _probability(
      priorities, leaf, starts[i], half)


_leaves = st.lists(st.integers(0, _NUM_LEAVES - 1), min_size=1, max_size=5,
                   unique=True)


class TreeMachine(stateful.RuleBasedStateMachine):
  """Adds, removes and sets; after each, all probabilities are compared."""

  def __init__(self):
    super().__init__()
    self.tree = priority_tree.ContextualPriorityTree(_NUM_LEAVES, seed=0)
    self.priorities = {}

  @stateful.rule(leaves=_leaves)
  def add(self, leaves):
    self.tree.add(leaves)
    self.priorities.update(dict.fromkeys(leaves))

  @stateful.rule(leaves=_leaves)
  def remove(self, leaves):
    self.tree.remove(leaves)
    for leaf in leaves:
      self.priorities.pop(leaf, None)

  @stateful.precondition(lambda self: self.priorities)
  @stateful.rule(data=st.data())
  def set(self, data):
    leaves = data.draw(st.lists(
        st.sampled_from(sorted(self.priorities)), min_size=1, max_size=5))
    values = data.draw(st.lists(
        st.floats(1e-6, 1e3), min_size=len(leaves), max_size=len(leaves)))
    self.tree.set(leaves, values)
    self.priorities.update(zip(leaves, values))

  @stateful.invariant()
  def agrees(self):
    leaves = sorted(self.priorities)
    assert len(self.tree) == len(leaves)
    assert self.tree.num_known == sum(
        p is not None for p in self.priorities.values())
    if not leaves:
      return
    actual = self.tree.probabilities(leaves)
    np.testing.assert_allclose(
        actual, [_probability(self.priorities, leaf) for leaf in leaves],
        rtol=1e-12)
    assert actual.sum() == pytest.approx(1.)
    mixed = self.tree.probabilities(leaves, uniform_share=.3)
    np.testing.assert_allclose(mixed, .3 / len(leaves) + .7 * actual)
    # The importance weights leave the mean of whatever is drawn as it is.
    weights = 1 / (len(leaves) * mixed)
    assert mixed @ weights == pytest.approx(1.)
    assert weights.max() <= 1 / .3 + 1e-9


TestTree = TreeMachine.TestCase
TestTree.settings = settings(
    max_examples=25, stateful_step_count=15)


def _filled(seed):
  """A tree with gaps, known and unknown keys, and the dict of them."""
  rng = np.random.default_rng(seed)
  leaves = np.sort(rng.choice(_NUM_LEAVES, 11, replace=False))
  tree = priority_tree.ContextualPriorityTree(_NUM_LEAVES, seed)
  tree.add(leaves)
  known = leaves[::2]
  values = rng.uniform(.1, 3., size=len(known))
  tree.set(known, values)
  return tree, dict.fromkeys(leaves.tolist()) | dict(zip(known, values))


# The 99.99 % quantile of a chi-square variable of 10 degrees of freedom.
_CHI_SQUARE = 35.564


@pytest.mark.parametrize('uniform_share', [0., .25, 1.])
def test_draws_have_these_probabilities(uniform_share):
  tree, priorities = _filled(1)
  leaves = np.array(sorted(priorities))
  probabilities = uniform_share / len(leaves) + (1 - uniform_share) * np.array(
      [_probability(priorities, leaf) for leaf in leaves])
  size = 200_000
  counts = np.bincount(tree.sample(size, uniform_share),
                       minlength=_NUM_LEAVES)
  assert counts.sum() == counts[leaves].sum() == size
  expected = size * probabilities
  assert ((counts[leaves] - expected) ** 2 / expected).sum() < _CHI_SQUARE
  np.testing.assert_allclose(
      tree.probabilities(leaves, uniform_share), probabilities)


def test_without_a_known_priority_draws_are_uniform():
  tree = priority_tree.ContextualPriorityTree(8, seed=2)
  tree.add([1, 2, 6])
  np.testing.assert_allclose(tree.probabilities([1, 2, 6]), 1 / 3)
  counts = np.bincount(tree.sample(3000), minlength=8)
  assert counts[[1, 2, 6]].min() > 900 and counts.sum() == 3000


def test_draws_are_independent():
  tree, priorities = _filled(3)
  pairs = np.stack([tree.sample(2) for _ in range(4000)])
  same = (pairs[:, 0] == pairs[:, 1]).mean()
  probabilities = tree.probabilities(sorted(priorities))
  assert same == pytest.approx((probabilities ** 2).sum(), abs=.03)


def test_an_unknown_priority_is_the_mean_of_those_near():
  """Figure 6's arithmetic: keys 1 to 3 get p4 / 3 + 2 p6 / 3 each."""
  tree = priority_tree.ContextualPriorityTree(8, seed=0)
  leaf_of_key = {1: 0, 2: 1, 3: 2, 4: 4, 5: 6, 6: 7}
  leaves = list(leaf_of_key.values())
  tree.add(leaves)
  p4, p6 = 2., 5.
  tree.set([leaf_of_key[4], leaf_of_key[6]], [p4, p6])
  unknown = p4 / 3 + 2 * p6 / 3
  expected = np.array([unknown] * 3 + [p4, p6, p6])
  np.testing.assert_allclose(
      tree.probabilities(leaves), expected / expected.sum())


def test_once_all_are_known_draws_are_in_proportion():
  tree = priority_tree.ContextualPriorityTree(64, seed=0)
  values = np.random.default_rng(4).uniform(1e-6, 1., 64)
  tree.add(np.arange(64))
  tree.set(np.arange(64), values)
  np.testing.assert_allclose(
      tree.probabilities(np.arange(64)), values / values.sum(), rtol=1e-12)


@pytest.mark.parametrize('num_leaves', [0, 3, 12])
def test_leaves_are_a_power_of_two(num_leaves):
  with pytest.raises(ValueError, match=f'{num_leaves} leaves'):
    priority_tree.ContextualPriorityTree(num_leaves, seed=0)


def test_a_tree_of_one_leaf():
  tree = priority_tree.ContextualPriorityTree(1, seed=0)
  tree.add([0])
  assert tree.sample(3).tolist() == [0, 0, 0]
  assert tree.probabilities([0]).tolist() == [1.]
