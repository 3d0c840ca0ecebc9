"""Studies of a sweep as tables: the best samples, stability, differences."""

import itertools

import numpy as np

from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib

# What is resampled: see `finals`.
_UNITS = 'samples or seeds'


def number(value):
  """A return as a person reads it; None is missing."""
  if value is None:
    return tables.MISSING
  return f'{value:,.1f}' if abs(value) >= 100 else f'{value:.3g}'


def interval_text(interval):
  """An interval as a person reads it; None is missing."""
  if interval is None:
    return tables.MISSING
  return f'{number(interval[0])} to {number(interval[1])}'


def verdict(interval):
  """Says what an interval of a difference tells."""
  if interval is None or interval[0] <= 0 <= interval[1]:
    return 'cannot be told'
  return 'higher' if interval[0] > 0 else 'lower'


def finals(samples):
  """Returns the final return of each sample, a dict of sample to float.

  It is the mean over the seeds that all samples of the variant have. Where
  there is one sample alone, it is a dict of seed to float: then seeds are what
  is compared.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.
  """
  shared = outcomes_lib.shared_seeds(samples)
  if not shared:
    return {}
  if len(samples) == 1:
    (seeds,) = samples.values()
    return {seed: outcome.final for seed, outcome in seeds.items()}
  return {sample: outcomes_lib.score(seeds, shared)
          for sample, seeds in samples.items()}


def _best_mean(values):
  return intervals.best_mean(values, outcomes_lib.BEST)


def best(variants):
  """The best of each variant's samples, and these again with other seeds.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `tables.Table`.
  """
  header = ['variant', _UNITS, 'best', f'best {outcomes_lib.BEST}',
            f'95 %, over {_UNITS}', 'again', '95 %, over new seeds']
  rows = []
  for variant, samples in variants.items():
    values = np.array(list(finals(samples).values()))
    row = [outcomes_lib.describe(variant), str(len(values))]
    if not len(values):
      rows.append(row + [tables.MISSING] * 5)
      continue
    shared = outcomes_lib.shared_seeds(samples)
    again = [[outcome.final for seed, outcome in samples[sample].items()
              if seed not in shared]
             for sample in outcomes_lib.best_samples(samples)]
    rows.append(row + [
        number(np.max(values)), number(_best_mean(values)),
        interval_text(intervals.bootstrap(values, _best_mean)),
        *_again(again)])
  return tables.Table(header, rows)


def _again(by_sample):
  """Two cells: the mean of samples' new seeds, and its interval."""
  count = min(map(len, by_sample))
  if not count:
    return tables.MISSING, tables.MISSING
  # An entry for each new seed, since a seed is what is drawn anew.
  units = np.array([values[:count] for values in by_sample]).T
  statistic = lambda resampled: np.mean(resampled, axis=(-1, -2))
  return (number(float(np.mean(units))),
          interval_text(intervals.bootstrap(units, statistic)))


def stability(variants):
  """The final returns over all samples of each variant, a `tables.Table`.

  Args:
    variants: Of `outcomes.by_variant`.
  """
  header = ['variant', _UNITS, 'area under the sorted curve',
            f'95 %, over {_UNITS}', 'median', 'worst']
  rows = []
  for variant, samples in variants.items():
    values = list(finals(samples).values())
    rows.append([outcomes_lib.describe(variant), str(len(values))] + (
        [number(np.mean(values)),
         interval_text(intervals.bootstrap(values, intervals.mean)),
         number(np.median(values)), number(np.min(values))] if values else
        [tables.MISSING] * 4))
  return tables.Table(header, rows)


def neighbours(variants):
  """Returns pairs of variants that differ in one alternative, a list."""
  return [(a, b) for a, b in itertools.combinations(variants, 2)
          if len(set(a) - set(b)) <= 1 and len(set(b) - set(a)) <= 1]


def differences(variants, statistic):
  """Compares variants that differ in one thing, paired by sample.

  Args:
    variants: Of `outcomes.by_variant`.
    statistic: Of final returns, as in `intervals`: [..., n] to [...].

  Returns:
    A `tables.Table`.
  """
  rows = []
  for a, b in neighbours(variants):
    first, second = finals(variants[a]), finals(variants[b])
    pairs = np.array([(first[sample], second[sample]) for sample in first
                      if sample in second])
    rows.append([outcomes_lib.describe(a), outcomes_lib.describe(b),
                 *difference(pairs, statistic)])
  return difference_table(_UNITS, rows)


def best_differences(variants):
  """As `differences`, of the best samples."""
  return differences(variants, _best_mean)


def difference_table(units, rows):
  """Returns the `tables.Table` of rows that end as `difference` returns them.

  Args:
    units: What is resampled, as in 'samples'.
    rows: A list of lists of strings.
  """
  return tables.Table(
      ['this', 'against', units, 'difference', f'95 %, over {units}',
       'this is'], rows)


def difference(pairs, statistic):
  """Compares two variants by what they have got in the same samples or seeds.

  Args:
    pairs: float64 [n, 2].
    statistic: As in `differences`.

  Returns:
    A list of strings: n, the difference, its interval, the verdict.
  """
  if not len(pairs):
    return ['0', tables.MISSING, tables.MISSING, verdict(None)]
  compare = intervals.difference(statistic)
  interval = intervals.bootstrap(pairs, compare)
  return [str(len(pairs)), number(float(compare(pairs))),
          interval_text(interval), verdict(interval)]
