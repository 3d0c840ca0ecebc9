"""Writes test scores, and lays them out beside published ones."""

import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil

from absl import logging
import numpy as np

from scalable_agent.checkpoints import chosen_checkpoint
from scalable_agent.files import file_names
from scalable_agent.files import whole_file
from scalable_agent.process import errors
from scalable_agent.results import published
from scalable_agent.results import tables

# Of a column, for scores of six digits.
_LEAST_WIDTH = len('123,456.7')


def human_normalized_score(level, mean_return):
  """Returns a level's score in percent of a human's, None without a human's."""
  benchmark, name = published.find(level)
  return benchmark and float(benchmark.normalize(name, mean_return))


class ScoreTable:
  """Test scores beside published ones, a line for each level once it is played.

  The published scores are those of the suite of the first level that has any.
  """

  def __init__(self, levels):
    """Finds what is published, by which columns have their width.

    Args:
      levels: All names of levels that rows may have, a list.
    """
    self._found = {level: published.find(level) for level in levels}
    self._benchmark = next(
        (benchmark for benchmark, _ in self._found.values() if benchmark), None)
    self._header = ['level', 'mean', 'error']
    if self._benchmark:
      self._header += [
          '% human', 'random', 'human', *self._benchmark.columns]
    nothing = dict.fromkeys(
        ['mean', 'standard_error', 'human_normalized_score'])
    rows = [self._header] + [self._cells(level, nothing) for level in levels]
    widths = [max(map(len, column)) for column in zip(*rows)]
    self._widths = widths[:1] + [
        max(width, _LEAST_WIDTH) for width in widths[1:]]

  def head(self):
    """Returns the lines above the rows, a list."""
    source = ([f'Published: {self._benchmark.source}']
              if self._benchmark else [])
    return source + [self._line(self._header)]

  def row(self, level, scores):
    """Returns the line of a level.

    Args:
      level: Its name.
      scores: What `of_level` returns of it.
    """
    return self._line(self._cells(level, scores))

  def _cells(self, level, scores):
    cells = [level, tables.number(scores['mean']),
             tables.number(scores['standard_error'])]
    if self._benchmark:
      _, name = self._found[level]
      columns = (self._benchmark.random, self._benchmark.human,
                 *self._benchmark.columns.values())
      cells += [tables.number(scores['human_normalized_score']),
                *(tables.number(column.get(name)) for column in columns)]
    return cells

  def _line(self, cells):
    return tables.aligned_row(cells, self._widths)


def of_level(name, episodes):
  """Returns what `test_scores.json` says of a level, see `write_scores`.

  Args:
    name: Of the level.
    episodes: A list of `Episode`s.

  Raises:
    errors.Failure: A return is not finite.
  """
  returns = [episode.episode_return for episode in episodes]
  if not np.isfinite(returns).all():
    raise errors.Failure(
        f'An episode of {name} has a return that is not finite: its environment '
        'gave such a reward. No scores are written.')
  error = (float(np.std(returns, ddof=1)) / math.sqrt(len(returns))
           if len(returns) > 1 else None)
  mean = float(np.mean(returns))
  return dict(
      mean=mean,
      standard_error=error,
      human_normalized_score=human_normalized_score(name, mean),
      num_episodes=len(episodes),
      episode_returns=returns,
      episode_frames=[episode.episode_frames for episode in episodes])


def identity(config):
  """Returns what `test_scores.json` says of the test itself, a dict.

  A test with another identity may have other scores. Its checkpoint is that
  which --checkpoint names, even if it is damaged, so that an older one is
  played.

  Args:
    config: A `config.Config`.

  Raises:
    ConfigError, OSError: As `chosen_checkpoint.fingerprint`.
  """
  return dict(seed=config.seed, dataset_path=config.dataset_path,
              checkpoint=chosen_checkpoint.fingerprint(config))


def write_scores(logdir, levels, frames, test, suite_scores=()):
  """Writes `test_scores.json`, at the end of a test.

  What is there of another test, or of more episodes, is kept under another
  name.

  Args:
    logdir: The run's directory.
    levels: A dict of level name to what `of_level` returned.
    frames: Environment frames the weights were trained on.
    test: The `identity` of the test.
    suite_scores: A dict of name to score over all levels, if there is any.

  Returns:
    What was written, a dict: `frames`, `test`, suite scores, and `levels`.
    This has by name the `mean`, `standard_error` (null for one episode),
    `human_normalized_score` (in percent, null where there is no human's),
    `num_episodes` and all `episode_returns` and `episode_frames`.

  Raises:
    OSError: It cannot be written.
  """
  scores = dict(
      frames=frames, test=test, **dict(suite_scores), levels=levels)
  path = os.path.join(logdir, file_names.TEST_SCORES)
  if not _covers(scores, path):
    _keep(path)
  whole_file.write_json(path, scores)
  return scores


def _covers(scores, path):
  """Whether scores are of the same test as those of a file, and no fewer."""
  try:
    before = whole_file.read_json(path)
    return before['test'] == scores['test'] and all(
        level['num_episodes'] <= scores['levels'][name]['num_episodes']
        for name, level in before['levels'].items())
  except FileNotFoundError:
    return True
  except (ValueError, KeyError, TypeError, AttributeError):
    return False


def _keep(path):
  """Copies a file to the first free of test_scores.1.json, ...2.json, ..."""
  root, ending = os.path.splitext(path)
  names = map(f'{root}.{{}}{ending}'.format, itertools.count(1))
  kept = next(name for name in names if not os.path.lexists(name))
  shutil.copyfile(path, kept)
  logging.info('The scores of an earlier test are now in %s', kept)


def check_writing(logdir):
  """Raises OSError if no scores could be written. Call before long work."""
  whole_file.check(os.path.join(logdir, file_names.TEST_SCORES))


class UnfinishedTest:
  """The levels that a test has played so far, for an equal one to go on with.

  Each test has a file of its own, `test_scores.unfinished-<hash>.json`.
  """

  def __init__(self, logdir, test):
    """Initializes it; writes nothing.

    Args:
      logdir: The run's directory.
      test: What equal tests have in common, a dict that JSON can hold.
    """
    digest = hashlib.sha256(json.dumps(test, sort_keys=True).encode())
    self._test = test
    self._path = os.path.join(
        logdir, f'test_scores.unfinished-{digest.hexdigest()[:8]}.json')

  def write(self, levels):
    """Writes the levels, as in `write_scores`.

    Raises:
      OSError: They cannot be written.
    """
    whole_file.write_json(self._path, dict(test=self._test, levels=levels))

  def read(self):
    """Returns what an equal test has written, {} if there is none."""
    try:
      return dict(whole_file.read_json(self._path)['levels'])
    except (OSError, ValueError, KeyError, TypeError):
      return {}

  def remove(self):
    """Removes them, at the end of the test."""
    with contextlib.suppress(FileNotFoundError):
      os.remove(self._path)
