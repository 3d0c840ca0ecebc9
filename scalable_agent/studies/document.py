"""What studies say together, as blocks of a report, and as CSV."""

import csv
import io
import math
import os

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import markdown
from scalable_agent.results import writing
from scalable_agent.studies import best3
from scalable_agent.studies import best_of_sweep
from scalable_agent.studies import conditions
from scalable_agent.studies import lag
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import stability

TITLE = 'The variants of a sweep'
STUDIES = {'best3': best3.build, 'stability': stability.build,
           'lag': lag.build, 'best_of_sweep': best_of_sweep.build}

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


def _by_name(names, outcomes):
  """Returns a dict of what runs on one level are called to these runs.

  Args:
    names: As for `build`.
    outcomes: A list of `outcomes.Outcome`s on one level.
  """
  found = {}
  if set(names) == {'best_of_sweep'}:
    for name, sweeps in conditions.by_condition(outcomes).sweeps.items():
      found[name] = [outcome for sweep in sweeps for outcome in sweep]
  else:
    for outcome in outcomes:
      found.setdefault(
          outcomes_lib.describe(outcome.variant), []).append(outcome)
  return found


def _update_sizes(level, by_name):
  """Says how many steps an update sums its losses over; a list."""
  sizes = outcomes_lib.by_update_size(by_name)
  if not sizes:
    return []
  parts = []
  for (batch_size, unroll_length), names in sizes.items():
    parts.append(
        f'{batch_size * unroll_length} steps (batch_size={batch_size}, '
        f'unroll_length={unroll_length})')
    if len(sizes) > 1:
      parts[-1] += ' with ' + ', '.join(f'"{name}"' for name in names)
  text = f'{level}: an update sums its losses over {"; ".join(parts)}.'
  if len(set(map(math.prod, sizes))) > 1:
    text += (' So updates of these differ in size at the same learning rate '
             'and epsilon.')
  return [text]


def build(outcomes, names, how_final=_HOW_FINAL):
  """Builds the report.

  Args:
    outcomes: A list of `outcomes.Outcome`s, at least one.
    names: A list of studies, keys of `STUDIES`.
    how_final: What a final return is, in a sentence or two.

  Returns:
    A list of blocks, see `results.blocks`.

  Raises:
    ValueError: A study cannot be made of these runs.
  """
  for name in names:
    if name not in STUDIES:
      raise ValueError(
          f'--study={name} is no study. Expected {", ".join(STUDIES)}.')
  outcomes = outcomes_lib.in_one_order(outcomes)
  blocks = [blocks_lib.Paragraph(f'{how_final} {_HOW_SURE}')]
  blocks += map(blocks_lib.Paragraph, _missing(outcomes))
  for level in dict.fromkeys(outcome.level for outcome in outcomes):
    here = [outcome for outcome in outcomes if outcome.level == level]
    if all(outcome.final is None for outcome in here):
      continue  # The notes above say which runs are missing.
    if set(names) - {'best_of_sweep'}:
      # That study keeps them apart itself.
      blocks += map(blocks_lib.Paragraph, _mixed(level, here))
    blocks += map(
        blocks_lib.Paragraph, _update_sizes(level, _by_name(names, here)))
    for name in names:
      # A single variant has no differences.
      blocks += [block for block in STUDIES[name](level, here)
                 if not isinstance(block, blocks_lib.Table) or block.rows]
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
    outcomes, names, how_final: As for `build`.
    report_dir: A directory.

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
