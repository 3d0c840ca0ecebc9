"""Writes test scores, and lays them out beside published ones."""

import json
import math
import os

import numpy as np

from scalable_agent.process import whole_file
from scalable_agent.results import published
from scalable_agent.results import tables

_NONE = '-'


def _number(value):
  return _NONE if value is None else f'{value:.1f}'


def human_normalized_score(level, mean_return):
  """Returns a level's score in percent of a human's, None without a human's."""
  benchmark, name = published.find(level)
  return benchmark and float(benchmark.normalize(name, mean_return))


def lines(levels):
  """Lays out the scores of levels.

  Args:
    levels: A dict of level to its scores, the `levels` of `write_scores`.

  Returns:
    A list of lines, empty if nothing was published on any of the levels. The
    published scores are those of the suite of the first.
  """
  found = {level: published.find(level) for level in levels}
  benchmarks = [benchmark for benchmark, _ in found.values() if benchmark]
  if not benchmarks:
    return []
  benchmark = benchmarks[0]
  header = ['level', 'mean', 'error', '% human', 'random', 'human',
            *benchmark.columns]
  rows = []
  for level, scores in levels.items():
    _, name = found[level]
    columns = (benchmark.random, benchmark.human, *benchmark.columns.values())
    rows.append([
        level, _number(scores['mean']), _number(scores['standard_error']),
        _number(scores['human_normalized_score']),
        *(_number(column.get(name)) for column in columns)])
  return [f'Published: {benchmark.source}', *tables.aligned(tables.Table(header, rows))]


def write_scores(logdir, episodes_by_level, frames, suite_scores=()):
  """Writes `test_scores.json`.

  Args:
    logdir: The run's directory.
    episodes_by_level: A dict of level name to a list of `Episode`s.
    frames: Environment frames the weights were trained on.
    suite_scores: A dict of name to score over all levels, if there is any.

  Returns:
    What was written, a dict: `frames`, suite scores, and `levels`. This has by
    name the `mean`, `standard_error` (null for one episode),
    `human_normalized_score` (in percent, null where there is no human's),
    `num_episodes` and all `episode_returns` and `episode_frames`.
  """
  levels = {}
  for name, episodes in episodes_by_level.items():
    returns = [episode.episode_return for episode in episodes]
    error = (float(np.std(returns, ddof=1)) / math.sqrt(len(returns))
             if len(returns) > 1 else None)
    mean = float(np.mean(returns))
    levels[name] = dict(
        mean=mean,
        standard_error=error,
        human_normalized_score=human_normalized_score(name, mean),
        num_episodes=len(episodes),
        episode_returns=returns,
        episode_frames=[episode.episode_frames for episode in episodes])
  scores = dict(frames=frames, **dict(suite_scores), levels=levels)
  path = os.path.join(logdir, 'test_scores.json')
  whole_file.write(path, (json.dumps(scores, indent=2) + '\n').encode())
  return scores
