"""Confidence intervals by the bootstrap."""

import numpy as np

_RESAMPLES = 10_000
_PERCENTILES = (2.5, 97.5)


def bootstrap(units, statistic):
  """Returns a 95 % interval, by percentiles of resampled units.

  Args:
    units: float64 [n, ...], an entry for each unit that is independent of the
      others. Where variants are paired, the values of a pair stand in one
      entry.
    statistic: A function of float64 [resamples, n, ...] that returns the
      statistic of each, float64 [resamples].

  Returns:
    A pair of floats, or None for fewer than two units. The same units have the
    same interval.
  """
  units = np.asarray(units, np.float64)
  if len(units) < 2:
    return None
  chosen = np.random.default_rng(0).integers(
      len(units), size=[_RESAMPLES, len(units)])
  low, high = np.percentile(statistic(units[chosen]), _PERCENTILES)
  return float(low), float(high)


def mean(values):
  """Returns the mean of each row: [..., n] to [...]."""
  return np.mean(values, axis=-1)


def best_mean(values, count):
  """Returns the mean of the greatest `count` of each row: [..., n] to [...]."""
  return np.mean(np.sort(values, axis=-1)[..., -count:], axis=-1)


def difference(statistic):
  """Returns the statistic of pairs [m, n, 2]: of the first less the second."""
  return lambda pairs: statistic(pairs[..., 0]) - statistic(pairs[..., 1])
