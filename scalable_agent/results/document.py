"""What a report says, as a list of blocks that any format can show."""

import collections

from scalable_agent.results import benchmarks
from scalable_agent.results import curves
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables

Heading = collections.namedtuple('Heading', 'text')
Paragraph = collections.namedtuple('Paragraph', 'text')
Picture = collections.namedtuple('Picture', 'level png')
Picture.__doc__ = """The learning curve of a level; `png` is bytes."""

TITLE = 'Scores and learning curves'

_HOW_SCORED = (
    'A score is the mean return of whole games, unclipped: of the test games '
    'where a run was tested (--mode=test), else of the last 100 training games '
    'of each seed. After ± is its standard error, over seeds, or over the '
    'games of a single one. Frames are environment frames of a run, the '
    'fewest among its seeds; those of a multi-task agent are over all levels.')
_HOW_NORMALIZED = (
    'Human-normalised: 0 % is the score of random actions, 100 % that of a '
    'human. Statistics are of the levels that have a score; "incomplete" marks '
    'those that lack some. "As printed" are the paper\'s own figures, the '
    'other columns are computed from its table of levels.')
_HOW_DRAWN = (
    'Lines are means over the last 100 games and over seeds, shaded from the '
    'least to the greatest seed; points are the games of a single seed. '
    'Dashed: a human. Dotted: random actions.')


def levels_by_benchmark(agents):
  """The levels a report is about.

  Args:
    agents: A dict of name to a list of `runs.Run`s.

  Returns:
    A list of pairs of a `benchmarks.Benchmark` and all of its levels, for those
    that a run belongs to, and of None and the levels of no benchmark.
  """
  found = []
  others = []
  for seeds in agents.values():
    for run in seeds:
      for name in runs_lib.levels_of(run):
        benchmark, level = benchmarks.find(name)
        if benchmark is None:
          others.append(level)
        elif benchmark.name not in [b.name for b, _ in found]:
          found.append((benchmark, benchmark.levels))
  if others:
    found.append((None, tuple(dict.fromkeys(others))))
  return found


def _runs_table(agents):
  rows = [[run.logdir, agent, str(run.config.get('seed', tables.MISSING)),
           tables.millions(run.frames),
           str(sum(len(games.returns) for games in run.games.values())),
           str(sum(map(len, run.tested.values())))]
          for agent, seeds in agents.items() for run in seeds]
  return tables.Table(
      ['run', 'agent', 'seed', 'trained on', 'training games', 'test games'],
      rows)


def build(agents):
  """Builds the report.

  Args:
    agents: A dict of name to a list of `runs.Run`s, as `runs.group` returns.

  Returns:
    A list of `Heading`, `Paragraph`, `tables.Table` and `Picture`.
  """
  blocks = [Heading('Runs'), _runs_table(agents), Paragraph(_HOW_SCORED)]
  found = levels_by_benchmark(agents)
  for benchmark, levels in found:
    if benchmark:
      blocks += [
          Heading(benchmark.name), Paragraph(_HOW_NORMALIZED),
          tables.suite_table(benchmark, agents),
          Paragraph(f'Published scores: {benchmark.source}.'),
          tables.level_table(benchmark, agents)]
    else:
      blocks += [Heading('Other levels'), tables.plain_table(levels, agents)]
  blocks += [Heading('Learning curves'), Paragraph(_HOW_DRAWN)]
  missing = []
  for _, levels in found:
    for level in levels:
      by_agent = curves.games_by_agent(agents, level)
      if by_agent:
        blocks.append(Picture(level, curves.draw({level: by_agent})))
      else:
        missing.append(level)
  if missing:
    blocks.append(Paragraph(
        'No game has finished on: ' + ', '.join(missing) + '.'))
  return blocks
