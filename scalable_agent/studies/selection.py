"""Which runs of a variant are compared, where some are missing; the best."""

import collections
import itertools
import math

import numpy as np

from scalable_agent.studies import outcomes as outcomes_lib

# The paper's "best 3".
BEST = 3
# `complete` keeps more than this share of the samples that have the commonest
# seed, however many seeds it could gain by dropping more: a second round of the
# best has seeds that the others lack.
_KEPT = .75


def complete(entries, least=0):
  """Returns a part of a table in which each row has each column.

  The columns are the commonest ones, and the rows are those that have all of
  them. There are as many columns as leave the most entries, as long as more
  than three quarters of the rows that have the first are left.

  Args:
    entries: A dict of row to a dict of column to anything, such as of sample to
      seed to `Outcome`.
    least: How many rows have to be left, if as many have the first column.

  Returns:
    Such a dict.
  """
  counts = _count_columns(entries)
  ordered = sorted(
      counts, key=lambda column: (-counts[column], _order(column)))
  most = max(counts.values(), default=0)
  needed = max(most_of_second_round(entries) + 1, min(least, most))
  found, num_found = {}, 0
  for num_columns in range(1, len(ordered) + 1):
    columns = ordered[:num_columns]
    rows = {row: {column: values[column] for column in columns}
            for row, values in entries.items() if values.keys() >= set(columns)}
    if len(rows) >= needed and len(rows) * num_columns > num_found:
      found, num_found = rows, len(rows) * num_columns
  return found


def _order(column):
  """A key that sorts columns alike, whichever of them was read first."""
  return sorted(map(repr, column)) if isinstance(column, frozenset) else [
      repr(column)]


def most_of_second_round(samples):
  """Returns how many samples a second round may have, an int.

  `complete` would take the seeds of more for seeds of the first round.

  Args:
    samples: A dict of sample to a dict of seed to anything.
  """
  return math.floor(
      _KEPT * max(_count_columns(samples).values(), default=0))


def _count_columns(entries):
  """Returns how many rows have each column, see `complete`."""
  return collections.Counter(itertools.chain.from_iterable(entries.values()))


def by_drawn(samples):
  """Sorts the runs of a variant that can be compared by what was drawn.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.

  Returns:
    A dict of the drawn pairs of a sample, a frozenset, to a dict of the chosen
    ones, another, to a dict of seed to `Outcome`. Each has the same chosen
    pairs and seeds; the samples that lack some are left out, see `complete`.
  """
  found = {}
  for sample, seeds in complete(samples).items():
    drawn = frozenset().union(*(outcome.drawn for outcome in seeds.values()))
    found.setdefault(drawn, {})[frozenset(sample) - drawn] = seeds
  return complete(found)


def in_common(*variants):
  """Returns the runs of variants whose sample and seed all have, a tuple.

  If no sample is common to all, as where each variant has a grid of its own,
  all runs are returned.

  Args:
    *variants: Dicts of sample to a dict of seed to `Outcome`.
  """
  shared = set.intersection(*map(set, variants))
  if not shared:
    return variants
  seeds = {sample: set.intersection(*(set(samples[sample])
                                      for samples in variants))
           for sample in shared}
  return tuple(
      {sample: {seed: outcome for seed, outcome in runs.items()
                if seed in seeds[sample]}
       for sample, runs in samples.items() if sample in shared}
      for samples in variants)


def left_out(samples, kept):
  """Returns the runs of a variant that do not count, as others are missing.

  Runs of seeds that few of many samples have are not among them: these seeds
  are of a second round of the best, or have just begun.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.
    kept: Those of these `Outcome`s that count.

  Returns:
    A list of `Outcome`s.
  """
  counts = _count_columns(samples)
  most = max(counts.values(), default=0)
  few = most / 2 if most > BEST else 0
  counted = {(outcome.sample, outcomes_lib.repetition(outcome))
             for outcome in kept}
  return [outcome for sample, seeds in samples.items()
          for seed, outcome in seeds.items()
          if (sample, seed) not in counted and counts[seed] > few]


def mean_final(outcomes):
  """Returns the mean final return of `Outcome`s, at least one."""
  return float(np.mean([outcome.final for outcome in outcomes]))


def best_samples(samples, count=BEST):
  """Returns the samples of the best final returns, the best first.

  Samples are compared by the seeds that most of them have, see `complete`. So a
  second round of the best ones with other seeds does not change which these
  are.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.
    count: How many at most.

  Returns:
    A dict of sample to a dict of seed to `Outcome`, of these seeds.
  """
  ordered = sorted(
      complete(samples, count).items(),
      key=lambda item: -mean_final(item[1].values()))
  return dict(ordered[:count])


def best_again(samples):
  """Returns the runs of the best samples with new seeds.

  New seeds are those that all of these samples have, and that did not choose
  them.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.

  Returns:
    A dict of new seed to a list of `Outcome`s, one of each of these samples.
  """
  chosen = best_samples(samples)
  if not chosen:
    return {}
  new = set.intersection(*(set(samples[sample]) for sample in chosen))
  new = new.difference(*chosen.values())
  return {seed: [samples[sample][seed] for sample in chosen]
          for seed in sorted(new)}


def runs_of(found):
  """Yields the `Outcome`s of a dict of anything to a dict of seed to them."""
  for seeds in found.values():
    yield from seeds.values()
