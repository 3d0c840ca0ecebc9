"""Intervals of means, against what is known of them."""

import itertools

import numpy as np
import pytest

from scalable_agent.studies import intervals


def test_the_interval_of_many_is_that_of_the_normal_distribution():
  values = np.random.default_rng(0).normal(3., 2., 200)
  low, high = intervals.of_mean(values)
  error = np.std(values) / np.sqrt(200)
  assert low == pytest.approx(np.mean(values) - 1.97 * error, abs=.1 * error)
  assert high == pytest.approx(np.mean(values) + 1.97 * error, abs=.1 * error)


@pytest.mark.parametrize('size', [4, 5, 10, 40])
def test_95_of_100_intervals_hold_the_truth(size, monkeypatch):
  """Also of few: intervals by percentiles hold it 76 times of 100 for four."""
  monkeypatch.setattr(intervals, '_RESAMPLES', 2000)
  rng = np.random.default_rng(0)
  held, count = 0, 400
  for _ in range(count):
    interval = intervals.of_mean(rng.normal(size=size))
    held += interval[0] <= 0. <= interval[1]
  assert .92 <= held / count <= .99


def test_skew_widens_the_side_of_the_tail():
  values = np.exp(np.random.default_rng(0).normal(size=24))
  low, high = intervals.of_mean(values)
  mean = np.mean(values)
  assert high - mean > 1.3 * (mean - low)


@pytest.mark.parametrize('value', [.7, 1.1, -.7, -1.1])
def test_an_end_at_0_is_0_whatever_is_rounded(value):
  """Or what has been rounded would be told from 0."""
  low, high = intervals.of_mean([0.] + [value] * 4)
  assert (low if value > 0 else high) == 0.


def test_what_all_have_has_no_error():
  assert intervals.of_mean([1.] * 5) == (1., 1.)


def test_the_same_values_have_the_same_interval():
  values = [1., 5., 2., 8., 3.]
  for other in itertools.permutations(values):
    assert intervals.of_mean(other) == intervals.of_mean(values)


def _share_of_deals_as_far(first, second, shift):
  """The p value of a shift, by all deals, one by one."""
  first = np.array(first) - shift
  values = np.concatenate([first, second])
  found = abs(np.mean(first) - np.mean(second))
  as_far = []
  for chosen in itertools.combinations(range(len(values)), len(first)):
    others = np.delete(values, chosen)
    as_far.append(abs(np.mean(values[list(chosen)]) - np.mean(others))
                  >= found - 1e-12)
  return np.mean(as_far)


@pytest.mark.parametrize('sizes', [(4, 4), (5, 5), (4, 6), (7, 4)])
def test_an_interval_holds_the_differences_that_no_deal_refuses(sizes):
  rng = np.random.default_rng(0)
  for _ in range(3):
    sides = [rng.normal(size=size) for size in sizes]
    low, high = intervals.of_difference(*sides)
    for shift in [*np.linspace(low - 1, high + 1, 12), low + 1e-6, low - 1e-6,
                  high + 1e-6, high - 1e-6]:
      assert (_share_of_deals_as_far(*sides, shift) > .05) == (
          low <= shift <= high)


@pytest.mark.parametrize('sides, tells', [
    (([5., 6., 7., 8., 9.], [0., 1., 2., 3., 4.]), True),  # 2 of 252 deals.
    (([4., 5., 6., 7.], [0., 1., 2., 3.]), True),  # 2 of 70.
    (([0., 1., 2., 3., 9.], [0., 1., 2., 3., 4.]), False)])
def test_sides_that_do_not_overlap_are_told_apart(sides, tells):
  for first, second, sign in ((*sides, 1), (*reversed(sides), -1)):
    low, high = intervals.of_difference(first, second)
    assert (0 < low if sign > 0 else high < 0) == tells


def test_many_units_are_dealt_in_a_part_of_the_ways():
  rng = np.random.default_rng(0)
  first, second = rng.normal(1., 1., 60), rng.normal(0., 1., 80)
  low, high = intervals.of_difference(first, second)
  error = np.sqrt(np.var(first) / 60 + np.var(second) / 80)
  found = np.mean(first) - np.mean(second)
  assert low == pytest.approx(found - 1.97 * error, abs=.2 * error)
  assert high == pytest.approx(found + 1.97 * error, abs=.2 * error)


def test_sides_of_equals_differ_by_just_that():
  assert intervals.of_difference(
      [3.] * 5, [1.] * 4) == pytest.approx((2., 2.))
  assert intervals.of_difference([.7] * 5, [.7] * 5) == (0., 0.)


@pytest.mark.parametrize('sides', [([1.] * 3, [2.] * 9), ([1.] * 9, [])])
def test_a_side_of_few_has_no_interval(sides):
  assert intervals.of_difference(*sides) is None


@pytest.mark.parametrize('differences, tells', [
    ([1.] * 5, False),  # 2 of 32 ways.
    ([1.] * 6, True),  # 2 of 64.
    ([1.] * 6 + [0.] * 90, True),
    ([-3.] * 6, True),
    ([1.] * 7 + [-1.], False),  # 18 of 256.
    ([1.] * 8 + [-1.], True),  # 20 of 512.
    ([0.] * 9, False), ([], False),
    ([1.] * 18 + [-1.] * 6, True),  # 2.3 % of ways; drawn, not all.
    ([1.] * 16 + [-1.] * 8, False)])  # 15 %.
def test_signs_tell_what_all_ways_to_give_them_say(differences, tells):
  assert intervals.do_signs_tell(differences) == tells


@pytest.mark.parametrize('share', [1 / 6, 1 / 4, 1 / 2])
def test_signs_tell_equals_apart_in_one_of_20_at_most(share):
  rng = np.random.default_rng(0)
  told, count = 0, 400
  for _ in range(count):
    size = rng.uniform(50, 400, 24) * (rng.random(24) < share)
    told += intervals.do_signs_tell(size * rng.choice((-1, 1), 24))
  assert told / count < .08


def test_pairs_are_equal_but_for_rounding():
  assert intervals.has_equal_pairs([1., 1e-14])
  assert intervals.has_equal_pairs([0.])
  assert not intervals.has_equal_pairs([1., 1e-9])
  assert not intervals.has_equal_pairs([])


@pytest.mark.parametrize('values', [[], [1.], [1., 2., 3.]])
def test_few_units_have_no_interval(values):
  assert intervals.of_mean(values) is None


@pytest.mark.parametrize(
    'values', [[500.] * 9 + [100.], [1., 1.001, 1., 1., 5.]])
def test_values_that_are_almost_equal_have_a_bounded_interval(values):
  """A resample of one value alone, or almost, has next to no error."""
  low, high = intervals.of_mean(values)
  mean, spread = np.mean(values), np.ptp(values)
  error = np.std(values, ddof=1) / np.sqrt(len(values))
  assert low < mean < high
  assert high - low > 2 * error
  assert high - low < 3 * spread
