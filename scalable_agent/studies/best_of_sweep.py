"""The best agent of a sweep, where the sweep is what is repeated.

Schmitt et al., "Off-Policy Actor-Critic with Shared Experience Replay", 2019,
https://arxiv.org/abs/1909.11583, section 5: the agents of a sweep that share
replay, or the members of a population, are not independent of each other. So a
sweep counts once, by its best and its mean agent.
"""

import collections
import itertools
import os

import numpy as np

from scalable_agent.results import tables
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import pictures
from scalable_agent.studies import tables as study_tables

# Points of a curve, each the mean of this part of the frames.
_POINTS = 20
# The best of agents at a point is the luckiest, so that curves are smoothed
# before.
_SMOOTHED = 3
_UNITS = 'sweeps'
# The name of a condition that differs from the usual settings in nothing.
_USUAL = 'usual settings'
# Agents that share replay may be so far apart, as a part of what the first has.
UNEVEN = .05

Sweep = collections.namedtuple('Sweep', 'seed agents best mean frames updates')
Sweep.__doc__ = """What the agents of a sweep have come to.

  seed: The least of their seeds.
  agents: How many there are.
  best, mean: float64 [_POINTS], of the agents' smoothed returns at each point
    the greatest, and the mean. NaN where no agent has ended an episode yet, and
    where one has not so many frames.
  frames: float64 [_POINTS], environment frames of an agent at each point.
  updates: A list of the updates of each agent, None where it has not said.
"""

Conditions = collections.namedtuple('Conditions', 'usual sweeps')
Conditions.__doc__ = """Sweeps, sorted by what was different in them.

  usual: The settings that a condition has unless its name says otherwise, a
    string; '' if the names say all.
  sweeps: A dict of the name of a condition to a list of `Sweep`s.
"""


def by_condition(outcomes):
  """Sorts outcomes on one level into sweeps.

  Agents of a sweep are below one directory, and differ in hyperparameters at
  the most. Where they do not depend on each other, each seed of them is a
  sweep.

  Args:
    outcomes: A list of `outcomes.Outcome`s.

  Returns:
    `Conditions`.

  Raises:
    ValueError: Two sweeps of a condition have the same seed, an agent has none,
      or two conditions have the same name.
  """
  described = {}
  groups = collections.defaultdict(lambda: collections.defaultdict(list))
  for outcome in outcomes:
    if outcome.seed is None:
      raise ValueError(
          f'{outcome.logdir} has no config.json with a seed, by which sweeps '
          'are compared. Leave it out.')
    directory = os.path.dirname(os.path.normpath(outcome.logdir))
    repetition = directory, (
        None if outcomes_lib.has_dependent_runs(outcome) else outcome.seed)
    condition = _condition(outcome)
    # What was varied is in the name, also where it is as usual.
    described.setdefault(condition, (outcome.variant, condition[1]))
    groups[condition][repetition].append(outcome)
  for repetitions in groups.values():
    _refuse_equal_seeds(repetitions)
  usual, names = _usual_and_names(list(described.values()))
  sweeps = {}
  for condition, repetitions in groups.items():
    name = names[described[condition]]
    if name in sweeps:
      raise ValueError(
          f'Two conditions that are both called "{name}" cannot be told apart. '
          'Report on each of them by itself.')
    sweeps[name] = [_read(agents) for agents in repetitions.values()]
  return Conditions(usual, sweeps)


def _refuse_equal_seeds(repetitions):
  """Refuses sweeps that would be one point of a comparison by seed.

  Args:
    repetitions: A dict of anything to a list of `Outcome`s.
  """
  first = {}
  for agents in repetitions.values():
    least = min(agents, key=lambda outcome: outcome.seed)
    other = first.setdefault(least.seed, least)
    if other is not least:
      raise ValueError(
          f'{other.logdir} and {least.logdir} are of two sweeps of the same '
          f'condition and seed ({least.seed}). Leave one out, and give each '
          'sweep a --seed of its own.')


def _condition(outcome):
  """What two sweeps have to have in common, a pair of hashable values."""
  tried = {*outcomes_lib.HYPERPARAMETERS, *dict(outcome.sample)}
  if (outcomes_lib.is_of_population(outcome) or
      not outcome.settings.get('warm_start')):
    # Each member that copied weights has another path there, and where there is
    # none it tells nothing.
    tried.add('warm_start')
  settings = {name: value for name, value in sorted(outcome.settings.items())
              if name not in tried}
  # A setting is the same whether it was varied or given for a whole sweep.
  varied = [(name, value) for alternative in outcome.variant
            for name, value in alternative if settings.get(name) != value]
  return tuple(varied), tuple(settings.items())


def _usual_and_names(conditions):
  """Returns the settings of most conditions, and how each is named by the rest.

  Returns:
    A string, '' if there are none; and a dict of condition to its name.
  """
  settings = [dict(rest) for _, rest in conditions]
  differing = [name for name in sorted(set().union(*settings)) if len(
      {found.get(name) for found in settings}) > 1]
  usual = {}
  for name in differing:
    counts = collections.Counter(
        found[name] for found in settings if found.get(name) is not None)
    (value, count), = counts.most_common(1)
    # What some do not have at all, as without replay, names none of the others.
    if len(counts) == 1 or count > len(settings) / 2:
      usual[name] = value
  names = _name_all(conditions, differing, usual)
  if len(set(names.values())) < len(names):
    usual = {}
    names = _name_all(conditions, differing, usual)
  return outcomes_lib.describe([tuple(usual.items())]) if usual else '', names


def _name_all(conditions, differing, usual):
  names = {}
  for variant, rest in conditions:
    found = dict(rest)
    varied = {name for alternative in variant for name, _ in alternative}
    others = tuple(
        (name, found[name]) for name in differing if name not in varied and
        found.get(name) is not None and found[name] != usual.get(name))
    named = (*variant, others)
    names[variant, rest] = (
        outcomes_lib.describe(named) if any(named) or not usual else _USUAL)
  return names


def _read(agents):
  """Returns the `Sweep` of a list of `Outcome`s."""
  by_point = np.array(list(map(_curve, agents))).T
  frames = np.array(list(map(_frames, agents)))
  reached = np.array([[outcome.frames] for outcome in agents])
  by_point[np.any(frames > reached, axis=0)] = np.nan
  return Sweep(
      min(outcome.seed for outcome in agents), len(agents),
      np.array([_of_known(np.max, returns) for returns in by_point]),
      np.array([_of_known(np.mean, returns) for returns in by_point]),
      np.max(frames, axis=0), [outcome.updates for outcome in agents])


def _frames(outcome):
  """The frames that an agent has, or is to have, at each point."""
  return (outcome.total_frames or outcome.frames) * np.arange(
      1, _POINTS + 1) / _POINTS


def _curve(outcome):
  """The smoothed return of an agent at each point, float64 [_POINTS]."""
  ends = [0, *_frames(outcome)]
  values = np.array([
      np.nan if value is None else value for value in (
          outcomes_lib.mean_return(outcome.level, outcome.episodes, start, end)
          for start, end in zip(ends, ends[1:]))])
  for i in range(1, _POINTS):
    # Where no episode has ended, the agent is as it was.
    if np.isnan(values[i]):
      values[i] = values[i - 1]
  return np.array([
      _of_known(np.mean, values[max(i - _SMOOTHED + 1, 0):i + 1])
      for i in range(_POINTS)])


def _of_known(statistic, values):
  known = values[~np.isnan(values)]
  return statistic(known) if len(known) else np.nan


def uneven(outcomes):
  """Finds sweeps that share replay whose agents have not got equally far.

  Args:
    outcomes: A list of `outcomes.Outcome`s.

  Returns:
    A list of directories, of those whose agents differ in frames or updates by
    more than `UNEVEN` of the most.
  """
  reached = collections.defaultdict(list)
  for outcome in outcomes:
    if outcome.settings.get('shares_replay'):
      reached[os.path.dirname(os.path.normpath(outcome.logdir))].append(
          (outcome.frames, outcome.updates))
  return [directory for directory, pairs in reached.items()
          if any(map(_differ, zip(*pairs)))]


def _differ(values):
  known = [value for value in values if value is not None]
  return bool(known) and min(known) < (1. - UNEVEN) * max(known)


def table(sweeps_by_name):
  """What the sweeps of each condition have come to, a `tables.Table`.

  Args:
    sweeps_by_name: Of `Conditions`.
  """
  header = ['condition', _UNITS, 'agents', 'frames of an agent',
            'frames of all', 'updates of an agent', 'best agent at the end',
            '95 %', 'best agent on the way', '95 %', 'mean agent at the end',
            '95 %']
  rows = []
  for name, sweeps in sweeps_by_name.items():
    row = [name, str(len(sweeps)), _range([sweep.agents for sweep in sweeps]),
           _range([_known_frames(sweep) for sweep in sweeps]),
           _range([sweep.agents * _known_frames(sweep) for sweep in sweeps]),
           _updates_text(sweeps)]
    for statistic in (_best_at_end, _best_on_the_way, _mean_at_end):
      values = list(_by_seed(sweeps, statistic).values())
      row += [study_tables.number(np.mean(values) if values else None),
              study_tables.interval_text(intervals.of_mean(values))]
    rows.append(row)
  return tables.Table(header, rows)


def unequal(sweeps_by_name):
  """Counts pairs of a seed that have not as many agents, and do not count.

  Args:
    sweeps_by_name: Of `Conditions`.

  Returns:
    A dict of pairs of names to how many there are, without those of none.
  """
  counts = {
      (a, b): sum(one.seed == other.seed and one.agents != other.agents
                  for one, other in itertools.product(
                      sweeps_by_name[a], sweeps_by_name[b]))
      for a, b in itertools.combinations(sweeps_by_name, 2)}
  return {names: count for names, count in counts.items() if count}


def differences(sweeps_by_name):
  """Compares the best agents on the way, paired by seed, a `tables.Table`.

  The best of more agents is higher by chance alone, so that both have as many.

  Args:
    sweeps_by_name: Of `Conditions`.
  """
  return study_tables.difference_table(_UNITS, [
      [a, b, *study_tables.difference(*_best_where_both_are_known(
          sweeps_by_name[a], sweeps_by_name[b]))]
      for a, b in itertools.combinations(sweeps_by_name, 2)])


def _best_where_both_are_known(first, second):
  """Returns two dicts of seed to the best agent's mean over the same points.

  Otherwise one whose first episodes end late would lack its worst points.
  """
  found = {}, {}
  for one, other in itertools.product(first, second):
    is_known = ~np.isnan(one.best + other.best)
    if (one.seed, one.agents) == (other.seed, other.agents) and np.any(
        is_known):
      for returns, sweep in zip(found, (one, other)):
        returns[one.seed] = float(np.mean(sweep.best[is_known]))
  return found


def draw(level, sweeps_by_name):
  """Draws the best agent of each condition, with intervals over sweeps; a PNG.

  Args:
    level: The level's name.
    sweeps_by_name: Of `Conditions`.
  """
  by_name = {}
  for name, sweeps in sweeps_by_name.items():
    points = []
    for i, frames in enumerate(sweeps[0].frames):
      values = [sweep.best[i] for sweep in sweeps
                if not np.isnan(sweep.best[i])]
      if values:
        points.append((frames, np.mean(values), intervals.of_mean(values)))
    by_name[name] = points
  return pictures.best_agents(level, by_name)


def _by_seed(sweeps, statistic):
  return {sweep.seed: statistic(sweep) for sweep in sweeps
          if not np.isnan(statistic(sweep))}


def _known_frames(sweep):
  return np.max(sweep.frames[~np.isnan(sweep.best)], initial=0)


def _best_at_end(sweep):
  return float(sweep.best[-1])


def _mean_at_end(sweep):
  return float(sweep.mean[-1])


def _best_on_the_way(sweep):
  """The mean over all points: the area under the curve of the best agent."""
  return float(_of_known(np.mean, sweep.best))


def _updates_text(sweeps):
  updates = [value for sweep in sweeps for value in sweep.updates]
  return tables.MISSING if None in updates else _range(updates)


def _range(values):
  low, high = min(values), max(values)
  return f'{low:,.0f}' if low == high else f'{low:,.0f} to {high:,.0f}'
