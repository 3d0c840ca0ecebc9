"""Shows many runs while they run: a live table, or a line for each change.

    with display.Display(runs, 'game') as shown:
      run_processes.run_all(
          runs, environs, stop, shown.on_change, shown.on_poll)
"""

import collections
import time

from rich import columns as columns_lib
from rich import console as console_lib
from rich import live
from rich import table as table_lib

from scalable_agent.logs import messages
from scalable_agent.process import output
from scalable_agent.sweeps import progress as progress_lib

_PAINT_SECONDS = 1.
# Characters in a line where the output is no terminal.
_LOG_WIDTH = 160
# States in the order in which runs are shown where not all of them fit.
_ORDER = ('failed', 'running', 'elsewhere', 'waiting', 'done')

Column = collections.namedtuple('Column', 'name justify text')
Column.__doc__ = """A column of the table.

  name: Its heading.
  justify: 'left' or 'right'.
  text: A function of a `ManagedRun` and its `progress.Progress`.
"""


def _state(run, unused_progress):
  crashed = f' ({run.crashes} crashed)' if run.crashes else ''
  return run.state + crashed


def _frames(run, progress):
  if progress.frames is None:
    return ''
  share = progress.frames / run.total_frames
  return f'{messages.short(progress.frames)} {share:4.0%}'


def _fps(run, progress):
  return f'{progress.fps:,.0f}' if run.is_active and progress.fps else ''


def _mean_return(unused_run, progress):
  mean = progress.mean_return
  return '' if mean is None else f'{mean:,.1f}'


_COLUMNS = (Column('state', 'left', _state), Column('frames', 'right', _frames),
            Column('frames/s', 'right', _fps),
            Column('return', 'right', _mean_return))


class Display:
  """Shows runs for the length of a `with` block.

  A terminal has a table that changes. Any other output, such as a log, has a
  line for each run whose state changes, and the table at the end.
  """

  def __init__(self, runs, kind, more_columns=()):
    """Initializes the display; shows nothing.

    Args:
      runs: A list of `ManagedRun`s.
      kind: What a run is called, as in 'game'.
      more_columns: `Column`s beside those that all runs have.
    """
    self._runs = runs
    name = Column(kind, 'left', lambda run, unused_progress: run.name)
    self._columns = (name, *_COLUMNS, *more_columns)
    self._console = console_lib.Console()
    if not self._console.is_terminal:
      self._console = console_lib.Console(width=_LOG_WIDTH)
    self._live = live.Live(console=self._console, auto_refresh=False)
    self._painted = 0.
    # The progress of runs that stand still; there may be hundreds.
    self._known = {}
    self._began = None

  def __enter__(self):
    if self._console.is_terminal:
      self._live.__enter__()
    return self

  def __exit__(self, *exc_info):
    with output.whatever_happens():
      if self._console.is_terminal:
        self._live.update(self._make(), refresh=True)
        self._live.__exit__(*exc_info)
      else:
        self._console.print(self._make())

  def on_change(self, run):
    """Takes note of a run whose state has changed."""
    self._known.pop(run.name, None)
    with output.whatever_happens():
      if not self._console.is_terminal:
        print(f'{run.name}: {run.state}', flush=True)
      elif run.state == 'failed':
        self._console.print(
            f'{run.name} failed: {run.last_words()}', markup=False)

  def on_poll(self):
    """Paints the table again, if it is time."""
    now = time.monotonic()
    if self._console.is_terminal and now - self._painted >= _PAINT_SECONDS:
      with output.whatever_happens():
        self._live.update(self._make(), refresh=True)
      self._painted = now

  def _progress(self, run):
    if run.name in self._known:
      return self._known[run.name]
    progress = progress_lib.read(run.logdir)
    if not run.is_active:
      self._known[run.name] = progress
    return progress

  def _make(self):
    """Returns what to show now."""
    # Read once, for all columns: logs are long, and there may be many runs.
    progress = {run.name: self._progress(run) for run in self._runs}
    height = max(self._console.height - 5, 5)
    runs = self._runs
    if self._console.is_terminal and len(runs) > height:
      runs = sorted(runs, key=lambda run: _ORDER.index(run.state))
    rows = [[column.text(run, progress[run.name]) for column in self._columns]
            for run in runs]
    tables = []
    for start in range(0, len(rows), height):
      table = table_lib.Table(box=None, pad_edge=False)
      for column in self._columns:
        table.add_column(column.name, justify=column.justify, no_wrap=True)
      for row in rows[start:start + height]:
        table.add_row(*row)
      tables.append(table)
    return console_lib.Group(
        self._summary(progress), columns_lib.Columns(tables, padding=(0, 4)))

  def _summary(self, progress):
    """One line on all runs together, with the time that is left.

    Args:
      progress: A dict of a run's name to its `Progress`.
    """
    counts = collections.Counter(run.state for run in self._runs)
    text = f'{counts["done"]} of {len(self._runs)} done' + ''.join(
        f', {counts[state]} {state}' for state in _ORDER[:-1] if counts[state])
    frames = sum(found.frames or 0 for found in progress.values())
    missing = sum(run.total_frames - (progress[run.name].frames or 0)
                  for run in self._runs if run.state != 'failed')
    now = time.monotonic()
    if self._began is None:
      self._began = now, frames
    began, frames_then = self._began
    if counts['running'] and missing > 0 and frames > frames_then:
      left = missing * (now - began) / (frames - frames_then)
      text += f', {messages.duration(left)} left'
    return text
