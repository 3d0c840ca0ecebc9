"""The best agent of a sweep, where the sweep is what is repeated.

Schmitt et al., "Off-Policy Actor-Critic with Shared Experience Replay", 2020,
https://arxiv.org/abs/1909.11583, section 5: the agents of a sweep that share
replay, or the members of a population, are not independent of each other. So a
sweep counts once, by its best and its mean agent.
"""

import collections
import itertools
import os

import numpy as np

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import tables
from scalable_agent.studies import conditions
from scalable_agent.studies import intervals
from scalable_agent.studies import outcomes as outcomes_lib
from scalable_agent.studies import pictures
from scalable_agent.studies import tables as study_tables

# Points of a curve, each the mean of this part of the frames.
_POINTS = 20
# The best agent at a point is partly the luckiest one, so curves are smoothed
# before it is found.
_SMOOTHED = 3
_UNITS = 'sweeps'
# How far agents that share replay may be apart, as a part of what the first
# has.
_UNEVEN = .05
_HOW = (
    'The agents of a sweep may share replay, or copy each other, and are not '
    'independent then: a sweep counts once. Returns are means over a twentieth '
    'of the frames, and smoothed over three of these. LASER has means over 1 '
    'million frames on Atari, and over 10 million on DMLab-30. "Best" is the '
    'best agent at each point, "on the way" the mean over all points that are '
    'known, which is what conditions are compared by. Pairs are of sweeps with '
    'the same seed and as many agents, at the points that are known of both. A '
    'point is unknown before the first episodes, and from where an agent of '
    'the sweep has no more frames.')

_Sweep = collections.namedtuple(
    '_Sweep', 'seed agents best mean frames updates')
_Sweep.__doc__ = """What the agents of a sweep have come to.

  seed: The least of their repetitions, see `outcomes.repetition`.
  agents: How many there are.
  best, mean: float64 [_POINTS], the greatest and the mean of the agents'
    smoothed returns at each point. NaN where no agent has ended an episode yet,
    and where an agent has fewer frames.
  frames: float64 [_POINTS], environment frames of an agent at each point.
  updates: A list of the updates of each agent, None where it has not said.
"""


def build(level, outcomes):
  """Returns what the study says of one level, a list of blocks.

  Args:
    level: Its name.
    outcomes: A list of `outcomes.Outcome`s on it.

  Raises:
    ValueError: See `conditions.by_condition`.
  """
  usual, sweeps = _by_condition(outcomes)
  blocks = [blocks_lib.Heading(f'{level}: the best agent of a sweep'),
            blocks_lib.Paragraph(_HOW)]
  if usual:
    blocks.append(blocks_lib.Paragraph(
        f'The usual settings are {usual}. A condition is named by what it has '
        'instead.'))
  uneven = _uneven(outcomes)
  if uneven:
    blocks.append(blocks_lib.Paragraph(
        'Agents that share replay should train at equal speed. In '
        f'{", ".join(uneven)} they differ by more than '
        f'{100 * _UNEVEN:g} % in their frames or updates so far.'))
  blocks += [blocks_lib.Paragraph(
      f'Pairs of "{a}" and "{b}" whose sweeps have not as many agents are left '
      f'out, {count} in all: the best of more agents is higher by chance '
      'alone.')
             for (a, b), count in _unequal(sweeps).items()]
  blocks.append(_table(sweeps))
  for agent in ('best', 'mean') if len(sweeps) > 1 else ():
    blocks += [
        blocks_lib.Paragraph(f'Differences of the {agent} agent on the way:'),
        _differences(sweeps, agent)]
  return blocks + [
      blocks_lib.Picture(f'{level} best of sweep', _draw(level, sweeps))]


def _by_condition(outcomes):
  """As `conditions.by_condition`, with a `_Sweep` for the agents of each."""
  found = conditions.by_condition(outcomes)
  return found._replace(sweeps={
      name: list(map(_read, sweeps)) for name, sweeps in found.sweeps.items()})


def _read(agents):
  """Returns the `_Sweep` of a list of `Outcome`s."""
  by_point = np.array(list(map(_curve, agents))).T
  frames = np.array(list(map(_frames, agents)))
  reached = np.array([[outcome.frames] for outcome in agents])
  by_point[np.any(frames > reached, axis=0)] = np.nan
  return _Sweep(
      min(map(outcomes_lib.repetition, agents)), len(agents),
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
    # Where no episode has ended, the last return stands.
    if np.isnan(values[i]):
      values[i] = values[i - 1]
  return np.array([
      _of_known(np.mean, values[max(i - _SMOOTHED + 1, 0):i + 1])
      for i in range(_POINTS)])


def _of_known(statistic, values):
  known = values[~np.isnan(values)]
  return statistic(known) if len(known) else np.nan


def _uneven(outcomes):
  """Finds sweeps that share replay whose agents have not got equally far.

  Args:
    outcomes: A list of `outcomes.Outcome`s.

  Returns:
    A list of directories of sweeps whose agents differ in frames or updates by
    more than `_UNEVEN` of the most.
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
  return bool(known) and min(known) < (1. - _UNEVEN) * max(known)


def _table(sweeps_by_name):
  """What the sweeps of each condition have come to, a `blocks.Table`.

  Args:
    sweeps_by_name: Of `_by_condition`.
  """
  header = ['condition', _UNITS, 'agents', 'frames of an agent',
            'frames of all', 'updates of an agent', 'best agent at the end',
            '95 %', 'best agent on the way', '95 %', 'mean agent at the end',
            '95 %', 'mean agent on the way', '95 %']
  rows = []
  for name, sweeps in sweeps_by_name.items():
    row = [name, str(len(sweeps)), _range([sweep.agents for sweep in sweeps]),
           _range([_known_frames(sweep) for sweep in sweeps]),
           _range([sweep.agents * _known_frames(sweep) for sweep in sweeps]),
           _updates_text(sweeps)]
    for statistic in (_best_at_end, _best_on_the_way, _mean_at_end,
                      _mean_on_the_way):
      values = list(_by_seed(sweeps, statistic).values())
      row += [study_tables.number(np.mean(values) if values else None),
              study_tables.interval_text(intervals.of_mean(values))]
    rows.append(row)
  return blocks_lib.Table(header, rows)


def _unequal(sweeps_by_name):
  """Counts pairs of a seed that have not as many agents, and do not count.

  Args:
    sweeps_by_name: Of `_by_condition`.

  Returns:
    A dict of pairs of names to how many there are, without zeros.
  """
  counts = {
      (a, b): sum(one.seed == other.seed and one.agents != other.agents
                  for one, other in itertools.product(
                      sweeps_by_name[a], sweeps_by_name[b]))
      for a, b in itertools.combinations(sweeps_by_name, 2)}
  return {names: count for names, count in counts.items() if count}


def _differences(sweeps_by_name, agent='best'):
  """Compares the agents on the way, paired by seed, a `blocks.Table`.

  The best of more agents is higher by chance alone, so that both have as many.

  Args:
    sweeps_by_name: Of `_by_condition`.
    agent: 'best' or 'mean', which curve of a `_Sweep` to compare.
  """
  return study_tables.difference_table(_UNITS, [
      [a, b, *study_tables.difference(*_where_both_are_known(
          sweeps_by_name[a], sweeps_by_name[b], agent))]
      for a, b in itertools.combinations(sweeps_by_name, 2)])


def _where_both_are_known(first, second, agent):
  """Returns two dicts of seed to the mean of a curve over the same points.

  Otherwise one whose first episodes end late would lack its worst points.
  """
  found = {}, {}
  for one, other in itertools.product(first, second):
    curves = [getattr(sweep, agent) for sweep in (one, other)]
    is_known = ~np.isnan(sum(curves))
    if (one.seed, one.agents) == (other.seed, other.agents) and np.any(
        is_known):
      for returns, curve in zip(found, curves):
        returns[one.seed] = float(np.mean(curve[is_known]))
  return found


def _draw(level, sweeps_by_name):
  """Draws the best agent of each condition, with intervals over sweeps; a PNG.

  Args:
    level: The level's name.
    sweeps_by_name: Of `_by_condition`.
  """
  by_name = {}
  for name, sweeps in sweeps_by_name.items():
    points = []
    for i, frames in enumerate(sweeps[0].frames):
      values = [sweep.best[i] for sweep in sweeps
                if not np.isnan(sweep.best[i])]
      if values:
        points.append((frames, np.mean(values), intervals.of_mean(values),
                       len(values) == len(sweeps)))
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


def _mean_on_the_way(sweep):
  return float(_of_known(np.mean, sweep.mean))


def _updates_text(sweeps):
  updates = [value for sweep in sweeps for value in sweep.updates]
  return tables.MISSING if None in updates else _range(updates)


def _range(values):
  low, high = min(values), max(values)
  return f'{low:,.0f}' if low == high else f'{low:,.0f} to {high:,.0f}'
