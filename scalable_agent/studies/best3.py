"""The best three samples of each variant, and these again with new seeds."""

import numpy as np

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import published
from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import pictures
from scalable_agent.studies import selection
from scalable_agent.studies import tables as study_tables
from scalable_agent.studies import variants as variants_lib

_HOW = (
    'The mean of the three samples with the best final returns, as the paper '
    'has it. The best of many flatters what varies most, so there is no '
    'interval and no verdict by it. "Again" is the mean of the same three '
    'samples with new seeds, by which variants are compared.')
_NEW_SEEDS = 'new seeds'


def build(level, outcomes):
  """Returns what the study says of one level, a list of blocks.

  Args:
    level: Its name.
    outcomes: A list of `outcomes.Outcome`s on it.

  Raises:
    ValueError: See `variants.by_variant`.
  """
  # Runs that have not ended have no final return, as for `sweep --best`.
  variants = variants_lib.by_variant('best3', [
      outcome if outcomes_lib.has_ended(outcome) else
      outcome._replace(final=None) for outcome in outcomes])
  by_name = {}
  for variant, samples in variants.items():
    episodes = [
        found for outcome in selection.runs_of(selection.best_samples(samples))
        for found in outcome.episodes.values()]
    if episodes:
      by_name[outcomes_lib.describe(variant)] = episodes
  blocks = [
      blocks_lib.Heading(f'{level}: the best samples'),
      blocks_lib.Paragraph(_HOW)]
  if not all(map(outcomes_lib.has_ended, outcomes)):
    blocks.append(blocks_lib.Paragraph(
        'Runs that have not all of their frames are left out.'))
  blocks += [
      *variants_lib.left_out(variants, _kept), _table(variants),
      _differences(variants)]
  # Returns on different games have no common axis.
  if not published.levels_of_suite(level):
    blocks.append(blocks_lib.Picture(
        f'{level} best 3', pictures.best_curves(level, by_name)))
  return blocks


def _kept(samples):
  yield from selection.runs_of(selection.complete(samples, selection.BEST))
  for runs in selection.best_again(samples).values():
    yield from runs


def _table(variants):
  """The best of each variant's samples, and these again with new seeds.

  The best of many has no interval: it is no mean, and only the best few samples
  say anything of it. The same samples with new seeds have one.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A `blocks.Table`.
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
        study_tables.number(values[0]), study_tables.number(np.mean(values)),
        study_tables.number(np.mean(again) if again else None),
        str(len(again)), study_tables.interval_text(intervals.of_mean(again))])
  return blocks_lib.Table(header, rows)


def _differences(variants):
  """Compares variants that differ in one thing, paired by new seed."""
  return study_tables.differences(
      variants,
      lambda *pair: [_again(variants[variant]) for variant in pair], _NEW_SEEDS)


def _again(samples):
  """The mean final return of the best samples, a dict of new seed to float."""
  return {seed: selection.mean_final(runs)
          for seed, runs in selection.best_again(samples).items()}
