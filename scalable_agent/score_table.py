"""Test scores beside those that were published, as text for a terminal."""

from scalable_agent.results import benchmarks

_NONE = '-'


def _number(value):
  return _NONE if value is None else f'{value:.1f}'


def human_normalized_score(level, mean_return):
  """Returns a level's score in percent of a human's, None without a human's."""
  benchmark, name = benchmarks.find(level)
  return benchmark and float(benchmark.normalize(name, mean_return))


def lines(levels):
  """Lays out the scores of levels.

  Args:
    levels: A dict of level to its scores, see `evaluation.write_scores`.

  Returns:
    A list of lines, empty if nothing was published on any of the levels. The
    published scores are those of the suite of the first.
  """
  found = {level: benchmarks.find(level) for level in levels}
  suites = [benchmark for benchmark, _ in found.values() if benchmark]
  if not suites:
    return []
  suite = suites[0]
  rows = [['level', 'mean', 'error', '% human', 'random', 'human',
           *suite.columns]]
  for level, scores in levels.items():
    _, name = found[level]
    published = (suite.random, suite.human, *suite.columns.values())
    rows.append([
        level, _number(scores['mean']), _number(scores['standard_error']),
        _number(scores['human_normalized_score']),
        *(_number(column.get(name)) for column in published)])
  widths = [max(map(len, column)) for column in zip(*rows)]
  return [f'Published: {suite.source}'] + [
      '  '.join([row[0].ljust(widths[0])] + [
          cell.rjust(width) for cell, width in zip(row[1:], widths[1:])])
      for row in rows]
