"""The last episodes of a run, which say how good its agent is."""

import collections
import contextlib

import numpy as np

from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.files import log_file
from scalable_agent.files import log_lines
from scalable_agent.suites import scores as suite_scores

WINDOW = suite_scores.WINDOW


class RecentEpisodes:
  """The last 100 episodes over all levels, and those of each level.

  Attributes:
    num_levels: Levels that the run plays.
  """

  def __init__(self, level_name):
    """Initializes without an episode; `level_name` as in the configuration."""
    self._levels = suites.find(level_name).levels(level_name, False)
    self.num_levels = len(self._levels)
    self._returns = collections.deque(maxlen=WINDOW)
    self._suite_scores = suite_scores.RunningScores(level_name)

  def add(self, episode):
    """Notes a finished `trajectories.Episode`."""
    self._returns.append(episode.episode_return)
    self._suite_scores.add(episode)

  def add_logged(self, path):
    """Notes the last episodes that a run has logged.

    Args:
      path: Its `episodes.csv`, which need not be there.

    Raises:
      OSError: It is there and cannot be read.
    """
    found = []
    # Of these levels alone: a damaged name would never occur often enough.
    missing = dict.fromkeys(self._levels, WINDOW)
    with contextlib.suppress(FileNotFoundError):
      # The log may be long, and its end is enough.
      for line in log_file.lines_backwards(path):
        logged = log_lines.parse_episode(line)
        if logged is None or not missing.get(logged.level):
          continue
        found.append(trajectories.Episode(
            logged.level, logged.episode_return, logged.episode_frames))
        missing[logged.level] -= 1
        if not any(missing.values()):
          break
    for episode in reversed(found):
      self.add(episode)

  def __len__(self):
    return len(self._returns)

  def mean_return(self):
    """The mean of the last 100 episodes, or of fewer; None if there is none."""
    return float(np.mean(self._returns)) if self._returns else None

  def suite_scores(self):
    """The scores of a suite, in percent, see `suite_scores.compute`."""
    return self._suite_scores.compute()

  def fitness(self):
    """See `suite_scores.RunningScores.fitness`."""
    return self._suite_scores.fitness()
