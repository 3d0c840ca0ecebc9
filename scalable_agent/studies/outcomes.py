"""What the runs of a sweep have come to, by variant, sample and seed."""

import collections
import itertools
import math
import os

import numpy as np

from scalable_agent import config as config_lib
from scalable_agent.results import agents
from scalable_agent.results import published
from scalable_agent.results import runs as runs_lib
from scalable_agent.studies import sweep_file
from scalable_agent.suites import scores as suite_scores

# Those of the paper's Table D.1. Where a sweep varies one, that makes another
# sample and not another variant.
HYPERPARAMETERS = ('entropy_cost', 'learning_rate', 'epsilon')
# "Final" is what ended in this last part of the frames.
_LAST = .1
_DEFAULT_AGENT = config_lib.SETTINGS['agent'].default

Outcome = collections.namedtuple(
    'Outcome', 'logdir level variant sample drawn seed settings final '
    'frames total_frames episodes updates sweep_seed', defaults=[None, None])
Outcome.__doc__ = """A run of a sweep.

  logdir: Its directory.
  level: --level_name.
  variant: What is compared: a tuple of alternatives, each a tuple of pairs of
    setting and value that go together.
  sample: The hyperparameters it was tried with, a tuple of such pairs.
  drawn: Those of these pairs that were drawn, and not chosen by the user; a
    frozenset.
  seed: --seed.
  settings: What makes its agent what it is, a dict of setting to value.
  final: Its final return, a float; None if no episode ended in the last tenth
    of its frames.
  frames, total_frames: Environment frames it has got to, and is to take.
  episodes: A dict of level to `runs.Episodes`.
  updates: Updates that it has made, None if it has not said.
  sweep_seed: The seed of its sweep, if each run of that has one of its own;
    else None.
"""


def final_return(run):
  """Returns the mean return of a `runs.Run` at its end.

  That is over the episodes that ended in the last tenth of its frames, or of
  those that it has got to. Of a suite it is the mean capped human-normalised
  score, in percent.

  Returns:
    A float, or None if an episode is missing.
  """
  total = run.config.get('total_environment_frames') or run.frames
  return mean_return(run.config.get('level_name'), run.episodes,
                     (1. - _LAST) * min(run.frames, total), math.inf)


def mean_return(name, episodes, start, end):
  """Returns the mean return of the episodes that ended within some frames.

  Args:
    name: --level_name. Of a suite it is the mean capped human-normalised score,
      in percent.
    episodes: A dict of level to `runs.Episodes`.
    start, end: Frames. Episodes count that ended after `start`, up to `end`.

  Returns:
    A float, or None if an episode is missing.
  """
  within = {level: found.returns[(found.frames > start) & (found.frames <= end)]
            for level, found in episodes.items()}
  if published.levels_of_suite(name):
    return suite_scores.compute(name, within).get(suite_scores.FITNESS)
  returns = np.concatenate([*within.values(), np.zeros([0])])
  return float(np.mean(returns)) if len(returns) else None


def split(variant, sample):
  """Tells the settings that are compared from those of the sample.

  Args:
    variant, sample: As in a run's mark, see `sweep_file`.

  Returns:
    The `variant` and the `sample` of an `Outcome`.
  """
  compared, tried = [], []
  for alternative in variant:
    if alternative.keys() <= set(HYPERPARAMETERS):
      tried += alternative.items()
    else:
      compared.append(tuple(alternative.items()))
  return tuple(compared), (*tried, *sample.items())


def read(logdir):
  """Reads a run of a sweep.

  Args:
    logdir: Its directory.

  Returns:
    An `Outcome`, without a level if the run died before its first batch.

  Raises:
    FileNotFoundError: There is neither a run nor its mark in it.
    ValueError: It is no run of a sweep, or a file in it cannot be read.
  """
  try:
    run = runs_lib.read(logdir)
  except FileNotFoundError:
    # The mark is there before the process starts.
    if not os.path.exists(os.path.join(logdir, sweep_file.NAME)):
      raise
    run = runs_lib.Run(logdir, {}, 0, {}, {}, None)
  mark = sweep_file.read(logdir)
  if not mark:
    raise ValueError(
        f'{logdir} is no run of a sweep: it has no {sweep_file.NAME}.')
  variant, sample = split(mark['variant'], mark['sample'])
  return Outcome(
      logdir, run.config.get('level_name'), variant, sample,
      frozenset(mark['sample'].items()),
      run.config.get('seed'), agents.settings_of(run), final_return(run),
      run.frames, run.config.get('total_environment_frames'), run.episodes,
      run.updates, mark.get('sweep_seed'))


def read_beside_others(logdir):
  """Reads a run that may be compared with those of another agent's sweep.

  As `read`, but an agent that is not IMPALA is a part of the variant: each
  agent's sweep varies its own settings.
  """
  outcome = read(logdir)
  agent = outcome.settings.get('agent', _DEFAULT_AGENT)
  if agent in (_DEFAULT_AGENT, agent_of(outcome.variant)):
    return outcome
  return outcome._replace(variant=((('agent', agent),), *outcome.variant))


def read_all(logdir):
  """Reads the runs of a sweep, a list of `Outcome`s.

  Args:
    logdir: The directory of the sweep.

  Raises:
    OSError: It cannot be read.
    ValueError: A file of a run cannot be read.
  """
  paths = [os.path.join(logdir, name) for name in sorted(os.listdir(logdir))]
  return [read(path) for path in paths
          if os.path.exists(os.path.join(path, sweep_file.NAME))]


def in_one_order(outcomes):
  """Gives variants and samples of the same values one spelling, the first.

  Sweeps may name the same settings in another order, or others of them
  together.

  Args:
    outcomes: A list of `Outcome`s.

  Returns:
    Such a list.
  """
  variants, samples = {}, {}
  found = []
  for outcome in outcomes:
    variant, sample = unordered(outcome.variant, outcome.sample)
    found.append(outcome._replace(
        variant=variants.setdefault(variant, outcome.variant),
        sample=samples.setdefault(sample, outcome.sample)))
  return found


def unordered(variant, sample):
  """Returns a variant and a sample whatever the order of their settings.

  Args:
    variant, sample: As of an `Outcome`.

  Returns:
    A pair of frozensets of pairs of setting and value.
  """
  return frozenset(itertools.chain(*variant)), frozenset(sample)


def by_variant(outcomes):
  """Sorts the outcomes on one level.

  Args:
    outcomes: A list of `Outcome`s.

  Returns:
    A dict of variant to a dict of sample to a dict of `repetition` to
    `Outcome`, without those that have no final return.

  Raises:
    ValueError: Two of them are the same but for their directory.
  """
  found = {}
  for outcome in outcomes:
    samples = found.setdefault(outcome.variant, {})
    if outcome.final is not None:
      seeds = samples.setdefault(outcome.sample, {})
      other = seeds.setdefault(repetition(outcome), outcome)
      if other is not outcome:
        raise ValueError(
            f'{other.logdir} and {outcome.logdir} are of the same variant, '
            f'sample and seed ({outcome.seed}). Leave one out.')
  return found


def repetition(outcome):
  """Returns the seed by which a run is compared with those of other settings.

  It is that of the sweep, which has drawn the seeds of its runs from it, or
  else the run's own.

  Args:
    outcome: An `Outcome`, or another record of a run with these two seeds.
  """
  if outcome.sweep_seed is not None:
    return outcome.sweep_seed
  return outcome.seed


def mixed_settings(outcomes):
  """Finds settings that differ within a variant.

  Args:
    outcomes: A list of `Outcome`s on one level.

  Returns:
    A list of names, sorted.
  """
  first, mixed = {}, set()
  for outcome in outcomes:
    other = first.setdefault(outcome.variant, outcome)
    mixed |= {name for name, value in outcome.settings.items()
              if other.settings.get(name) != value} - {
                  name for name, _ in (*outcome.sample, *other.sample)}
  return sorted(mixed)


def by_update_size(by_name):
  """Sorts runs by how many agent steps an update sums its losses over.

  Those that replay draws are among them. An update of A3C is of one unroll.

  Args:
    by_name: A dict of a name to a list of `Outcome`s.

  Returns:
    A dict of pairs of --batch_size and --unroll_length, whose product it is, to
    a list of names. Runs without settings are left out.
  """
  found = {}
  for name, outcomes in by_name.items():
    for outcome in outcomes:
      if outcome.settings:
        size = tuple(
            outcome.settings[key] for key in ('batch_size', 'unroll_length'))
        found.setdefault(size, {})[name] = None
  return {size: list(names) for size, names in found.items()}


def has_ended(outcome):
  """Whether a run has all of its frames, as far as they are known."""
  return outcome.frames >= (outcome.total_frames or 0)


def has_dependent_runs(outcome):
  """Whether a run got help from others: by replay that they share, or copies.

  Such runs are no independent samples; sweeps and populations are.
  """
  return bool(
      outcome.settings.get('shares_replay')) or is_of_population(outcome)


def agent_of(variant):
  """Returns the --agent of a variant."""
  pairs = [pair for alternative in variant for pair in alternative]
  return dict(pairs).get('agent', _DEFAULT_AGENT)


def is_of_population(outcome):
  """Whether a run is a member of a population."""
  return any('population' in dict(alternative)
             for alternative in outcome.variant)


def describe(variant):
  """Returns what a variant is called where the level is known."""
  pairs = [pair for alternative in variant for pair in alternative]
  return ', '.join(f'{name}={value}' for name, value in pairs
                   if name != 'level_name') or 'all runs'
