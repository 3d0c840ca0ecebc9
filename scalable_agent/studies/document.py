"""What a study says, as blocks of a report, and as CSV."""

import csv
import io
import math
import os

from scalable_agent.results import document
from scalable_agent.results import markdown
from scalable_agent.results import published
from scalable_agent.results import tables
from scalable_agent.results import writing
from scalable_agent.studies import best_of_sweep
from scalable_agent.studies import lag as lag_lib
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import pictures
from scalable_agent.studies import selection
from scalable_agent.studies import tables as study_tables

TITLE = 'The variants of a sweep'
# More would be pictures that nobody looks at.
_MAX_PICTURED_SAMPLES = 6

_HOW_FINAL = (
    'A final return is the mean over the episodes that ended in the last tenth '
    'of the frames that a run has got to, unclipped. On a suite it is the mean '
    'capped human-normalised score of these.')
_HOW_SURE = (
    'Intervals are 95 % intervals of a mean by the studentised bootstrap. '
    'Fewer than four units have none; that of equal values has no width, and '
    'says nothing of others that are rare. Differences are paired; "cannot be '
    'told" marks those without an interval, or with 0 in it. Where pairs are '
    'equal, the interval is too narrow: then a difference is told only if a '
    'test of the signs tells it too (p = .05). Pairs and intervals are of '
    'samples, or of seeds where nothing is drawn. Runs of two agents, as '
    'IMPALA and Reactor, are no pairs: the interval of their difference holds '
    'what a permutation test does not refuse (p = .05).')
_HOW_BEST = (
    'The mean of the three samples with the best final returns, as the paper '
    'has it. The best of many flatters what varies most, so there is no '
    'interval and no verdict by it. "Again" is the mean of the same three '
    'samples with new seeds, by which variants are compared.')
_HOW_STABLE = (
    'The final returns of all samples, sorted. The area under the curve is '
    'their mean. A drawn sample counts by its mean over the hyperparameters '
    'that were chosen. Where two things vary, differences are compared too: '
    'the last table says whether one of them changes what the other is worth.')
_HOW_LAGGED = (
    'Bars are intervals over seeds. Of several hyperparameters, every second '
    'seed chooses at each point those that are the best with it, and what is '
    'shown is what the other seeds have got with these.')
_HOW_SWEPT = (
    'The agents of a sweep may share replay, or copy each other, and are not '
    'independent then: a sweep counts once. Returns are means over a twentieth '
    'of the frames, and smoothed over three of these. LASER has means over 1 '
    'million frames on Atari, and over 10 million on DMLab-30. "Best" is the '
    'best agent at each point, "on the way" the mean over all points that are '
    'known, which is what conditions are compared by. Pairs are of sweeps with '
    'the same seed and as many agents, at the points that are known of both. A '
    'point is unknown before the first episodes, and from where an agent of '
    'the sweep has no more frames.')


def _missing(outcomes):
  """Says which runs are not, or not wholly, in the figures; a list."""
  texts = []
  unfinished = [outcome for outcome in outcomes
                if not outcomes_lib.has_ended(outcome)]
  silent = [outcome for outcome in outcomes if outcome.final is None]
  for found, what in ((unfinished, 'have not all of their frames'),
                      (silent, 'have no episode to count, and are left out')):
    if found:
      texts.append(f'{len(found)} of {len(outcomes)} runs {what}: ' + ', '.join(
          outcome.logdir for outcome in found) + '.')
  return texts


def _mixed(level, outcomes):
  """Says what differs within variants although nobody asked for it; a list."""
  names = outcomes_lib.mixed_settings(outcomes)
  return [f'{level}: runs of one variant differ in {", ".join(names)}, so that '
          'they are not of one agent. Report on each sweep by itself.'
          ] if names else []


def _update_sizes(level, outcomes):
  """Says how many steps an update sums its losses over; a list."""
  sizes = outcomes_lib.by_update_size(outcomes)
  if not sizes:
    return []
  parts = []
  for (batch_size, unroll_length), variants in sizes.items():
    parts.append(
        f'{batch_size * unroll_length} steps (batch_size={batch_size}, '
        f'unroll_length={unroll_length})')
    if len(sizes) > 1:
      parts[-1] += ' with ' + ', '.join(
          f'"{outcomes_lib.describe(variant)}"' for variant in variants)
  text = f'{level}: an update sums its losses over {"; ".join(parts)}.'
  if len(set(map(math.prod, sizes))) > 1:
    text += (' So updates of these differ in size at the same learning rate '
             'and epsilon.')
  return [text]


def _by_variant(study, outcomes):
  """Sorts outcomes on one level; see `outcomes.by_variant`.

  Raises:
    ValueError: They are not independent of each other.
  """
  for outcome in outcomes:
    if outcomes_lib.has_dependent_runs(outcome):
      raise ValueError(
          f'--study={study} takes runs for independent samples, and '
          f'{outcome.logdir} is of agents that share replay or copy each '
          'other. Use --study=best_of_sweep.')
  return outcomes_lib.by_variant(outcomes)


def _left_out(variants, kept):
  """Says which runs do not count since others are missing, as blocks.

  Args:
    variants: Of `outcomes.by_variant`.
    kept: A function that returns the `Outcome`s of a variant that count.
  """
  blocks = []
  for variant, samples in variants.items():
    found = selection.left_out(samples, kept(samples))
    if found:
      blocks.append(document.Paragraph(
          f'{outcomes_lib.describe(variant)}: {len(found)} of '
          f'{sum(map(len, samples.values()))} runs are left out, since samples '
          'are compared by the same seeds, and other runs of their sample or '
          'seed are missing: ' + ', '.join(
              outcome.logdir for outcome in found) + '.'))
  return blocks


def _runs_of(found):
  """Yields the `Outcome`s of a dict of anything to a dict of seed to them."""
  for seeds in found.values():
    yield from seeds.values()


def _kept_by_best(samples):
  yield from _runs_of(selection.complete(samples, selection.BEST))
  for runs in selection.best_again(samples).values():
    yield from runs


def _kept_by_stability(samples):
  for chosen in selection.by_drawn(samples).values():
    yield from _runs_of(chosen)


def _kept_by_lag(samples):
  return _runs_of(selection.complete(samples))


def _best(level, outcomes):
  # As `sweep --best` chooses: what a run begins with is no final return.
  variants = _by_variant('best3', [
      outcome if outcomes_lib.has_ended(outcome) else
      outcome._replace(final=None) for outcome in outcomes])
  by_name = {}
  for variant, samples in variants.items():
    episodes = [
        found for outcome in _runs_of(selection.best_samples(samples))
        for found in outcome.episodes.values()]
    if episodes:
      by_name[outcomes_lib.describe(variant)] = episodes
  blocks = [
      document.Heading(f'{level}: the best samples'),
      document.Paragraph(_HOW_BEST)]
  if not all(map(outcomes_lib.has_ended, outcomes)):
    blocks.append(document.Paragraph(
        'Runs that have not all of their frames are left out.'))
  blocks += [
      *_left_out(variants, _kept_by_best),
      study_tables.best(variants),
      study_tables.best_differences(variants)]
  # Returns on different games have no common axis.
  if not published.levels_of_suite(level):
    blocks.append(document.Picture(
        f'{level} best 3', pictures.best_curves(level, by_name)))
  return blocks


def _stability(level, outcomes):
  variants = _by_variant('stability', outcomes)
  by_name = {outcomes_lib.describe(variant): list(
      study_tables.finals(samples).values())
             for variant, samples in variants.items()}
  return [
      document.Heading(f'{level}: stability'),
      document.Paragraph(_HOW_STABLE),
      *_left_out(variants, _kept_by_stability),
      study_tables.stability(variants),
      study_tables.differences(variants),
      study_tables.interactions(variants),
      document.Picture(f'{level} stability',
                       pictures.sorted_returns(level, by_name))]


def _lag(level, outcomes):
  variants = _by_variant('lag', outcomes)
  lines = lag_lib.by_lag(variants)
  samples = lag_lib.samples_of(variants)
  best = 'best hyperparameters' if len(samples) > 1 else ''
  blocks = [
      document.Heading(f'{level}: policy lag'),
      document.Paragraph(_HOW_LAGGED),
      *_left_out(variants, _kept_by_lag)]
  resumed = lag_lib.resumed(outcomes)
  if resumed:
    blocks.append(document.Paragraph(
        f'{len(resumed)} of {len(outcomes)} runs were resumed, and began '
        'without lag again. They count all the same: ' + ', '.join(
            outcome.logdir for outcome in resumed) + '.'))
  missing = lag_lib.without_best(lines)
  if missing:
    blocks.append(document.Paragraph(
        'No best hyperparameters can be chosen where their samples have no '
        'seed in common that chooses, or none that is shown, so that there is '
        'nothing to show: '
        f'{"; ".join(missing)}. Give the sweep more --seeds, or use '
        '--study=stability, which takes the mean over all samples.'))
  blocks += [
      lag_lib.table(lines),
      lag_lib.differences(lines),
      document.Picture(f'{level} lag', lag_lib.draw(
          ', '.join(filter(None, [level, best])), lines, None))]
  if 1 < len(samples) <= _MAX_PICTURED_SAMPLES:
    for i, sample in enumerate(samples):
      name = outcomes_lib.describe([sample])
      blocks.append(document.Picture(
          f'{level} lag {i}', lag_lib.draw(f'{level}, {name}', lines, sample)))
  return blocks


def _best_of_sweep(level, outcomes):
  usual, sweeps = best_of_sweep.by_condition(outcomes)
  blocks = [document.Heading(f'{level}: the best agent of a sweep'),
            document.Paragraph(_HOW_SWEPT)]
  if usual:
    blocks.append(document.Paragraph(
        f'The usual settings are {usual}. A condition is named by what it has '
        'instead.'))
  uneven = best_of_sweep.uneven(outcomes)
  if uneven:
    blocks.append(document.Paragraph(
        'Agents that share replay should train at equal speed. In '
        f'{", ".join(uneven)} they differ by more than '
        f'{100 * best_of_sweep.UNEVEN:g} % in their frames or updates so far.'
    ))
  blocks += [document.Paragraph(
      f'Pairs of "{a}" and "{b}" whose sweeps have not as many agents are left '
      f'out, {count} in all: the best of more agents is higher by chance '
      'alone.')
             for (a, b), count in best_of_sweep.unequal(sweeps).items()]
  return blocks + [
      best_of_sweep.table(sweeps),
      best_of_sweep.differences(sweeps),
      document.Picture(f'{level} best of sweep',
                       best_of_sweep.draw(level, sweeps))]


STUDIES = {'best3': _best, 'stability': _stability, 'lag': _lag,
           'best_of_sweep': _best_of_sweep}


def build(outcomes, names, how_final=_HOW_FINAL):
  """Builds the report.

  Args:
    outcomes: A list of `outcomes.Outcome`s, at least one.
    names: A list of studies, keys of `STUDIES`.
    how_final: What a final return is, in a sentence or two.

  Returns:
    A list of blocks as `results.document.build` returns.

  Raises:
    ValueError: A study cannot be made of these runs.
  """
  for name in names:
    if name not in STUDIES:
      raise ValueError(
          f'--study={name} is no study. Expected {", ".join(STUDIES)}.')
  outcomes = outcomes_lib.in_one_order(outcomes)
  blocks = [document.Paragraph(f'{how_final} {_HOW_SURE}')]
  blocks += map(document.Paragraph, _missing(outcomes))
  for level in dict.fromkeys(outcome.level for outcome in outcomes):
    here = [outcome for outcome in outcomes if outcome.level == level]
    if all(outcome.final is None for outcome in here):
      continue  # What is missing is said above.
    if set(names) - {'best_of_sweep'}:
      # That study keeps them apart itself.
      blocks += map(document.Paragraph, _mixed(level, here))
    blocks += map(document.Paragraph, _update_sizes(level, here))
    for name in names:
      # Of a single variant there are no differences.
      blocks += [block for block in STUDIES[name](level, here)
                 if not isinstance(block, tables.Table) or block.rows]
  return blocks


def to_csv(outcomes):
  """Returns every run as a row of CSV text."""
  fields = list(dict.fromkeys(
      name for outcome in outcomes
      for alternative in (*outcome.variant, outcome.sample)
      for name, _ in alternative))
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(['run', 'level', *fields, 'seed', 'final_return', 'frames',
                   'total_frames'])
  for outcome in outcomes:
    values = dict(pair for alternative in (*outcome.variant, outcome.sample)
                  for pair in alternative)
    writer.writerow([
        outcome.logdir, outcome.level,
        *(values.get(name, '') for name in fields), outcome.seed,
        '' if outcome.final is None else outcome.final, outcome.frames,
        outcome.total_frames])
  return text.getvalue()


def write(outcomes, names, report_dir, how_final=_HOW_FINAL):
  """Writes studies, their pictures and the table of all runs.

  Args:
    outcomes: See `build`, as for all but the next.
    names: See above.
    report_dir: A directory.
    how_final: See above.

  Returns:
    The path of the text.

  Raises:
    OSError: They cannot be written.
    ValueError: A study cannot be made of these runs.
  """
  blocks = build(outcomes, names, how_final)
  paths = writing.write_pictures(blocks, report_dir, 'study')
  writing.write_texts({
      'study.md': markdown.render(blocks, paths, TITLE, picture_text='{}'),
      'study.csv': to_csv(outcomes)}, report_dir)
  return os.path.join(report_dir, 'study.md')
