"""Tables of scores, for people and as CSV."""

import collections
import csv
import io

from scalable_agent.logs import messages
from scalable_agent.results import blocks
from scalable_agent.results import scores as scores_lib

MISSING = '–'

CSV_FIELDS = ('suite', 'agent', 'level', 'score', 'standard_error',
              'human_normalized_percent', 'source', 'runs', 'seeds', 'episodes',
              'frames', 'trained_frames', 'total_frames', 'random', 'human')


def aligned(table):
  """Lays out a `blocks.Table`, a list of strings: lines of equal columns."""
  rows = [table.header, *table.rows]
  widths = [max(map(len, column)) for column in zip(*rows)]
  return [aligned_row(row, widths) for row in rows]


def aligned_row(cells, widths):
  """Returns a line: the first cell at the left, the others at the right.

  Args:
    cells: A list of strings.
    widths: The least width of each, a list of ints.
  """
  return '  '.join([cells[0].ljust(widths[0])] + [
      cell.rjust(width) for cell, width in zip(cells[1:], widths[1:])])


def _count(number, noun):
  return f'{number} {noun}' + ('' if number == 1 else 's')


def frames_text(frames):
  """Frames as a person reads them; None are unknown."""
  return f'{"?" if frames is None else messages.short(frames, 4)} frames'


def origin(score):
  """Says what a `scores.Score` is from, in a few words."""
  if score.source == 'no run':
    return 'no run'
  parts = []
  if score.source == 'no episode':
    parts.append('no episode finished yet')
  else:
    parts.append(f'{score.source}, {_count(score.episodes, "episode")}')
  parts.append(scores_lib.seeds_text(score.runs, score.seeds))
  frames = frames_text(score.frames)
  if score.total_frames and score.frames < score.total_frames:
    frames += f' of {messages.short(score.total_frames, 4)}'
    if score.frames < score.trained_frames < score.total_frames:
      frames += f', trained to {messages.short(score.trained_frames, 4)}'
  if not score.is_finished:
    frames += ', unfinished'
  return ', '.join(parts + [frames])


def number(value, digits=1):
  """A number as a person reads it; None is missing."""
  return MISSING if value is None else f'{value:,.{digits}f}'


def _mean(score):
  if score.mean is None:
    return MISSING
  text = number(score.mean)
  if score.standard_error is not None:
    text += f' ± {number(score.standard_error)}'
  return text


def _published(benchmark, level):
  return [number(column[level]) for column in (
      benchmark.random, benchmark.human, *benchmark.columns.values())]


def level_table(benchmark, agents, levels):
  """Levels of a suite with their scores, and what is published beside.

  Args:
    benchmark: A `published.Benchmark`.
    agents: A dict of name to a list of `runs.Run`s.
    levels: Those of its levels to show, a list.

  Returns:
    A `blocks.Table`. What scores are from comes last, since it is long.
  """
  header = ['level']
  for agent in agents:
    header += [agent, 'human-normalised']
  header += ['random', 'human', *benchmark.columns]
  header += [f'{agent}: from' for agent in agents]
  rows = []
  for level in levels:
    scores = [scores_lib.score(agent_runs, level)
              for agent_runs in agents.values()]
    row = [level]
    for score in scores:
      percent = scores_lib.percentages(benchmark, {level: score.mean})
      row += [_mean(score),
              f'{number(percent[level])} %' if percent else MISSING]
    rows.append(row + _published(benchmark, level) + list(map(origin, scores)))
  return blocks.Table(header, rows)


def published_table(benchmark, levels):
  """What is published on levels of a suite; see `level_table`."""
  return blocks.Table(
      ['level', 'random', 'human', *benchmark.columns],
      [[level, *_published(benchmark, level)] for level in levels])


def plain_table(levels, agents):
  """Scores on levels of which nothing is published.

  Args:
    levels: A list of names.
    agents: A dict of name to a list of `runs.Run`s.

  Returns:
    A `blocks.Table` with a row for each agent that a level has a run of.
  """
  rows = []
  for level in levels:
    for agent, agent_runs in agents.items():
      score = scores_lib.score(agent_runs, level)
      if score.runs:
        rows.append([level, _mean(score), agent, origin(score)])
  return blocks.Table(['level', 'score', 'agent', 'from'], rows)


def suite_table(benchmark, agents):
  """Statistics of human-normalised scores, with what is published beside.

  If agents lack levels, a row below them has the published agents on the levels
  that they do have.
  """
  total = len(benchmark.levels)
  names = list(benchmark.statistics)
  header = ['agent'] + names + ['levels'] + [f'{name}, as printed'
                                             for name in names]
  rows = []

  def add(agent, percent, printed):
    found = scores_lib.statistics(benchmark, percent.values())
    count = f'{len(percent)} of {total}'
    if not percent:
      count = MISSING
    elif len(percent) < total:
      count += ', incomplete'
    rows.append(
        [agent] +
        [f'{number(found[name])} %' if found else MISSING for name in names] +
        [count] +
        [MISSING if value is None else f'{value:g} %' for value in printed])

  nothing = [None] * len(names)
  published = {agent: scores_lib.percentages(benchmark, column)
               for agent, column in benchmark.columns.items()}
  by_levels = collections.defaultdict(list)
  for agent, agent_runs in agents.items():
    mine = scores_lib.percentages(benchmark, {
        level: scores_lib.score(agent_runs, level).mean
        for level in benchmark.levels})
    by_levels[tuple(mine)].append((agent, mine))
  for levels, same in by_levels.items():
    for agent, mine in same:
      add(agent, mine, nothing)
    if 0 < len(levels) < total:
      for other, percent in published.items():
        add(f'{other}: the same levels',
            {level: percent[level] for level in levels if level in percent},
            nothing)
  for other, percent in published.items():
    add(other, percent, benchmark.printed.get(other, nothing))
  for other, printed in benchmark.printed.items():
    if other not in published:
      add(other, {}, printed)
  return blocks.Table(header, rows)


def to_csv(sections):
  """Every score as a row.

  Args:
    sections: A list of `document.Section`s.

  Returns:
    CSV text with `CSV_FIELDS` and a column for each published agent; what is
    missing is empty.
  """
  columns = list(dict.fromkeys(
      name for _, benchmark, _, _ in sections if benchmark
      for name in benchmark.columns))
  text = io.StringIO()
  writer = csv.DictWriter(text, CSV_FIELDS + tuple(columns), restval='',
                          lineterminator='\n')
  writer.writeheader()
  for title, benchmark, levels, agents in sections:
    for level in levels:
      for agent, agent_runs in agents.items():
        score = scores_lib.score(agent_runs, level)
        row = dict(score._asdict(), suite=title, agent=agent, level=level,
                   score=score.mean)
        del row['mean'], row['is_finished']
        if benchmark:
          row.update(
              {name: column[level]
               for name, column in benchmark.columns.items()},
              random=benchmark.random[level],
              human=benchmark.human[level],
              human_normalized_percent=scores_lib.percentages(
                  benchmark, {level: score.mean}).get(level))
        writer.writerow(row)
  return text.getvalue()
