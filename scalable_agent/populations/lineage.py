"""Draws a population: who copied whom, and what came of it (Appendix F)."""

import collections
import io

from matplotlib import figure as figure_lib
from matplotlib import ticker
import numpy as np

from scalable_agent.files import whole_file
from scalable_agent.results import curves
from scalable_agent.results import runs as runs_lib
from scalable_agent.studies import outcomes

# Parts of a member's frames. On a suite, each part has a score.
_PARTS = 20

Segment = collections.namedtuple('Segment', 'member start end')
Segment.__doc__ = """A part of an ancestry: a member, from frame to frame."""


def ancestry(records, member, frames):
  """Returns where the weights of a member have come from.

  Args:
    records: A list of `evolution.Record`s of all members, oldest first.
    member: The member's index.
    frames: Environment frames that it has saved.

  Returns:
    A list of `Segment`s, the oldest first. Each begins with a copy of what the
    one before has come to, but for the first, which begins at frame 0. The
    frames of each are its own member's.
  """
  segments = []
  end = frames
  for i in range(len(records) - 1, -1, -1):
    record = records[i]
    if (record.member != member or record.donor is None or
        record.frames >= end):
      continue
    segments.append(Segment(member, record.frames, end))
    member, end = record.donor, record.donor_frames
  segments.append(Segment(member, 0, end))
  return segments[::-1]


def _read(logdirs):
  """Returns a `runs.Run` of each member, None of one that has not begun."""
  found = []
  for logdir in logdirs:
    try:
      found.append(runs_lib.read(logdir))
    except FileNotFoundError:
      found.append(None)
  return found


def _find_best(runs):
  """Returns the index of the run with the best final return, 0 if none has."""
  finals = [run and outcomes.final_return(run) for run in runs]
  return max(range(len(runs)), key=lambda i: (
      -np.inf if finals[i] is None else finals[i]))


def _draw_lanes(axis, records, frames, ancestors):
  for member, end in enumerate(frames):
    axis.plot([0, end], [member] * 2, color='lightgrey', linewidth=2)
  for segment in ancestors:
    axis.plot([segment.start, segment.end], [segment.member] * 2,
              color='C0', linewidth=2)
  for record in records:
    if record.donor is not None:
      axis.annotate(
          '', (record.frames, record.member),
          (record.donor_frames, record.donor),
          arrowprops=dict(arrowstyle='->', color='C1', alpha=.7))
  axis.set_yticks(range(len(frames)))
  axis.set_ylabel('member')
  axis.set_title(
      'Copies of weights, from donor to member; blue: the way to the best')


def _draw_parameter(axis, name, records, frames, ancestors):
  for member, end in enumerate(frames):
    mine = [record for record in records if record.member == member]
    _step(axis, mine, name, 0, end, color='lightgrey', linewidth=1)
  for segment in ancestors:
    mine = [record for record in records if record.member == segment.member]
    _step(axis, mine, name, segment.start, segment.end, color='C0', linewidth=2)
  if all(isinstance(record.parameters[name], float) for record in records):
    axis.set_yscale('log')
  axis.set_ylabel(name)


def _step(axis, records, name, start, end, **style):
  """Draws what a member's parameter was between two frames."""
  before = [record for record in records if record.frames <= start][-1:]
  within = [record for record in records if start < record.frames < end]
  x = [start, *(record.frames for record in within), end]
  y = [record.parameters[name] for record in before + within]
  axis.step(x, [*y, y[-1]], where='post', **style)


def _draw_returns(axis, runs, ancestors):
  begun = [run for run in runs if run]
  for run in begun:
    # Some may have ended before the first update.
    for line in _lines(run, -1, run.frames):
      axis.plot(*line, color='lightgrey', linewidth=1)
  for segment in ancestors:
    run = runs[segment.member]
    # Without earlier episodes, in which other weights acted.
    for line in _lines(run, segment.start, segment.end) if run else ():
      axis.plot(*line, color='C0', linewidth=2)
  axis.set_ylabel('capped human-normalised score (%)' if any(
      map(runs_lib.is_of_suite, begun)) else 'return of an episode')


def _lines(run, start, end):
  """Returns the curves of a run's episodes, a list of pairs of arrays.

  Each pair is of frames and values. A single level has a curve of its returns.
  A suite, whose returns have no common axis, has one curve of its score: it has
  a point at the end of each part of the frames in which every level has ended
  an episode.

  Args:
    run: A `runs.Run`.
    start, end: Frames. Episodes count that ended after `start`, up to `end`.
  """
  if runs_lib.is_of_suite(run):
    return [_score_line(run, start, end)]
  found = []
  for episodes in run.episodes.values():
    lived = (episodes.frames > start) & (episodes.frames <= end)
    found.append((episodes.frames[lived],
                  curves.moving_mean(episodes.returns[lived])))
  return found


def _score_line(run, start, end):
  """As `_lines`, the one of a suite."""
  # The same parts for all members, whatever is shown of them.
  total = run.config.get('total_environment_frames') or run.frames
  grid = np.arange(1, _PARTS) * total / _PARTS
  ends = [start, *grid[(grid > start) & (grid < end)], end]
  points = []
  for part_start, part_end in zip(ends, ends[1:]):
    score = outcomes.mean_return(
        run.config['level_name'], run.episodes, part_start, part_end)
    if score is not None:
      points.append((part_end, score))
  return tuple(np.array(points).reshape(-1, 2).T)


def draw(records, logdirs):
  """Draws a population.

  All members are grey. Those whose weights the best member by final return has
  inherited are blue, each up to where they were copied.

  Args:
    records: A list of `evolution.Record`s, oldest first.
    logdirs: A list of the members' log directories.

  Returns:
    A PNG, bytes.

  Raises:
    ValueError: A file of a member cannot be read.
  """
  runs = _read(logdirs)
  frames = [run.frames if run else 0 for run in runs]
  best = _find_best(runs)
  ancestors = ancestry(records, best, frames[best])
  names = list(records[0].parameters)
  figure = figure_lib.Figure(figsize=(8, 3 * (2 + len(names))))
  axes = figure.subplots(2 + len(names), sharex=True)
  _draw_lanes(axes[0], records, frames, ancestors)
  for axis, name in zip(axes[1:], names):
    _draw_parameter(axis, name, records, frames, ancestors)
  _draw_returns(axes[-1], runs, ancestors)
  axes[-1].set_xlabel('environment frames of a member')
  axes[-1].xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  for axis in axes:
    axis.grid(alpha=.3)
  figure.tight_layout()
  png = io.BytesIO()
  figure.savefig(png, format='png', dpi=100)
  return png.getvalue()


def write(path, records, logdirs):
  """Writes what `draw` returns into a file.

  Raises:
    OSError: It cannot be written.
    ValueError: A file of a member cannot be read.
  """
  whole_file.write(path, draw(records, logdirs))
