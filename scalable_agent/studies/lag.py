"""Final returns against the policy lag (paper, Appendix E.1)."""

import itertools

import numpy as np

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import pictures
from scalable_agent.studies import selection
from scalable_agent.studies import tables as study_tables
from scalable_agent.studies import variants as variants_lib

_LAG = 'policy_lag'
# With more samples there would be too many pictures.
_MAX_PICTURED_SAMPLES = 6
_HOW = (
    'Bars are intervals over seeds. Of several hyperparameters, every second '
    'seed chooses at each point those that are the best with it, and what is '
    'shown is what the other seeds have got with these.')


def build(level, outcomes):
  """Returns what the study says of one level, a list of blocks.

  Args:
    level: Its name.
    outcomes: A list of `outcomes.Outcome`s on it.

  Raises:
    ValueError: See `variants.by_variant`; or they say nothing of their lag, or
      cannot be read.
  """
  variants = variants_lib.by_variant('lag', outcomes)
  lines = _by_lag(variants)
  samples = _samples_of(variants)
  best = 'best hyperparameters' if len(samples) > 1 else ''
  blocks = [
      blocks_lib.Heading(f'{level}: policy lag'),
      blocks_lib.Paragraph(_HOW),
      *variants_lib.left_out(variants, _kept)]
  resumed = _resumed(outcomes)
  if resumed:
    blocks.append(blocks_lib.Paragraph(
        f'{len(resumed)} of {len(outcomes)} runs were resumed, and began '
        'without lag again. They count all the same: ' + ', '.join(
            outcome.logdir for outcome in resumed) + '.'))
  missing = _without_best(lines)
  if missing:
    blocks.append(blocks_lib.Paragraph(
        'No best hyperparameters can be chosen where their samples have no '
        'seed in common that chooses, or none that is shown, so that there is '
        'nothing to show: '
        f'{"; ".join(missing)}. Give the sweep more --seeds, or use '
        '--study=stability, which takes the mean over all samples.'))
  blocks += [
      _table(lines), _differences(lines),
      blocks_lib.Picture(f'{level} lag', _draw(
          ', '.join(filter(None, [level, best])), lines, None))]
  if 1 < len(samples) <= _MAX_PICTURED_SAMPLES:
    for i, sample in enumerate(samples):
      name = outcomes_lib.describe([sample])
      blocks.append(blocks_lib.Picture(
          f'{level} lag {i}', _draw(f'{level}, {name}', lines, sample)))
  return blocks


def _kept(samples):
  return selection.runs_of(selection.complete(samples))


def _by_lag(variants):
  """Sorts variants by what they are apart from their lag.

  Args:
    variants: Of `outcomes.by_variant`.

  Returns:
    A dict of the rest of a variant to a dict of lag to what `variants` has of
    it, the least lag first.

  Raises:
    ValueError: A variant says nothing of its lag.
  """
  found, rests = {}, {}
  for variant, samples in variants.items():
    lags = [dict(alternative)[_LAG] for alternative in variant
            if _LAG in dict(alternative)]
    if not lags or not isinstance(lags[0], int):
      raise ValueError(
          f'--study=lag needs runs whose sweep varies {_LAG}; those of '
          f'"{outcomes_lib.describe(variant)}" do not.')
    rest = tuple(filter(None, (
        tuple(pair for pair in alternative if pair[0] != _LAG)
        for alternative in variant)))
    # Where sweeps name the same settings differently, the first names count.
    rest = rests.setdefault(frozenset(itertools.chain(*rest)), rest)
    found.setdefault(rest, {})[lags[0]] = samples
  return {rest: dict(sorted(lags.items())) for rest, lags in found.items()}


def _resumed(outcomes):
  """Returns those whose actors had newer weights than --policy_lag asks for.

  A run that resumes has no earlier weights. So it begins without lag, and has
  all of it after as many updates.

  Args:
    outcomes: A list of `Outcome`s. One without `metrics.jsonl` is none of them.

  Returns:
    A list of `Outcome`s.

  Raises:
    ValueError: A `metrics.jsonl` cannot be read.
  """
  return [outcome for outcome in outcomes if _has_less_lag(
      outcome.logdir, outcome.settings.get(_LAG) or 0)]


def _has_less_lag(logdir, lag):
  """Whether updates after the first `lag` ones were made with less lag."""
  before = 0
  for metrics in runs_lib.read_metrics(logdir):
    # The mean, since the greatest of a line may be of later updates, which have
    # their lag back.
    mean, updates = (
        metrics.get(name) for name in ('policy_lag_mean', 'learner_steps'))
    if not isinstance(mean, float) or not isinstance(updates, int):
      continue
    if before >= lag > mean and updates > before:
      return True
    before = updates
  return False


def _samples_of(variants):
  """Returns all samples that a variant has, each once, a list."""
  return list(dict.fromkeys(
      sample for samples in variants.values() for sample in samples))


def _halves(lines):
  """Returns the seeds that choose a best sample, and those that are shown.

  Each half has every second seed of all lines. So all lines show the same
  seeds, whatever one of them lacks.

  Args:
    lines: Of `_by_lag`.

  Returns:
    A pair of lists.
  """
  seeds = sorted({seed for lags in lines.values() for samples in lags.values()
                  for found in samples.values() for seed in found})
  return seeds[::2], seeds[1::2]


def _choose(samples, sample, seeds):
  """Returns final returns of one sample, or of the best.

  Half of the seeds choose the best, and the others are shown, which owe nothing
  to the luck of the choice. If both halves were shown, each chosen by the
  other, they would depend on each other. Samples have to have seeds of both
  halves in common, see `selection.complete`.

  Args:
    samples: A dict of sample to a dict of seed to `Outcome`.
    sample: Which one; None takes the best.
    seeds: Of `_halves`.

  Returns:
    A dict of seed to float, empty where no best can be chosen.
  """
  if sample is None and len(samples) == 1:
    (sample,) = samples
  if sample is not None:
    return {seed: outcome.final
            for seed, outcome in samples.get(sample, {}).items()}
  kept = selection.complete(samples)
  shared = set().union(*kept.values())
  choosing, shown = ([seed for seed in half if seed in shared]
                     for half in seeds)
  if not choosing or not shown:
    return {}
  best = max(kept.values(), key=lambda found: selection.mean_final(
      found[seed] for seed in choosing))
  return {seed: best[seed].final for seed in shown}


def _without_best(lines):
  """Returns where no best sample can be chosen, a list of names.

  Args:
    lines: Of `_by_lag`.
  """
  seeds = _halves(lines)
  return [_at(rest, lag) for rest, lags in lines.items()
          for lag, samples in lags.items()
          if samples and not _choose(samples, None, seeds)]


def _at(rest, lag):
  return f'{outcomes_lib.describe(rest)}, lag {lag}'


def _draw(title, lines, sample):
  """Draws returns against the lag, see `pictures.against_lag`.

  Args:
    title: What is drawn.
    lines: Of `_by_lag`.
    sample: Of which to take the runs; None takes the best of each variant.
  """
  by_name, seeds = {}, _halves(lines)
  for rest, lags in lines.items():
    points = []
    for lag, samples in lags.items():
      values = list(_choose(samples, sample, seeds).values())
      if values:
        points.append((lag, float(np.mean(values)),
                       intervals.of_mean(values)))
    by_name[outcomes_lib.describe(rest)] = points
  return pictures.against_lag(title, by_name)


def _table(lines):
  """Mean final returns of the best samples, with intervals, a `blocks.Table`.

  Args:
    lines: Of `_by_lag`.
  """
  lags = sorted({lag for found in lines.values() for lag in found})
  rows, seeds = [], _halves(lines)
  for lag in lags:
    row = [str(lag)]
    for found in lines.values():
      values = list(_choose(found.get(lag, {}), None, seeds).values())
      row.append(_cell(values) if values else tables.MISSING)
    rows.append(row)
  return blocks_lib.Table(
      ['lag', *map(outcomes_lib.describe, lines)], rows)


def _cell(values):
  interval = intervals.of_mean(values)
  return (f'{study_tables.number(np.mean(values))} '
          f'({study_tables.interval_text(interval)}, {len(values)} seeds)')


def _differences(lines):
  """Compares best samples at each lag, paired by seed, a `blocks.Table`."""
  rows, seeds = [], _halves(lines)
  for lag in sorted({lag for lags in lines.values() for lag in lags}):
    for a, b in variants_lib.neighbours(lines):
      rows.append([
          _at(a, lag), outcomes_lib.describe(b),
          *study_tables.difference(*(
              _choose(lines[variant].get(lag, {}), None, seeds)
              for variant in (a, b)))])
  return study_tables.difference_table('seeds', rows)
