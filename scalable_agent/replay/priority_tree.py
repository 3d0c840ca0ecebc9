"""Draws keys by priorities, some of which are not known yet.

Gruslys et al., "The Reactor", 2018, https://arxiv.org/abs/1704.04651, sections
3.3 and 6.3: a contextual priority tree. A key whose priority is unknown counts
as those near it do. Keys are near each other if their leaves' numbers are.

    each node   a count of keys, and the mean of their priorities or unknown
    unknown     of two children, one takes the mean of the other
    a descent   goes left or right in proportion to count times mean

So a key is drawn in proportion to its priority, or to the mean of the smallest
subtree around it that knows one.
"""

import itertools
import math

import numpy as np

# Of a count and a mean.
NODE_BYTES = 4 + 8


class ContextualPriorityTree:
  """A perfect binary tree in arrays, whose leaves are numbered by the caller.

  Parents are computed anew from their children whenever one of these changes,
  so that no rounding errors gather.
  """

  def __init__(self, num_leaves, seed):
    """Initializes a tree without keys.

    Args:
      num_leaves: How many leaves there are, a power of two.
      seed: Of what is drawn, an int.

    Raises:
      ValueError: `num_leaves` is no power of two.
    """
    if num_leaves < 1 or num_leaves & (num_leaves - 1):
      raise ValueError(f'There are {num_leaves} leaves, expected a power of 2.')
    self._num_leaves = num_leaves
    self._num_levels = num_leaves.bit_length() - 1
    # Of node i, the children are 2 i and 2 i + 1; node 1 is the root. One node
    # of a `memoryview` is read and written sooner than one of an array.
    # Zeros of `np.zeros` take no memory until they are written.
    self._counts = memoryview(np.full([2 * num_leaves], 0, np.int32))
    self._means = memoryview(np.full([2 * num_leaves], np.nan))
    self._num_known = 0
    self._random = np.random.default_rng(seed)

  def __len__(self):
    """Returns the number of keys."""
    return self._counts[1]

  @property
  def num_known(self):
    """How many of the keys have a known priority."""
    return self._num_known

  def add(self, leaves):
    """Puts keys of unknown priority at leaves, int [K]."""
    self._write(leaves, 1, itertools.repeat(math.nan))

  def remove(self, leaves):
    """Takes away the keys at leaves, int [K], where there are any."""
    self._write(leaves, 0, itertools.repeat(math.nan))

  def set(self, leaves, priorities):
    """Gives keys priorities.

    Args:
      leaves: int [K], where there are keys.
      priorities: Positive floats [K]. Of a leaf that occurs twice, the last
        one counts.
    """
    self._write(leaves, 1, np.asarray(priorities).tolist())

  def _write(self, leaves, count, means):
    nodes = self._nodes(leaves)
    for node, mean in zip(nodes, means):
      self._num_known += math.isnan(self._means[node]) - math.isnan(mean)
      self._counts[node] = count
      self._means[node] = mean
    for _ in range(self._num_levels):
      nodes = {node >> 1 for node in nodes}
      for node in nodes:
        left, left_mean, right, right_mean = self._children(node)
        total = left + right
        self._counts[node] = total
        # A child without keys counts for nothing, whatever mean it takes.
        self._means[node] = (
            (left * left_mean + right * right_mean) / max(total, 1))

  def _nodes(self, leaves):
    return (np.asarray(leaves, np.int64) + self._num_leaves).tolist()

  def _children(self, node):
    """Returns the count and mean of its left and of its right child.

    Where the mean of one is unknown, it has that of the other.
    """
    left, right = 2 * node, 2 * node + 1
    left_mean, right_mean = self._means[left], self._means[right]
    if math.isnan(left_mean):
      left_mean = right_mean
    elif math.isnan(right_mean):
      right_mean = left_mean
    return self._counts[left], left_mean, self._counts[right], right_mean

  def sample(self, count, uniform_share=0.):
    """Draws keys, independently of each other.

    Args:
      count: How many, K. There has to be a key.
      uniform_share: The probability with which a draw is uniform instead.

    Returns:
      int64 [K], their leaves.
    """
    leaves = np.empty([count], np.int64)
    numbers = self._random.random([1 + self._num_levels, count])
    for i, (first, *others) in enumerate(numbers.T.tolist()):
      leaves[i] = self._descend(first < uniform_share, others)
    return leaves

  def _descend(self, is_uniform, numbers):
    """Returns the leaf to which random numbers lead, one for each level."""
    node = 1
    for number in numbers:
      left, left_mean, right, right_mean = self._children(node)
      if not is_uniform and not math.isnan(left_mean):
        left *= left_mean
        right *= right_mean
      node = 2 * node + (number * (left + right) >= left)
    return node - self._num_leaves

  def probabilities(self, leaves, uniform_share=0.):
    """Returns how probable draws of keys are.

    Args:
      leaves: int [K], where there are keys.
      uniform_share: As for `sample`.

    Returns:
      float64 [K].
    """
    mean = self._means[1]
    relative = 1. if math.isnan(mean) else np.array(
        [self._priority(node) for node in self._nodes(leaves)]) / mean
    shares = uniform_share + (1. - uniform_share) * relative
    return np.full([len(leaves)], shares / len(self))

  def _priority(self, node):
    """Returns the mean of the smallest subtree around it that knows one."""
    while math.isnan(self._means[node]):
      node >>= 1
    return self._means[node]
