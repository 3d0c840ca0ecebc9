"""The score of a whole suite, while an agent trains on it or is tested."""

import collections

import numpy as np

from scalable_agent import suites

# Episodes per level whose mean is its score during training.
WINDOW = 100
# What says how good an agent for a suite is, as for the paper's populations
# (section 5.3, Appendices F and G).
FITNESS = 'capped_human_normalized_score'
_MEAN_RETURN = 'mean_return'

Score = collections.namedtuple('Score', 'measure value')
Score.__doc__ = """How good an agent is in training.

  measure: 'mean_return', or the name of a suite's score, a string.
  value: Over the last `WINDOW` episodes of each level, a float.
"""


def compute(level_name, level_returns):
  """Scores a suite.

  Args:
    level_name: As in the configuration, a suite or a level.
    level_returns: A dict of level to a list of episode returns.

  Returns:
    A dict of the score's name to a float, in percent. It is empty for a single
    level, and if a level has no returns yet.
  """
  functions = suites.find(level_name).scores(level_name)
  try:
    return {name: f(level_returns) for name, f in functions.items()}
  except ValueError:
    return {}


def of_episodes(level_name, episodes):
  """Scores an evaluation.

  Args:
    level_name: As in the configuration, a suite or a level.
    episodes: A list of `Episode`s, at least one of each level.

  Returns:
    A dict of name to a float: the scores of a suite in percent, the
    `mean_return` of a level.
  """
  returns = collections.defaultdict(list)
  for episode in episodes:
    returns[episode.level_name].append(episode.episode_return)
  return compute(level_name, returns) or {
      _MEAN_RETURN: float(np.mean(list(returns.values())))}


class RunningScores:
  """Scores a suite by the last episodes of every level."""

  def __init__(self, level_name):
    """Initializes the scores.

    Args:
      level_name: As in the configuration, a suite or a level.
    """
    self._level_name = level_name
    self._returns = collections.defaultdict(
        lambda: collections.deque(maxlen=WINDOW))

  def add(self, episode):
    """Notes a finished episode, a `trajectories.Episode`."""
    self._returns[episode.level_name].append(episode.episode_return)

  def compute(self):
    """As the function `compute`: empty until every level has an episode."""
    return compute(self._level_name, self._returns)

  def fitness(self):
    """Returns the `Score` to compare; None until all levels fill a window."""
    if not self._returns or any(
        len(returns) < returns.maxlen for returns in self._returns.values()):
      return None
    if not suites.find(self._level_name).scores(self._level_name):
      (returns,) = self._returns.values()
      return Score(_MEAN_RETURN, float(np.mean(returns)))
    scores = self.compute()
    return Score(FITNESS, float(scores[FITNESS])) if scores else None
