r"""Compares runs with published scores, and draws their learning curves.

    python -m scalable_agent.report --logdirs='/tmp/experts/*'
    python -m scalable_agent.report --logdirs=/tmp/pong --png=/tmp/curves.png
    python -m scalable_agent.report --logdirs='/tmp/sweep/*' --study=best3

The first writes a report into --report_dir: one HTML page with everything in
it, the same as Markdown, the scores as CSV, and the curves as PNG. The second
draws the curves alone. The third compares the variants of a sweep: study.md,
with its pictures, and study.csv. Works on unfinished runs, and on any level.
"""

import glob
import os
import pathlib
import sys

from absl import flags

from scalable_agent import config as config_lib
from scalable_agent.files import file_names
from scalable_agent.files import whole_file
from scalable_agent.process import binary
from scalable_agent.process import errors
from scalable_agent.results import agents as agents_lib
from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import curves
from scalable_agent.results import document
from scalable_agent.results import markdown
from scalable_agent.results import page
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables
from scalable_agent.results import writing
from scalable_agent.studies import document as study_document
from scalable_agent.studies import outcomes

FLAGS = flags.FLAGS

flags.DEFINE_list(
    'logdirs', [], 'Log directories of the runs, or patterns such as '
    '/tmp/experts/*; what a pattern finds that is no run is left out. Runs '
    'that differ in nothing but level, seed and settings of the machine, such '
    'as --num_actors, are one agent.')
flags.DEFINE_string(
    'report_dir', 'report', 'Directory for index.html, report.md, scores.csv '
    'and curves/<level>.png.')
flags.DEFINE_string(
    'png', '', 'Draws the learning curves of all levels into this file, and '
    'writes no report.')
flags.DEFINE_list(
    'study', [], 'Compares the variants of a sweep instead, into --report_dir: '
    'best3, the best 3 samples of each; stability, the sorted final returns; '
    'lag, the return against --policy_lag; best_of_sweep, the best agent where '
    'whole sweeps are compared, as those that share replay.')


def find_runs(logdirs, read=runs_lib.read):
  """Reads the runs that directories or patterns name.

  Args:
    logdirs: A list of strings.
    read: The function that reads a directory.

  Returns:
    A list of what `read` returns, each directory once, by the first of its
    names.

  Raises:
    OSError: A directory holds no run, or cannot be read.
    ValueError: A run's files are broken, or a pattern finds no run.
  """
  runs = {}
  for pattern in logdirs:
    if not glob.has_magic(pattern):
      runs.setdefault(os.path.realpath(pattern), read(pattern))
      continue
    found = []
    for path in sorted(glob.glob(pattern)):
      try:
        found.append(read(path))
      except (FileNotFoundError, NotADirectoryError):
        pass
    if not found:
      raise ValueError(f'--logdirs: no run is found by {pattern}.')
    for run in found:
      runs.setdefault(os.path.realpath(run.logdir), run)
  return list(runs.values())


def draw(logdirs, path):
  """Draws the learning curves of all levels into the PNG `path`."""
  panels = {}
  for section in document.sections(agents_lib.group(find_runs(logdirs))):
    for level in section.levels:
      lines = curves.lines(section.agents, level)
      if lines:
        panels[level] = lines
  if not panels:
    raise ValueError('No episode has finished in ' + ', '.join(logdirs) + '.')
  with config_lib.writing('png', path):
    whole_file.check(path)
    whole_file.write(path, curves.draw(panels))


def write(logdirs, report_dir):
  """Writes the report, and returns the path of its page."""
  sections = document.sections(agents_lib.group(find_runs(logdirs)))
  blocks = document.build(sections)
  films = {video.path: pathlib.Path(video.source).read_bytes()
           for video in blocks_lib.of_kind(blocks, blocks_lib.Video)}
  with config_lib.writing('report_dir', report_dir):
    paths = writing.write_pictures(blocks, report_dir, 'curves')
    for path, film in films.items():
      os.makedirs(os.path.join(report_dir, file_names.VIDEOS), exist_ok=True)
      whole_file.write(os.path.join(report_dir, path), film)
    texts = {
        'index.html': page.render(blocks, document.TITLE),
        'report.md': markdown.render(blocks, paths, document.TITLE),
        'scores.csv': tables.to_csv(sections)}
    writing.write_texts(texts, report_dir)
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
    if FLAGS.study and FLAGS.png:
      raise ValueError('--png draws learning curves alone, and --study writes '
                       'into --report_dir: leave out one of them.')
    if FLAGS.study:
      found = find_runs(FLAGS.logdirs, outcomes.read_beside_others)
      with config_lib.writing('report_dir', FLAGS.report_dir):
        print(study_document.write(found, FLAGS.study, FLAGS.report_dir))
    elif FLAGS.png:
      draw(FLAGS.logdirs, FLAGS.png)
      print(FLAGS.png)
    else:
      print(write(FLAGS.logdirs, FLAGS.report_dir))
  except (OSError, ValueError) as e:
    sys.exit(f'Error: {errors.one_line(e)}')


if __name__ == '__main__':
  binary.run(main)
