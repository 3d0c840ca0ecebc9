"""The variants of a sweep of independent runs: which of them are compared."""

import itertools

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import selection


def by_variant(study, outcomes):
  """Sorts outcomes on one level; see `outcomes.by_variant`.

  Raises:
    ValueError: They are not independent of each other, or two of them are the
      same but for their directory.
  """
  for outcome in outcomes:
    if outcomes_lib.has_dependent_runs(outcome):
      raise ValueError(
          f'--study={study} takes runs for independent samples, and '
          f'{outcome.logdir} is of agents that share replay or copy each '
          'other. Use --study=best_of_sweep.')
  return outcomes_lib.by_variant(outcomes)


def left_out(variants, kept):
  """Says which runs do not count since others are missing, as blocks.

  Args:
    variants: Of `outcomes.by_variant`.
    kept: A function that returns the `Outcome`s of a variant that count.
  """
  blocks = []
  for variant, samples in variants.items():
    found = selection.left_out(samples, kept(samples))
    if found:
      blocks.append(blocks_lib.Paragraph(
          f'{outcomes_lib.describe(variant)}: {len(found)} of '
          f'{sum(map(len, samples.values()))} runs are left out, since samples '
          'are compared by the same seeds, and other runs of their sample or '
          'seed are missing: ' + ', '.join(
              outcome.logdir for outcome in found) + '.'))
  return blocks


def neighbours(variants):
  """Returns pairs of variants that differ in one alternative, a list."""
  return [pair for pair in itertools.combinations(variants, 2)
          if differ_in_one(*pair)]


def differ_in_one(first, second):
  """Whether each of two variants has one alternative at most of its own."""
  return max(len(only(first, second)), len(only(second, first))) <= 1


def only(first, second):
  """The alternatives that one variant has, and another lacks."""
  return tuple(part for part in first if part not in second)


def are_paired(first, second):
  """Whether runs of one sample and seed of two variants belong together.

  Runs of two agents have nothing but the number of their seed in common.
  """
  return outcomes_lib.agent_of(first) == outcomes_lib.agent_of(second)
