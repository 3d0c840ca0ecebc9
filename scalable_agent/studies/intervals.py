"""Confidence intervals of means and their differences; a test of signs."""

import itertools
import math

import numpy as np

_RESAMPLES = 10_000
_PERCENTILES = (2.5, 97.5)
# With three units, one resample in nine draws the same unit three times.
_MIN_UNITS = 4
# A resample that holds one value several times says little of the spread: its
# standard error counts as at least this share of the sample's.
_MIN_SHARE_OF_ERROR = 0.25
# An end that is nearer to 0, as a share of the largest value, is 0.
_ROUNDING = 1e-12
# Up to so many units all ways to give signs are tried, beyond that a part.
_MAX_SIGNED = 12
_SIGNINGS = 10_000
# At most so many ways to deal values to two sides are tried.
_DEALS = 20_000
_LEVEL = .05


def of_mean(values):
  """Returns a 95 % interval of a mean, by the studentised bootstrap.

  Each resample's mean is measured by its own standard error, which widens the
  intervals of few and of skewed units (Efron and Tibshirani, "An Introduction
  to the Bootstrap", 1993, section 12.5). Those of fewer than ten very skewed
  units are still too narrow.

  Args:
    values: float64 [n], an entry for each unit that is independent of the
      others. Of what is paired these are the differences.

  Returns:
    A pair of floats; None for fewer than four units. The order of the values
    makes no difference.
  """
  values = np.sort(np.asarray(values, np.float64))
  if len(values) < _MIN_UNITS:
    return None
  mean, error = np.mean(values), _standard_error(values)
  if not error:
    return float(mean), float(mean)
  resamples = values[np.random.default_rng(0).integers(
      len(values), size=[_RESAMPLES, len(values)])]
  shifts = np.mean(resamples, axis=-1) - mean
  ratios = shifts / np.maximum(
      _standard_error(resamples), _MIN_SHARE_OF_ERROR * error)
  low, high = np.percentile(ratios, _PERCENTILES, method='nearest')
  ends = np.array([mean - high * error, mean - low * error])
  ends[np.abs(ends) < _ROUNDING * np.max(np.abs(values))] = 0.
  return tuple(ends.tolist())


def of_difference(first, second):
  """Returns a 95 % interval of the difference of two means, of no pairs.

  It holds every difference that a permutation test does not refuse (Efron and
  Tibshirani, chapter 15): if the sides differed by that much and in nothing
  else, more than 5 % of the ways to deal the values to the sides would bring
  their means at least as far from it.

  Args:
    first: float64 [n], an entry for each unit of one side.
    second: float64 [m], the same of the other side.

  Returns:
    A pair of floats, of the first mean less the second; None for fewer than
    four units on a side.
  """
  first, second = (np.sort(np.asarray(v, np.float64)) for v in (first, second))
  if min(len(first), len(second)) < _MIN_UNITS:
    return None
  values = np.concatenate([first, second])
  is_first = _deals(len(first), len(second))
  found = np.mean(first) - np.mean(second)
  means = is_first @ values / len(first) - ~is_first @ values / len(second)
  # How a shift of the first side moves the difference of a deal's means.
  slopes = (np.mean(is_first[:, :len(first)], axis=-1)
            - np.mean(~is_first[:, :len(first)], axis=-1)
            * len(first) / len(second))
  # A deal speaks for a shift if its means are at least as far from it as those
  # that were found. That is so between two ends. Of the deal that was found,
  # and of its mirror image where there is one, it always is.
  with np.errstate(divide='ignore', invalid='ignore'):
    ends = np.stack([(found - means) / (1 - slopes),
                     (found + means) / (1 + slopes)])
  lows, highs = np.min(ends, axis=0), np.max(ends, axis=0)
  unbounded = np.abs(slopes) > 1 - _ROUNDING
  lows[unbounded], highs[unbounded] = -np.inf, np.inf
  refused = int(_LEVEL * len(lows))
  ends = np.array([np.sort(lows)[refused], np.sort(highs)[::-1][refused]])
  ends[np.abs(ends) < _ROUNDING * np.max(np.abs(values))] = 0.
  return tuple(ends.tolist())


def _deals(num_first, num_second):
  """Returns which units a deal gives to the first side, bool [deals, n + m].

  These are all deals, or the actual one and a part of the others.
  """
  total = num_first + num_second
  if math.comb(total, num_first) <= _DEALS:
    chosen = np.array(list(itertools.combinations(range(total), num_first)))
  else:
    rng = np.random.default_rng(0)
    chosen = np.stack([np.arange(num_first)] + [
        rng.permutation(total)[:num_first] for _ in range(_DEALS - 1)])
  is_first = np.zeros([len(chosen), total], bool)
  np.put_along_axis(is_first, chosen, True, axis=-1)
  return is_first


def has_equal_pairs(differences):
  """Whether a difference of a pair is 0, but for rounding.

  Args:
    differences: float64 [n], one of each pair.
  """
  return bool(np.any(_is_zero(differences)))


def do_signs_tell(differences):
  """Whether it is luck in 5 % of cases at most that a mean is so far from 0.

  Where nothing distinguishes the two of a pair, each difference is as likely as
  its negative. The mean is compared with those of all ways to give signs to the
  differences (Efron and Tibshirani, chapter 15). Pairs of equals count for
  nothing here, whereas the bootstrap takes each for one more unit without
  spread.

  Args:
    differences: float64 [n], one of each pair.
  """
  differences = np.sort(np.asarray(differences, np.float64))
  differences = differences[~_is_zero(differences)]
  if len(differences) <= _MAX_SIGNED:
    signs = np.array(list(itertools.product((1, -1), repeat=len(differences))))
  else:
    signs = np.random.default_rng(0).choice(
        (1, -1), [_SIGNINGS, len(differences)])
  sums = np.abs(signs @ differences)
  found = np.abs(np.sum(differences)) * (1 - _ROUNDING)
  return bool(np.mean(sums >= found) <= _LEVEL)


def _is_zero(differences):
  size = np.abs(differences)
  return size <= _ROUNDING * np.max(size, initial=0.)


def _standard_error(values):
  return np.std(values, axis=-1, ddof=1) / np.sqrt(values.shape[-1])
