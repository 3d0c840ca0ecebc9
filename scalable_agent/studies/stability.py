"""The final returns of all samples of each variant: how stable it is."""

import itertools

import numpy as np

from scalable_agent.results import blocks
from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import pictures
from scalable_agent.studies import selection
from scalable_agent.studies import tables as study_tables
from scalable_agent.studies import variants as variants_lib

_HOW = (
    'The final returns of all samples, sorted. The area under the curve is '
    'their mean. A drawn sample counts by its mean over the hyperparameters '
    'that were chosen. Where two things vary, differences are compared too: '
    'the last table says whether one of them changes what the other is worth.')
# What is taken for independent, see `_finals`.
_UNITS = 'samples or seeds'


def build(level, outcomes):
  """Returns what the study says of one level, a list of blocks.

  Args:
    level: Its name.
    outcomes: A list of `outcomes.Outcome`s on it.

  Raises:
    ValueError: See `variants.by_variant`.
  """
  variants = variants_lib.by_variant('stability', outcomes)
  by_name = {
      outcomes_lib.describe(variant): list(_finals(samples).values())
      for variant, samples in variants.items()}
  return [
      blocks.Heading(f'{level}: stability'),
      blocks.Paragraph(_HOW),
      *variants_lib.left_out(variants, _kept), _table(variants),
      _differences(variants), _interactions(variants),
      blocks.Picture(f'{level} stability',
                     pictures.sorted_returns(level, by_name))]


def _kept(samples):
  for chosen in selection.by_drawn(samples).values():
    yield from selection.runs_of(chosen)


def _finals(samples):
  """Returns the final return of each sample, a dict of drawn pairs to float.

  The return is the mean over seeds, and over samples that the user chose. Where
  no sample is drawn, or only one, the dict is of seed to float: then seeds are
  compared. Samples that lack runs of most others are left out, see
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


def _table(variants):
  """The final returns over all samples of each variant, a `blocks.Table`.

  Args:
    variants: Of `outcomes.by_variant`.
  """
  header = ['variant', _UNITS, 'area under the sorted curve',
            f'95 %, over {_UNITS}', 'median', 'worst']
  rows = []
  for variant, samples in variants.items():
    values = list(_finals(samples).values())
    rows.append([outcomes_lib.describe(variant), str(len(values))] + (
        [study_tables.number(np.mean(values)),
         study_tables.interval_text(intervals.of_mean(values)),
         study_tables.number(np.median(values)),
         study_tables.number(np.min(values))] if values else
        [tables.MISSING] * 4))
  return blocks.Table(header, rows)


def _differences(variants):
  """Compares variants that differ in one thing, paired by sample.

  Those runs count whose sample and seed both variants have. Variants with
  another agent have no pairs, and all their runs count.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `blocks.Table`.
  """
  def values_of(*pair):
    sides = [variants[variant] for variant in pair]
    return map(_finals, selection.in_common(*sides)
               if variants_lib.are_paired(*pair) else sides)

  return study_tables.differences(variants, values_of, _UNITS)


def _interactions(variants):
  """Compares differences: whether one thing changes what another one does.

  Each is of four variants. Two of them differ from the other two in one thing,
  and the two on each side differ in a second thing. Those runs count whose
  sample and seed all four have.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `blocks.Table`.
  """
  rows, known = [], set()
  for (a, b), other in itertools.combinations(
      variants_lib.neighbours(variants), 2):
    for c, d in (other, other[::-1]):
      corners = a, b, c, d
      if not _is_square(*corners) or frozenset(corners) in known:
        continue
      known.add(frozenset(corners))
      first, second, third, fourth = map(_finals, selection.in_common(
          *(variants[corner] for corner in corners)))
      rows.append([
          *(outcomes_lib.describe(variants_lib.only(*pair))
            for pair in ((a, b), (b, a), (a, c), (c, a))),
          *study_tables.difference(
              study_tables.subtract(first, second),
              study_tables.subtract(third, fourth))])
  return blocks.Table(
      ['this', 'less that', 'with', 'against the same with', _UNITS,
       'difference of differences', f'95 %, over {_UNITS}', 'this is'], rows)


def _is_square(a, b, c, d):
  """Whether b differs from a as d from c, and a from c in one other thing."""
  only = variants_lib.only
  return (len({a, b, c, d}) == 4 and
          set(only(a, b)) == set(only(c, d)) and
          set(only(b, a)) == set(only(d, c)) and
          variants_lib.differ_in_one(a, c) and
          all(variants_lib.are_paired(a, corner) for corner in (b, c, d)))
