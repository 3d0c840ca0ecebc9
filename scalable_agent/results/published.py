"""Suites of levels, and what has been published on them."""

import collections

import numpy as np

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent import suites
from scalable_agent.results import published_atari57

Benchmark = collections.namedtuple(
    'Benchmark', 'name levels human random normalize columns statistics printed'
    ' source')
Benchmark.__doc__ = """A suite.

  name: Of the suite.
  levels: The levels that are scored, in order.
  human: A dict of level to a person's score.
  random: A dict of level to the score of random actions.
  normalize: A function of level and score to percent of the way between these.
  columns: A dict of a published agent to its dict of level to score or None.
  statistics: A dict of name to a function of all levels' percentages.
  printed: A dict of an agent to the statistics that its authors print, in the
    same order; None where they print none.
  source: Where `columns` and `printed` are from.
"""

ATARI57 = Benchmark(
    'Atari-57', atari57.GAMES, atari57.HUMAN_SCORES, atari57.RANDOM_SCORES,
    atari57.human_normalized_score, published_atari57.SCORES,
    {'median': np.median, 'mean': np.mean}, published_atari57.TABLE_4,
    'Espeholt et al., 2018: Table C.1 by game, Table 4 for the suite')

# Of Table B.1's rows, its own human scores make 44.4 % and 49.3 %, where it
# prints 44.5 % and 49.4 %; those of the released code, used everywhere here,
# have small and large lasertag levels exchanged and make 45.7 % and 50.1 %.
DMLAB30 = Benchmark(
    'DMLab-30', tuple(dmlab30.LEVEL_MAPPING.values()), dmlab30.HUMAN_SCORES,
    dmlab30.RANDOM_SCORES, dmlab30.human_normalized_score,
    {agent: {level: getattr(row, field)
             for level, row in dmlab30.TABLE_B1.items()}
     for agent, field in (('IMPALA, experts', 'experts'),
                          ('IMPALA, multi-task', 'impala'))},
    {'mean capped at 100 %': lambda percent: np.mean(np.minimum(percent, 100)),
     'mean': np.mean},
    {'IMPALA, experts': (44.5, None), 'IMPALA, multi-task': (49.4, None)},
    'Espeholt et al., 2018: Table B.1')


def levels_of_suite(name):
  """The levels that training on a suite has, none if it is no suite.

  Args:
    name: As --level_name, or None if it is unknown.
  """
  try:
    levels = suites.find(name or '').levels(name, False)
  except LookupError:
    return ()
  return tuple(levels) if len(levels) > 1 else ()


def find(level):
  """Finds the suite of a level.

  Args:
    level: The level's name, as it is trained.

  Returns:
    The `Benchmark`, or None, and the name the level is scored by.
  """
  if level in atari57.GAMES:
    return ATARI57, level
  name = level.removeprefix(dmlab30.LEVEL_PREFIX)
  name = dmlab30.LEVEL_MAPPING.get(name, name)
  if name in DMLAB30.levels:
    return DMLAB30, name
  return None, level
