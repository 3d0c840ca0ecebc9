"""Prioritized replay of sequences, at a fixed ratio of acting to learning.

    TrajectoryQueue -> PrioritizedSequences -> StagingArea -> learner
                         |   ^     |   ^                        |
                        add read sample set <---- update -------'
                         v   |     v   |
                  SequenceStore  ContextualPriorityTree

Gruslys et al., "The Reactor", 2018, https://arxiv.org/abs/1704.04651, sections
3.3 and 3.4. Every batch is drawn. For each batch a fixed number of steps from
actors is added: the bounded queue holds the actors to that.
"""

import fractions
import threading

import numpy as np

from scalable_agent import trajectories
from scalable_agent.process import errors
from scalable_agent.replay import finite
from scalable_agent.replay import priority_tree
from scalable_agent.replay import sequence_store

# The most bytes of the tree for each step. Rounded up to a power of two, there
# are up to four leaves for each row, and as many nodes above them.
TREE_BYTES_PER_STEP = 8 * priority_tree.NODE_BYTES
# So that every sequence can be drawn.
_LEAST_PRIORITY = 1e-6
# If none of this many unrolls could be kept, the run ends.
_MANY_LEFT_OUT = 100


class PrioritizedSequences:
  """A source with priorities.

  One thread at a time may call `get`, and another `update` and `take_gauges`.
  """

  def __init__(self, source, num_steps, min_steps, unroll_length,
               steps_per_update, uniform_share, seed, times,
               has_stacks, num_environments):
    """Initializes the source with an empty store.

    Args:
      source: Where new unrolls come from, such as a `TrajectoryQueue`.
      num_steps: Agent steps to keep, an int.
      min_steps: Agent steps to take before the first batch, an int.
      unroll_length: T, of unrolls and sequences.
      steps_per_update: Agent steps to take for each batch after that, a number;
        a `fractions.Fraction` where a float would not be exact.
      uniform_share: The probability that a sequence is drawn uniformly and not
        by priority.
      seed: Of what is drawn, an int.
      times: A `timing.StageTimes`.
      has_stacks: As for `sequence_store.SequenceStore`.
      num_environments: As for `sequence_store.lane_length`.

    Raises:
      ValueError: See `sequence_store.SequenceStore`.
    """
    self._source = source
    self._store = sequence_store.SequenceStore(
        num_steps, unroll_length, has_stacks, num_environments)
    # Twice as many leaves as rows. Then what is right of the newest key in its
    # half of the tree is empty, and the neighbours of new keys are the newest
    # of the others and not the oldest.
    self._num_leaves = 2 << (self._store.num_rows - 1).bit_length()
    self._tree = priority_tree.ContextualPriorityTree(self._num_leaves, seed)
    self._unroll_length = unroll_length
    self._min_steps = min_steps
    self._steps_per_update = fractions.Fraction(steps_per_update)
    self._uniform_share = uniform_share
    self._times = times
    self._filter = finite.FiniteFilter()
    self._num_steps = 0
    self._credit = fractions.Fraction(0)  # As floats, steps would not add up.
    self._lock = threading.Lock()
    self._reset_gauges()

  def _reset_gauges(self):
    self._largest_weight = 0.

  def get(self, count):
    """Returns sequences drawn by priority, and takes the steps due for them.

    Args:
      count: How many sequences, B.

    Returns:
      A `Batch` with a list of B replayed sequences. `weights` undo what the
      priorities do to the expectation of a sum over the batch (equation 2).
      `kept_versions` has the policy versions of the unrolls that were taken.

    Raises:
      Closed: The source is closed, or was while waiting.
      errors.Failure: Enough has come for the first batch, and none of it could
        be kept.
    """
    versions = []
    is_warm = self._num_steps >= self._min_steps
    if is_warm:
      self._credit += self._steps_per_update
    while (self._num_steps < self._min_steps or not len(self._tree) or
           self._credit >= self._unroll_length):
      versions.append(self._take_unroll())
      if is_warm:
        self._credit -= self._unroll_length
    with self._times.stage('replay_draw'), self._lock:
      num_keys = len(self._tree)
      leaves = self._tree.sample(count, self._uniform_share)
      keys = self._keys_at(leaves)
      weights = 1. / (num_keys * self._tree.probabilities(
          leaves, self._uniform_share))
      unrolls = self._store.read(keys)
      self._largest_weight = max(self._largest_weight, weights.max())
    return trajectories.Batch(
        unrolls, is_replayed=np.ones([count], bool),
        weights=weights.astype(np.float32), keys=keys,
        kept_versions=np.array(versions, np.int64))

  def filling(self):
    """Says how far replay is; returns steps taken and steps needed, or None.

    None from then on that it has what the first batch needs.
    """
    steps = self._num_steps
    return (steps, self._min_steps) if steps < self._min_steps else None

  def _take_unroll(self):
    """Takes an unroll of the source's; returns its policy version.

    One that is not finite is not added, and no sequence spans it.
    """
    (unroll,) = self._source.get(1).unrolls
    with self._times.stage('replay_add'), self._lock:
      self._num_steps += self._unroll_length
      if self._filter.passes(unroll):
        keys, removed = self._store.add(unroll)
        if len(removed):
          self._tree.remove(removed % self._num_leaves)
        if len(keys):
          self._tree.add(keys % self._num_leaves)
      elif (self._num_steps >= self._min_steps and not len(self._tree) and
            self._filter.num_left_out >= _MANY_LEFT_OUT):
        raise errors.Failure(
            f'Replay could keep no unroll, the last of {unroll.level_name}: '
            'each has a reward, an observation or an output of the network '
            'that is not finite (NaN or infinite). Correct the environment.')
    return unroll.policy_version

  def _keys_at(self, leaves):
    """The positions that the leaves stand for, int64 [K]."""
    first = self._store.first_position
    return first + (leaves - first) % self._num_leaves

  def publish(self, weights):
    """Does nothing: every sequence begins with the initial core state."""

  def update(self, keys, priorities):
    """Gives sequences priorities.

    Args:
      keys: int64 [B], of a `Batch`.
      priorities: float32 [B]. Those of sequences that are gone are dropped.
    """
    with self._times.stage('replay_update'), self._lock:
      is_here = keys >= self._store.first_position
      if is_here.any():
        self._tree.set(keys[is_here] % self._num_leaves,
                       np.maximum(priorities[is_here], _LEAST_PRIORITY))

  def take_gauges(self):
    """Returns a dict of values to log, since the last call.

    They are those of the source, and of replay.
    """
    with self._lock:
      num_keys = len(self._tree)
      gauges = dict(
          self._source.take_gauges(),
          replay_sequences=num_keys,
          known_priorities=self._tree.num_known / max(num_keys, 1),
          importance_weight_max=self._largest_weight)
      self._reset_gauges()
    return gauges

  def close(self):
    """Closes the source."""
    self._source.close()
