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
  return [pair for pair in itertools.combinations(variants, 2)
          if _differ_in_one(*pair)]


def _differ_in_one(first, second):
  return max(len(_only(first, second)), len(_only(second, first))) <= 1


def differences(variants):
  """Compares variants that differ in one thing, paired by sample.

  Those runs count whose sample and seed both variants have. Variants with
  another agent have no pairs, and all their runs count.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `tables.Table`.
  """
  def values_of(*pair):
    sides = [variants[variant] for variant in pair]
    return map(finals, selection.in_common(*sides) if _are_paired(*pair)
               else sides)

  return _differences(variants, values_of, _UNITS)


def interactions(variants):
  """Compares differences: whether one thing changes what another one does.

  These are of four variants, of which two differ from the two others in one
  thing, and the two of each side in a second one. Those runs count whose sample
  and seed all four have.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `tables.Table`.
  """
  rows, known = [], set()
  for (a, b), other in itertools.combinations(neighbours(variants), 2):
    for c, d in (other, other[::-1]):
      corners = a, b, c, d
      if not _is_square(*corners) or frozenset(corners) in known:
        continue
      known.add(frozenset(corners))
      first, second, third, fourth = map(finals, selection.in_common(
          *(variants[corner] for corner in corners)))
      rows.append([
          *map(outcomes_lib.describe,
               (_only(a, b), _only(b, a), _only(a, c), _only(c, a))),
          *difference(_subtract(first, second), _subtract(third, fourth))])
  return tables.Table(
      ['this', 'less that', 'with', 'against the same with', _UNITS,
       'difference of differences', f'95 %, over {_UNITS}', 'this is'], rows)


def _is_square(a, b, c, d):
  """Whether b differs from a as d from c, and a from c in one other thing."""
  return (len({a, b, c, d}) == 4 and
          set(_only(a, b)) == set(_only(c, d)) and
          set(_only(b, a)) == set(_only(d, c)) and
          _differ_in_one(a, c) and
          all(_are_paired(a, corner) for corner in (b, c, d)))


def _only(first, second):
  """The alternatives that one variant has, and another lacks."""
  return tuple(part for part in first if part not in second)


def _subtract(first, second):
  """Returns what the entries of one dict are more than those of another."""
  return {key: value - second[key] for key, value in first.items()
          if key in second}


def _are_paired(first, second):
  """Whether runs of one sample and seed of two variants belong together.

  Runs of two agents have nothing but the number of their seed in common.
  """
  return outcomes_lib.agent_of(first) == outcomes_lib.agent_of(second)


def best_differences(variants):
  """As `differences`, of the best samples, paired by new seed."""
  return _differences(
      variants,
      lambda *pair: [_again(variants[variant]) for variant in pair], _NEW_SEEDS)


def _differences(variants, values_of, units):
  return difference_table(units, [
      [outcomes_lib.describe(a), outcomes_lib.describe(b),
       *(difference if _are_paired(a, b) else _difference_of_agents)(
           *values_of(a, b))]
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
  paired = list(_subtract(first, second).values())
  interval = intervals.of_mean(paired)
  mean = float(np.mean(paired)) if paired else None
  return [str(len(paired)), number(mean), interval_text(interval),
          _verdict(paired, interval)]


def _difference_of_agents(first, second):
  """As `difference`, of two agents whose runs are no pairs."""
  values = list(first.values()), list(second.values())
  interval = intervals.of_difference(*values)
  found = np.mean(values[0]) - np.mean(values[1]) if all(values) else None
  return [' and '.join(str(len(side)) for side in values), number(found),
          interval_text(interval), _verdict((), interval)]
