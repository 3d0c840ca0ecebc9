"""What the tables of several studies have in common: returns, differences."""

import numpy as np

from scalable_agent.results import blocks
from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import variants as variants_lib


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


def subtract(first, second):
  """Returns one dict less another, for the keys that both have."""
  return {key: value - second[key] for key, value in first.items()
          if key in second}


def differences(variants, values_of, units):
  """Compares variants that differ in one thing, a `blocks.Table`.

  Args:
    variants: Of `outcomes.by_variant`.
    values_of: A function of two variants that returns what each of them has
      got, two dicts as `difference` takes them.
    units: What is paired, as in 'samples'.
  """
  return difference_table(units, [
      [outcomes_lib.describe(a), outcomes_lib.describe(b),
       *(difference if variants_lib.are_paired(a, b) else
         _difference_of_agents)(*values_of(a, b))]
      for a, b in variants_lib.neighbours(variants)])


def difference_table(units, rows):
  """Returns the `blocks.Table` of rows that end as `difference` returns them.

  Args:
    units: What is paired, as in 'samples'.
    rows: A list of lists of strings.
  """
  return blocks.Table(
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
  paired = list(subtract(first, second).values())
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
