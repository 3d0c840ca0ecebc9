"""Studies of a sweep as tables: the best samples, stability, differences."""

import itertools

import numpy as np

from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import selection

# What is independent of each other: see `finals`.
_UNITS = 'samples or seeds'
_NEW_SEEDS = 'new seeds'


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


def _verdict(paired, interval):
  """Says what differences of pairs tell, with the interval of their mean."""
  if interval is None or interval[0] <= 0 <= interval[1] or (
      intervals.has_equal_pairs(paired) and
      not intervals.do_signs_tell(paired)):
    return 'cannot be told'
  return 'higher' if interval[0] > 0 else 'lower'


def finals(samples):
  """Returns the final return of each sample, a dict of drawn pairs to float.

  It is the mean over seeds, and over what the user chose to try. Where no
  sample is drawn, or one alone, it is a dict of seed to float: then seeds are
  what is compared. Samples that lack runs of most others are left out, see
  `selection.by_drawn`.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.
  """
  by_unit, by_seed = {}, {}
  for drawn, chosen in selection.by_drawn(samples).items():
    for seeds in chosen.values():
      for seed, outcome in seeds.items():
        by_unit.setdefault(drawn, []).append(outcome)
        by_seed.setdefault(seed, []).append(outcome)
  found = by_unit if len(by_unit) > 1 else dict(sorted(by_seed.items()))
  return {unit: selection.mean_final(runs) for unit, runs in found.items()}


def best(variants):
  """The best of each variant's samples, and these again with new seeds.

  The best of many has no interval: it is no mean, and no sample but the best
  few says anything of it. What is drawn anew is the seed.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `tables.Table`.
  """
  header = ['variant', 'samples', 'best', f'best {selection.BEST}',
            'again', _NEW_SEEDS, f'95 %, over {_NEW_SEEDS}']
  rows = []
  for variant, samples in variants.items():
    compared = selection.complete(samples, selection.BEST)
    row = [outcomes_lib.describe(variant), str(len(compared))]
    chosen = selection.best_samples(samples)
    if len(samples) == 1 or not chosen:
      rows.append(row + [tables.MISSING] * 5)
      continue
    values = [selection.mean_final(seeds.values())
              for seeds in chosen.values()]
    again = list(_again(samples).values())
    rows.append(row + [
        number(values[0]), number(np.mean(values)),
        number(np.mean(again) if again else None), str(len(again)),
        interval_text(intervals.of_mean(again))])
  return tables.Table(header, rows)


def _again(samples):
  """The mean final return of the best samples, a dict of new seed to float."""
  return {seed: selection.mean_final(runs)
          for seed, runs in selection.best_again(samples).items()}


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
         interval_text(intervals.of_mean(values)),
         number(np.median(values)), number(np.min(values))] if values else
        [tables.MISSING] * 4))
  return tables.Table(header, rows)


def neighbours(variants):
  """Returns pairs of variants that differ in one alternative, a list."""
  return [(a, b) for a, b in itertools.combinations(variants, 2)
          if len(set(a) - set(b)) <= 1 and len(set(b) - set(a)) <= 1]


def differences(variants):
  """Compares variants that differ in one thing, paired by sample.

  Those runs count whose sample and seed both variants have.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `tables.Table`.
  """
  return _differences(
      variants,
      lambda *pair: map(finals, selection.in_common(*pair)), _UNITS)


def best_differences(variants):
  """As `differences`, of the best samples, paired by new seed."""
  return _differences(
      variants, lambda *pair: map(_again, pair), _NEW_SEEDS)


def _differences(variants, values_of, units):
  return difference_table(units, [
      [outcomes_lib.describe(a), outcomes_lib.describe(b),
       *difference(*values_of(variants[a], variants[b]))]
      for a, b in neighbours(variants)])


def difference_table(units, rows):
  """Returns the `tables.Table` of rows that end as `difference` returns them.

  Args:
    units: What is paired, as in 'samples'.
    rows: A list of lists of strings.
  """
  return tables.Table(
      ['this', 'against', units, 'difference', f'95 %, over {units}',
       'this is'], rows)


def difference(first, second):
  """Compares two variants by what both have got.

  Args:
    first: A dict of sample, seed or the like to a float.
    second: The same of the other variant.

  Returns:
    A list of strings: the number of pairs, the mean difference, its interval,
    the verdict.
  """
  paired = [value - second[key] for key, value in first.items()
            if key in second]
  interval = intervals.of_mean(paired)
  mean = float(np.mean(paired)) if paired else None
  return [str(len(paired)), number(mean), interval_text(interval),
          _verdict(paired, interval)]
