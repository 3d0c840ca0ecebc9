"""Bootstrap intervals, against what is known of them."""

import numpy as np
import pytest

from scalable_agent.studies import intervals


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
  values = np.random.default_rng(0).normal(3., 2., 200)
  low, high = intervals.bootstrap(values, intervals.mean)
  error = np.std(values) / np.sqrt(200)
  assert low == pytest.approx(np.mean(values) - 1.96 * error, abs=.1 * error)
  assert high == pytest.approx(np.mean(values) + 1.96 * error, abs=.1 * error)


def test_95_of_100_intervals_hold_the_truth():
  rng = np.random.default_rng(0)
  held = 0
  for _ in range(100):
    low, high = intervals.bootstrap(rng.normal(size=40), intervals.mean)
    held += low <= 0. <= high
  assert 88 <= held <= 99


def test_what_is_paired_is_resampled_together():
  """A difference that every pair has has no error, however much they vary."""
  first = np.random.default_rng(0).normal(size=30) * 100
  pairs = np.stack([first, first - 1.], axis=1)
  low, high = intervals.bootstrap(pairs, intervals.difference(intervals.mean))
  assert low == pytest.approx(1.) and high == pytest.approx(1.)


def test_the_best_are_those_of_each_resampling():
  values = np.array([1., 9., 5., 7., 3.])
  assert intervals.best_mean(values, 3) == 7.
  assert intervals.best_mean(values[:2], 3) == 5.
  low, high = intervals.bootstrap(
      values, lambda rows: intervals.best_mean(rows, 3))
  assert 3. <= low < 7. < high <= 9.


def test_one_unit_has_no_interval():
  assert intervals.bootstrap([1.], intervals.mean) is None
  assert intervals.bootstrap([1., 2.], intervals.mean) == (1., 2.)
