"""The score of a whole suite, while an agent trains on it or is tested."""

import collections
import functools

import numpy as np

from scalable_agent import atari57
from scalable_agent import dmlab30

# Games per level whose mean is its score during training.
WINDOW = 100

_FUNCTIONS = {
    'atari57': {
        'median_human_normalized_score': functools.partial(
            atari57.compute_human_normalized_score, statistic=np.median),
        'mean_human_normalized_score': atari57.compute_human_normalized_score,
    },
    'dmlab30': {
        'capped_human_normalized_score': functools.partial(
            dmlab30.compute_human_normalized_score, per_level_cap=100),
        'mean_human_normalized_score': dmlab30.compute_human_normalized_score,
    },
}


def compute(level_name, level_returns):
  """Scores a suite.

  Args:
    level_name: As in the configuration, a suite or a level.
    level_returns: A dict of level to a list of episode returns.

  Returns:
    A dict of the score's name to a float, in percent. It is empty for a single
    level, and if a level has no returns yet.
  """
  functions = _FUNCTIONS.get(level_name, {})
  try:
    return {name: f(level_returns) for name, f in functions.items()}
  except ValueError:
    return {}


class RunningScores:
  """Scores a suite by the last games of every level."""

  def __init__(self, level_name, window=WINDOW):
    """Initializes the scores.

    Args:
      level_name: As in the configuration, a suite or a level.
      window: Games per level that count.
    """
    self._level_name = level_name
    self._returns = collections.defaultdict(
        lambda: collections.deque(maxlen=window))

  def add(self, episode):
    """Notes a finished game, an `actor.Episode`."""
    self._returns[episode.level_name].append(episode.episode_return)

  def compute(self):
    """As the function `compute`: empty until every level has had a game."""
    return compute(self._level_name, self._returns)
