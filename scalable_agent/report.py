r"""Compares runs with published scores, and draws their learning curves.

    python -m scalable_agent.report --logdirs='/tmp/experts/*'
    python -m scalable_agent.report --logdirs=/tmp/pong --png=/tmp/curves.png

The first writes a report into --report_dir: one HTML page with everything in
it, the same as Markdown, the scores as CSV, and the curves as PNG. The second
draws the curves alone. Works on unfinished runs, and on any level.
"""

import glob
import os
import sys

from absl import app
from absl import flags

from scalable_agent.process import file_names
from scalable_agent.results import curves
from scalable_agent.results import document
from scalable_agent.results import markdown
from scalable_agent.results import page
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables

FLAGS = flags.FLAGS

flags.DEFINE_list(
    'logdirs', [], 'Log directories of the runs, or patterns such as '
    '/tmp/experts/*; what a pattern finds that is no run is left out. Runs '
    'that differ in nothing but their level and seed are one agent.')
flags.DEFINE_string(
    'report_dir', 'report', 'Directory for index.html, report.md, scores.csv '
    'and curves/<level>.png.')
flags.DEFINE_string(
    'png', '', 'Draws the learning curves of all levels into this file, and '
    'writes no report.')


def find_runs(logdirs):
  """Reads the runs that directories or patterns name.

  Args:
    logdirs: A list of strings.

  Returns:
    A list of `runs.Run`s, each directory once.

  Raises:
    OSError: A directory holds no run, or cannot be read.
    ValueError: A run's files are broken, or a pattern finds no run.
  """
  runs = {}
  for pattern in logdirs:
    if not glob.has_magic(pattern):
      runs.setdefault(os.path.normpath(pattern), runs_lib.read(pattern))
      continue
    found = []
    for path in sorted(glob.glob(pattern)):
      try:
        found.append(runs_lib.read(path))
      except (FileNotFoundError, NotADirectoryError):
        pass
    if not found:
      raise ValueError(f'--logdirs: no run is found by {pattern}.')
    for run in found:
      runs.setdefault(os.path.normpath(run.logdir), run)
  return list(runs.values())


def draw(logdirs, path):
  """Draws the learning curves of all levels into the PNG `path`."""
  agents = runs_lib.group(find_runs(logdirs))
  panels = {}
  for section in document.sections(agents):
    for level in section.levels:
      by_agent = curves.episodes_by_agent(agents, level)
      if by_agent:
        panels[level] = by_agent
  if not panels:
    raise ValueError('No episode has finished in ' + ', '.join(logdirs) + '.')
  with open(path, 'wb') as f:
    f.write(curves.draw(panels))


def write(logdirs, report_dir):
  """Writes the report, and returns the path of its page."""
  agents = runs_lib.group(find_runs(logdirs))
  blocks = document.build(agents)
  os.makedirs(os.path.join(report_dir, 'curves'), exist_ok=True)
  paths = {}
  for block in blocks:
    if isinstance(block, document.Picture):
      paths[block.level] = f'curves/{file_names.of_level(block.level)}.png'
      with open(os.path.join(report_dir, paths[block.level]), 'wb') as f:
        f.write(block.png)
  texts = {
      'index.html': page.render(blocks),
      'report.md': markdown.render(blocks, paths),
      'scores.csv': tables.to_csv(document.sections(agents))}
  for name, text in texts.items():
    # The name of a directory need not be text.
    with open(os.path.join(report_dir, name), 'w', encoding='utf-8',
              errors='backslashreplace') as f:
      f.write(text)
  return os.path.join(report_dir, 'index.html')


def main(argv):
  """Writes what the flags ask for; ends with one line where it cannot."""
  try:
    if len(argv) > 1:
      raise ValueError(f'Unexpected arguments: {" ".join(argv[1:])}. Several '
                       'directories are given as --logdirs=a,b or as a quoted '
                       'pattern.')
    if not FLAGS.logdirs:
      raise ValueError('--logdirs names no log directory.')
    if FLAGS.png:
      draw(FLAGS.logdirs, FLAGS.png)
      print(FLAGS.png)
    else:
      print(write(FLAGS.logdirs, FLAGS.report_dir))
  except (OSError, ValueError) as e:
    sys.exit(f'Error: {" ".join(str(e).splitlines())}')


if __name__ == '__main__':
  app.run(main)
