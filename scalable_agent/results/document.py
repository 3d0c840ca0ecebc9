"""What a report says, as a list of blocks that any format can show."""

import collections

from scalable_agent import suites
from scalable_agent.results import agents as agents_lib
from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import curves
from scalable_agent.results import published
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import scores
from scalable_agent.results import tables
from scalable_agent.results import videos

Section = collections.namedtuple('Section', 'title benchmark levels agents')
Section.__doc__ = """What a part of the report is about: a suite.

  title: What to call it.
  benchmark: A `published.Benchmark`, or None where nothing is published.
  levels: All levels of a benchmark, or those that runs have.
  agents: A dict of name to a list of `runs.Run`s, those that belong here.
"""

TITLE = 'Scores and learning curves'

_HOW_SCORED = (
    'A score is the mean return of whole episodes, unclipped: of the test '
    'episodes where a run was tested (--mode=test), else of the last 100 '
    'training episodes of each run. After ± is its standard error, over runs, '
    'or over the episodes of a single one. Frames are environment frames of a '
    'run, the fewest among those of an agent; those of a multi-task agent are '
    'over all levels.')
_HOW_NORMALIZED = (
    'Human-normalised: 0 % is the score of random actions, 100 % that of a '
    'human. Statistics are of the levels that have a score; "incomplete" marks '
    'those that lack some. "As printed" are the paper\'s own figures, the '
    'other columns are computed from its table of levels.')
_HOW_DRAWN = (
    'Lines are means over the last 100 episodes and over runs, shaded from the '
    'least to the greatest run, and thin where not all runs have got that far. '
    'Points are the episodes of a single run, '
    'diamonds the means of evaluations while a run trained. '
    'Dashed: a human. Dotted: random actions. Hours are those of training, all '
    'starts of a run together.')


def _title(level):
  """What to call the suite of a level of which nothing is published."""
  try:
    return suites.find(level).title
  except LookupError:
    return suites.Suite.title


def sections(groups):
  """Sorts what there is to tell by suites, and names agents in each of them.

  Args:
    groups: A list of lists of `runs.Run`s, as `agents.group` returns.

  Returns:
    A list of `Section`s.
  """
  found = {}
  for i, agent_runs in enumerate(groups):
    for run in agent_runs:
      for name in runs_lib.levels_of(run):
        benchmark, level = published.find(name)
        title = benchmark.name if benchmark else _title(name)
        section = found.setdefault(title, Section(
            title, benchmark, list(benchmark.levels) if benchmark else [], {}))
        section.agents[i] = agent_runs
        if level not in section.levels:
          section.levels.append(level)
  named = [section._replace(
      agents=agents_lib.name(list(section.agents.values())))
           for section in found.values()]
  # What is published comes first.
  return sorted(named, key=lambda section: section.benchmark is None)


def _runs_table(named):
  """Every run once, with its agent's name in the first of its sections."""
  rows = {}
  for section in named:
    for agent, agent_runs in section.agents.items():
      for run in agent_runs:
        hours = tables.MISSING if run.clock is None else tables.number(
            run.clock.hours[-1], 2)
        rows.setdefault(run.logdir, [
            run.logdir, agent, str(run.config.get('seed', tables.MISSING)),
            tables.frames_text(run.frames), hours,
            str(sum(len(e.returns) for e in run.episodes.values())),
            str(sum(map(len, run.tested.values())))])
  return blocks_lib.Table(
      ['run', 'agent', 'seed', 'trained on', 'hours', 'training episodes',
       'test episodes'],
      list(rows.values()))


def pictures(section):
  """Returns the curves of a section, a list of `blocks.Picture`s.

  Those over hours stand behind those over frames, where hours are known.
  """
  found = []
  for level in section.levels:
    lines = curves.lines(section.agents, level)
    if lines:
      found.append(blocks_lib.Picture(level, curves.draw({level: lines})))
    if any(line.hours for line in lines):
      found.append(blocks_lib.Picture(
          f'{level} by hours', curves.draw({level: lines}, in_hours=True)))
  return found


def _scores(section):
  """The tables of a section's scores, and the levels that have no run."""
  benchmark, agents = section.benchmark, section.agents
  if not benchmark:
    return [tables.plain_table(section.levels, agents)], []
  idle = [level for level in section.levels if not any(
      scores.score(agent_runs, level).runs for agent_runs in agents.values())]
  played = [level for level in section.levels if level not in idle]
  return [tables.suite_table(benchmark, agents),
          tables.level_table(benchmark, agents, played)], idle


def _belongs_to(section):
  def level_of(name):
    _, level = published.find(name)
    return level if level in section.levels else None
  return level_of


def _build_section(section):
  found, idle = _scores(section)
  blocks = [blocks_lib.Heading(section.title), *found]
  drawn = pictures(section)
  if drawn:
    blocks += [blocks_lib.Heading(f'{section.title}: learning curves'), *drawn]
  filmed = videos.find(section.agents, _belongs_to(section))
  if filmed:
    blocks += [blocks_lib.Heading(f'{section.title}: test episodes'), *filmed]
  if idle:
    blocks += [blocks_lib.Heading(f'{section.title}: levels without a run'),
               tables.published_table(section.benchmark, idle)]
  return blocks


def build(named):
  """Builds the report.

  Args:
    named: A list of `Section`s.

  Returns:
    A list of blocks, see `blocks`.
  """
  blocks = [block for section in named for block in _build_section(section)]
  blocks += [blocks_lib.Heading('How to read this'),
             blocks_lib.Paragraph(_HOW_SCORED)]
  sources = dict.fromkeys(section.benchmark.source for section in named
                          if section.benchmark)
  if sources:
    blocks += [blocks_lib.Paragraph(_HOW_NORMALIZED),
               blocks_lib.Paragraph(f'Published scores: {"; ".join(sources)}.')]
  blocks += [blocks_lib.Paragraph(_HOW_DRAWN), blocks_lib.Heading('Runs'),
             _runs_table(named)]
  for section in named:
    found = agents_lib.settings_tables(section.agents)
    if found:
      blocks += [blocks_lib.Heading(f'{section.title}: settings'), *found]
  return blocks
