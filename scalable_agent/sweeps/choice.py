"""Chooses among the trials of a sweep."""

import os

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.process import errors
from scalable_agent.studies import outcomes
from scalable_agent.studies import selection


def choose(trials, logdir, best, names):
  """Returns those trials that the user has chosen among all of a sweep.

  Args:
    trials: A list of `grid.Trial`s.
    logdir: The directory of the sweep.
    best: How many of the best samples of each variant, 0 for all.
    names: A list of names of trials, None for all.

  Raises:
    ConfigError: There is no such trial, or too few runs have a final return,
      or one of these cannot be read.
  """
  if best:
    trials = _choose_best(trials, logdir, best)
  if names is not None and not names:
    raise config_lib.ConfigError('--only= names no run.')
  known = {trial.name for trial in trials}
  for name in names or ():
    if name not in known:
      raise config_lib.ConfigError(
          f'--only={name} is no run of this sweep, such as {min(known)} is.')
  return [trial for trial in trials if names is None or trial.name in names]


def _choose_best(trials, logdir, count):
  """Returns the trials of each variant's samples that are best so far.

  Args:
    trials: A list of `grid.Trial`s.
    logdir: The directory of the sweep, whose finished runs decide.
    count: How many samples of each variant.

  Raises:
    ConfigError: Too few runs have a final return, or one cannot be read.
  """
  try:
    found = outcomes.by_variant([
        outcome._replace(variant=variant, sample=sample)
        for outcome in outcomes.read_all(logdir)
        if outcomes.has_ended(outcome)
        for variant, sample in [
            outcomes.unordered(outcome.variant, outcome.sample)]])
  except (OSError, ValueError) as e:
    raise config_lib.ConfigError(
        f'--best={count} cannot work: {errors.one_line(e)}') from e
  compared = [
      outcomes.unordered(*outcomes.split(trial.variant, trial.sample))
      for trial in trials]
  missing = [(variant, sample) for variant, sample in dict.fromkeys(compared)
             if sample not in found.get(variant, {})]
  if missing:
    logging.warning(
        '%d of %d samples have no finished run with a final return in %s, and '
        'cannot be among the best', len(missing), len(set(compared)), logdir)
  for variant in dict.fromkeys(variant for variant, _ in compared):
    most = selection.most_of_second_round(found.get(variant, {}))
    if count > most:
      logging.warning(
          '--best=%d: a report tells a second round of "%s" from the first if '
          'it has %d samples at the most. More may be taken for a first round.',
          count, outcomes.describe(variant), most)
  chosen = []
  for trial, (variant, sample) in zip(trials, compared, strict=True):
    samples = found.get(variant, {})
    best = selection.best_samples(samples, count)
    seed = outcomes.repetition(trial)
    done = samples.get(sample, {}).get(seed)
    if done and os.path.basename(done.logdir) != trial.name:
      raise config_lib.ConfigError(
          f'--best={count} cannot work with --seed={seed}, which the first '
          f'round had ({done.logdir}). Begin with another --seed.')
    if len(best) < count:
      named, _ = outcomes.split(trial.variant, trial.sample)
      raise config_lib.refusal(
          'best', count, f'{len(best)} samples of '
          f'"{outcomes.describe(named)}" have a final return in {logdir}. '
          'Run the sweep without --best first')
    if sample in best:
      chosen.append(trial)
  if not chosen:
    raise config_lib.refusal(
        'best', count, f'none of the best samples in {logdir} is a sample of '
        'this sweep. Give --sample_seed and --samples as in the first round')
  return chosen
