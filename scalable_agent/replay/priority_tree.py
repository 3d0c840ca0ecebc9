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
    # Of node i, the children are 2 i and 2 i + 1; node 1 is the root.
    # Zeros of `np.zeros` take no memory until they are written.
    self._counts = np.full([2 * num_leaves], 0, np.int32)
    self._means = np.full([2 * num_leaves], np.nan)
    self._num_known = 0
    self._random = np.random.default_rng(seed)

  def __len__(self):
    """Returns the number of keys."""
    return int(self._counts[1])

  @property
  def num_known(self):
    """How many of the keys have a known priority."""
    return self._num_known

  def add(self, leaves):
    """Puts keys of unknown priority at leaves, int [K]."""
    self._write(leaves, 1, np.nan)

  def remove(self, leaves):
    """Takes away the keys at leaves, int [K], where there are any."""
    self._write(leaves, 0, np.nan)

  def set(self, leaves, priorities):
    """Gives keys priorities.

    Args:
      leaves: int [K], where there are keys.
      priorities: Positive floats [K]. Of a leaf that occurs twice, the last
        one counts.
    """
    self._write(leaves, 1, priorities)

  def _write(self, leaves, count, means):
    nodes = np.asarray(leaves, np.int64) + self._num_leaves
    changed = np.unique(nodes)
    num_known = self._count_known(changed)
    self._counts[nodes] = count
    self._means[nodes] = means
    self._num_known += self._count_known(changed) - num_known
    for _ in range(self._num_levels):
      nodes = nodes >> 1
      counts, means = self._children(nodes)
      totals = counts.sum(0)
      self._counts[nodes] = totals
      # A child without keys counts for nothing, whatever mean it takes.
      self._means[nodes] = (counts * means).sum(0) / np.maximum(totals, 1)

  def _count_known(self, nodes):
    return int(np.count_nonzero(~np.isnan(self._means[nodes])))

  def _children(self, nodes):
    """Returns counts and means of the children of nodes, [2, K].

    Where the mean of one is unknown, it has that of the other.
    """
    children = np.stack([2 * nodes, 2 * nodes + 1])
    means = self._means[children]
    means = np.where(np.isnan(means), means[::-1], means)
    return self._counts[children], means

  def sample(self, count, uniform_share=0.):
    """Draws keys, independently of each other.

    Args:
      count: How many, K. There has to be a key.
      uniform_share: The probability with which a draw is uniform instead.

    Returns:
      int64 [K], their leaves.
    """
    nodes = np.ones([count], np.int64)
    is_uniform = self._random.random(count) < uniform_share
    for _ in range(self._num_levels):
      counts, means = self._children(nodes)
      weights = np.where(is_uniform | np.isnan(means), counts, counts * means)
      left, right = weights
      goes_right = self._random.random(count) * (left + right) >= left
      nodes = 2 * nodes + goes_right
    return nodes - self._num_leaves

  def probabilities(self, leaves, uniform_share=0.):
    """Returns how probable draws of keys are.

    Args:
      leaves: int [K], where there are keys.
      uniform_share: As for `sample`.

    Returns:
      float64 [K].
    """
    nodes = np.asarray(leaves, np.int64) + self._num_leaves
    priorities = self._means[nodes]
    for _ in range(self._num_levels):
      nodes = nodes >> 1
      priorities = np.where(np.isnan(priorities), self._means[nodes],
                            priorities)
    mean = self._means[1]
    relative = np.ones_like(priorities) if np.isnan(mean) else priorities / mean
    return (uniform_share + (1. - uniform_share) * relative) / len(self)
