"""How good a member of a population is, in percent."""

import collections
import math

import numpy as np

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.results import published
from scalable_agent.suites import scores as suite_scores

_CAP = 100.


def make(level_name, score_range):
  """Returns a function that scores episodes.

  Args:
    level_name: As in the configuration, a suite or a level.
    score_range: A list of the returns that are 0 and 100 percent, as text;
      empty to take those of random actions and of a human.

  Returns:
    A function of a list of `log_lines.EpisodeLine`s. It returns percent, of
    several levels capped at 100 each and averaged. Without episodes it returns
    None; without those of a level of a suite too, if there is no `score_range`.

  Raises:
    ConfigError: The range is none, or nobody knows what a human scores on the
      level.
  """
  if score_range:
    low, high = _parse_range(score_range)
    return lambda episodes: _mean_capped(
        episodes, lambda unused_level, mean: 100. * (mean - low) / (high - low))
  if suites.find(level_name).scores(level_name):
    return lambda episodes: suite_scores.compute(
        level_name, _returns(episodes)).get(suite_scores.FITNESS)
  benchmark, name = published.find(level_name)
  if benchmark is None:
    raise config_lib.ConfigError(
        f'--score_range is needed, since nobody knows what a human scores on '
        f'{level_name}. Give the returns that are 0 and 100 percent, as in '
        '--score_range=0,500.')
  return lambda episodes: _mean_capped(
      episodes, lambda unused_level, mean: benchmark.normalize(name, mean))


def _parse_range(texts):
  try:
    low, high = map(float, texts)
  except ValueError:
    low = high = 0.
  if not -math.inf < low < high < math.inf:
    raise config_lib.refusal(
        'score_range', ','.join(texts), 'it has to be two finite numbers, the '
        'lower one first')
  return low, high


def _returns(episodes):
  returns = collections.defaultdict(list)
  for episode in episodes:
    returns[episode.level].append(episode.episode_return)
  return returns


def _mean_capped(episodes, normalize):
  percents = [normalize(level, np.mean(returns))
              for level, returns in _returns(episodes).items()]
  if len(percents) > 1:
    percents = [min(percent, _CAP) for percent in percents]
  return float(np.mean(percents)) if percents else None
