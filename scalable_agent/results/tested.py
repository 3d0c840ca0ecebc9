"""The test scores of many runs as text, for a terminal."""

import contextlib

from scalable_agent.results import agents as agents_lib
from scalable_agent.results import blocks
from scalable_agent.results import document
from scalable_agent.results import published
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables


def _first_columns(table, end):
  return blocks.Table(table.header[:end], [row[:end] for row in table.rows])


def lines(logdirs):
  """Lays out the test scores of Atari games or levels of DMLab-30.

  Args:
    logdirs: A list of log directories; those without a test are left out.

  Returns:
    A list of lines, empty if no run was tested: each level with its score,
    and the statistics of each agent over the levels it has.
  """
  tested = []
  for logdir in logdirs:
    with contextlib.suppress(FileNotFoundError):  # No run has begun there.
      run = runs_lib.read(logdir)
      if run.tested:
        tested.append(run)
  found = []
  for section in document.sections(agents_lib.group(tested)):
    played = {published.find(name)[1] for runs in section.agents.values()
              for run in runs for name in run.tested}
    levels = [level for level in section.levels if level in played]
    if section.benchmark:
      scores = tables.level_table(section.benchmark, section.agents, levels)
      # All levels are from the same test.
      found += tables.aligned(_first_columns(scores, -len(section.agents)))
      statistics = tables.suite_table(section.benchmark, section.agents)
      statistics = _first_columns(
          statistics, -len(section.benchmark.statistics))
      found += ['', *tables.aligned(statistics._replace(rows=[
          row for row in statistics.rows if row[0] in section.agents]))]
  return found
