"""The score of a whole suite, while an agent trains on it or is tested."""

import collections

from scalable_agent import suites

# Episodes per level whose mean is its score during training.
WINDOW = 100


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


class RunningScores:
  """Scores a suite by the last episodes of every level."""

  def __init__(self, level_name, window=WINDOW):
    """Initializes the scores.

    Args:
      level_name: As in the configuration, a suite or a level.
      window: Episodes per level that count.
    """
    self._level_name = level_name
    self._returns = collections.defaultdict(
        lambda: collections.deque(maxlen=window))

  def add(self, episode):
    """Notes a finished episode, a `trajectories.Episode`."""
    self._returns[episode.level_name].append(episode.episode_return)

  def compute(self):
    """As the function `compute`: empty until every level has an episode."""
    return compute(self._level_name, self._returns)
