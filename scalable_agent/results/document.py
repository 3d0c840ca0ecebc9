"""What a report says, as a list of blocks that any format can show."""

import collections

from scalable_agent.results import curves
from scalable_agent.results import published
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables

Heading = collections.namedtuple('Heading', 'text')
Paragraph = collections.namedtuple('Paragraph', 'text')
Picture = collections.namedtuple('Picture', 'level png')
Picture.__doc__ = """The learning curve of a level; `png` is bytes."""

Section = collections.namedtuple('Section', 'benchmark levels agents')
Section.__doc__ = """What a part of the report is about.

  benchmark: A `published.Benchmark`, or None for levels of no suite.
  levels: All levels of the suite, or those that runs have.
  agents: A dict of name to a list of `runs.Run`s, those that belong here.
"""

TITLE = 'Scores and learning curves'

_HOW_SCORED = (
    'A score is the mean return of whole episodes, unclipped: of the test '
    'episodes where a run was tested (--mode=test), else of the last 100 '
    'training episodes of each seed. After ± is its standard error, over '
    'seeds, or over the episodes of a single one. Frames are environment '
    'frames of a run, the fewest among its seeds; those of a multi-task agent '
    'are over all levels.')
_HOW_NORMALIZED = (
    'Human-normalised: 0 % is the score of random actions, 100 % that of a '
    'human. Statistics are of the levels that have a score; "incomplete" marks '
    'those that lack some. "As printed" are the paper\'s own figures, the '
    'other columns are computed from its table of levels.')
_HOW_DRAWN = (
    'Lines are means over the last 100 episodes and over seeds, shaded from '
    'the least to the greatest seed; points are the episodes of a single seed. '
    'Dashed: a human. Dotted: random actions.')


def sections(agents):
  """Sorts what there is to tell by suites.

  Args:
    agents: A dict of name to a list of `runs.Run`s.

  Returns:
    A list of `Section`s.
  """
  found = {}
  for agent, seeds in agents.items():
    for run in seeds:
      for name in runs_lib.levels_of(run):
        benchmark, level = published.find(name)
        key = benchmark and benchmark.name
        section = found.setdefault(key, Section(
            benchmark, list(benchmark.levels) if benchmark else [], {}))
        section.agents[agent] = seeds
        if level not in section.levels:
          section.levels.append(level)
  # What belongs to no suite comes last.
  return sorted(found.values(), key=lambda section: section.benchmark is None)


def _runs_table(agents):
  rows = [[run.logdir, agent, str(run.config.get('seed', tables.MISSING)),
           tables.millions(run.frames),
           str(sum(len(e.returns) for e in run.episodes.values())),
           str(sum(map(len, run.tested.values())))]
          for agent, seeds in agents.items() for run in seeds]
  return tables.Table(
      ['run', 'agent', 'seed', 'trained on', 'training episodes',
       'test episodes'],
      rows)


def build(agents):
  """Builds the report.

  Args:
    agents: A dict of name to a list of `runs.Run`s, as `runs.group` returns.

  Returns:
    A list of `Heading`, `Paragraph`, `tables.Table` and `Picture`.
  """
  blocks = [Heading('Runs'), _runs_table(agents), Paragraph(_HOW_SCORED)]
  found = sections(agents)
  for benchmark, levels, those in found:
    if benchmark:
      blocks += [
          Heading(benchmark.name), Paragraph(_HOW_NORMALIZED),
          tables.suite_table(benchmark, those),
          Paragraph(f'Published scores: {benchmark.source}.'),
          tables.level_table(benchmark, those)]
    else:
      blocks += [Heading('Other levels'), tables.plain_table(levels, those)]
  blocks += [Heading('Learning curves'), Paragraph(_HOW_DRAWN)]
  missing = []
  for section in found:
    for level in section.levels:
      by_agent = curves.episodes_by_agent(agents, level)
      if by_agent:
        blocks.append(Picture(level, curves.draw({level: by_agent})))
      else:
        missing.append(level)
  if missing:
    blocks.append(Paragraph(
        'No episode has finished on: ' + ', '.join(missing) + '.'))
  return blocks
