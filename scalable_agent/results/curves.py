"""Learning curves as pictures."""

import collections
import io
import itertools
import math

import matplotlib
from matplotlib import figure as figure_lib
from matplotlib import ticker
import numpy as np
from PIL import Image

from scalable_agent.results import published
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import scores
from scalable_agent.suites.scores import WINDOW

_GRID = 400
_COLUMNS = 4
# Of a panel, in inches. A panel is as wide as it is on a telephone, so that its
# text is as large as that of the page.
_WIDTH, _HEIGHT, _LEGEND_LINE = 4.4, 2.9, .19
_LEFT, _RIGHT, _TOP, _BOTTOM = .62, .12, .3, .48
# Of the names of agents, in points, and how many letters fit at that.
_FONT_SIZE, _NUM_LETTERS = 8, 62
_DPI = 160
_COLOURS = 64
# How to tell lines apart; the first ten differ in their colour.
STYLES = (matplotlib.cycler(linestyle=['-', '--', ':', '-.']) *
          matplotlib.cycler(color=matplotlib.color_sequences['tab10']))

Line = collections.namedtuple(
    'Line', 'label style episodes hours evaluations', defaults=[()])
Line.__doc__ = """The learning curve of an agent on a level.

  label: String.
  style: Of `STYLES`, the agent's on all levels.
  episodes: A list of `runs.Episodes`, one of each run.
  hours: The same with hours of training in place of frames, float64, of those
    runs whose hours are known.
  evaluations: A list of `runs.Episodes`, one of each run that was evaluated
    while it trained.
"""


def moving_mean(values):
  """Mean over the last `WINDOW` values, of fewer at the start."""
  sums = np.cumsum(np.concatenate([[0.], values]))
  ends = np.arange(1, len(values) + 1)
  starts = np.maximum(ends - WINDOW, 0)
  return (sums[ends] - sums[starts]) / (ends - starts)


def over_seeds(all_episodes):
  """Joins the curves of seeds.

  Args:
    all_episodes: A list of `runs.Episodes`, one of each seed.

  Returns:
    Frames, and of the seeds that have got that far the mean, least and greatest
    of their moving means, float64 [n] each; and whether these are all seeds,
    bool [n].
  """
  grid = np.linspace(min(episodes.frames[0] for episodes in all_episodes),
                     max(episodes.frames[-1] for episodes in all_episodes),
                     _GRID)
  curves = np.array([
      np.interp(grid, episodes.frames, moving_mean(episodes.returns),
                left=np.nan, right=np.nan) for episodes in all_episodes])
  # A seed that started later or ended sooner leaves gaps to the others.
  there = ~np.isnan(curves).all(axis=0)
  curves = curves[:, there]
  return (grid[there], np.nanmean(curves, axis=0), np.nanmin(curves, axis=0),
          np.nanmax(curves, axis=0), ~np.isnan(curves).any(axis=0))


def draw_band(axis, label, band, style=None, alpha=.25):
  """Draws a line over environment frames, and shades what is around it.

  The line is thin where it is not of all seeds: it may jump as one ends.

  Args:
    axis: An `Axes` of `matplotlib`.
    label: String.
    band: As `over_seeds` returns it.
    style: Of `STYLES`, None for the next.
    alpha: Of the shade.
  """
  frames, mean, low, high, is_of_all = band
  line, = axis.plot(frames, np.where(is_of_all, mean, np.nan), label=label,
                    **(style or {}))
  axis.plot(frames, mean, color=line.get_color(), linewidth=.6,
            linestyle=line.get_linestyle())
  axis.fill_between(frames, low, high, color=line.get_color(), alpha=alpha)


def lines(agents, level):
  """The learning curves of a level, as it is scored.

  Args:
    agents: A dict of name to a list of `runs.Run`s.
    level: The level's name.

  Returns:
    A list of `Line`s, one for each agent that has an episode there.
  """
  found = []
  for style, (agent, agent_runs) in zip(
      itertools.cycle(STYLES), agents.items()):
    those = [(run, run.episodes[name]) for run in agent_runs
             for name in runs_lib.levels_of(run)
             if name in run.episodes and published.find(name)[1] == level]
    if those:
      found.append(Line(
          f'{agent} ({scores.count_text([run for run, _ in those])})', style,
          [episodes for _, episodes in those],
          [runs_lib.in_hours(run, episodes) for run, episodes in those
           if run.clock is not None],
          [run.evaluations[name] for run in agent_runs
           for name in run.evaluations if published.find(name)[1] == level]))
  return found


def _draw_line(axis, line, all_episodes):
  if len(all_episodes) == 1:
    axis.plot(all_episodes[0].frames, all_episodes[0].returns, '.',
              markersize=2, alpha=.25, color=line.style['color'],
              rasterized=True)
  draw_band(axis, line.label, over_seeds(all_episodes), line.style)


def evaluation_means(evaluations):
  """Returns the frames at which a run was evaluated, and the mean returns.

  Args:
    evaluations: Its `runs.Episodes`.
  """
  frames, inverse = np.unique(evaluations.frames, return_inverse=True)
  sums = np.bincount(inverse, weights=evaluations.returns)
  return frames, sums / np.bincount(inverse)


def _draw_evaluations(axis, line):
  for evaluations in line.evaluations:
    axis.plot(*evaluation_means(evaluations), 'D', markersize=4,
              markerfacecolor='white', markeredgecolor=line.style['color'])


class _MinutesLocator(ticker.MaxNLocator):
  """Finds round minutes on an axis of hours."""

  def tick_values(self, vmin, vmax):
    return super().tick_values(60 * vmin, 60 * vmax) / 60


def _draw_panel(figure, place, level, level_lines, in_hours):
  """Draws a panel into a rectangle, left, bottom, width, height in inches."""
  left, bottom, width, height = place
  legend_height = height - _HEIGHT
  total = np.tile(figure.get_size_inches(), 2)
  axis = figure.add_axes(np.divide([
      left + _LEFT, bottom + _BOTTOM + legend_height,
      width - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM], total))
  for line in level_lines:
    episodes = line.hours if in_hours else line.episodes
    if episodes:
      _draw_line(axis, line, episodes)
    if not in_hours:
      _draw_evaluations(axis, line)
  unit = 'hours of training' if in_hours else 'environment frames'
  locator = ticker.MaxNLocator(6)
  if in_hours and axis.get_xlim()[1] < 1:
    unit = 'minutes of training'
    locator = _MinutesLocator(6)
    axis.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda hours, unused_place: f'{60 * hours:.3g}'))
  limits = axis.get_ylim()
  benchmark, _ = published.find(level)
  if benchmark:
    for level_scores, style in ((benchmark.human, '--'),
                                (benchmark.random, ':')):
      axis.axhline(
          level_scores[level], color='grey', linestyle=style, linewidth=1)
  axis.set_ylim(limits)
  # Dollars in a name would make it a formula.
  axis.set_title(level, fontsize=10, parse_math=False)
  axis.set_xlabel(unit, fontsize=9)
  axis.set_ylabel('return of an episode', fontsize=9)
  axis.tick_params(labelsize=8)
  if not in_hours:
    axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  axis.yaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  axis.xaxis.set_major_locator(locator)
  axis.grid(alpha=.3)
  # Below the picture, where it covers no curve.
  longest = max(len(line.label) for line in level_lines)
  legend = figure.legend(
      handles=axis.get_legend_handles_labels()[0], loc='lower left',
      bbox_to_anchor=(left / total[0], bottom / total[1]), frameon=False,
      fontsize=_FONT_SIZE * min(_NUM_LETTERS / longest, 1), borderpad=.2,
      labelspacing=.3)
  for text in legend.get_texts():
    text.set_parse_math(False)


def draw(panels, in_hours=False):
  """Draws learning curves.

  Of each agent the mean over the last 100 episodes is a line. With several
  runs it is their mean, thin where not all have got that far, and shaded from
  the least to the greatest of them. With a single one its episodes are points.
  Diamonds are the means of evaluations while a run trained. A human's score is
  dashed and that of random actions dotted, where they lie within the picture.

  Args:
    panels: A dict of level to what `lines` returns of it; it has one at least.
    in_hours: Whether to draw over the hours of training instead of frames.

  Returns:
    A PNG, bytes.
  """
  columns = min(_COLUMNS, len(panels))
  rows = math.ceil(len(panels) / columns)
  height = _HEIGHT + _LEGEND_LINE * max(map(len, panels.values())) + .05
  figure = figure_lib.Figure(figsize=(_WIDTH * columns, height * rows))
  for i, (level, level_lines) in enumerate(panels.items()):
    row, column = divmod(i, columns)
    _draw_panel(figure, (_WIDTH * column, height * (rows - 1 - row), _WIDTH,
                         height), level, level_lines, in_hours)
  png = io.BytesIO()
  figure.savefig(png, format='png', dpi=_DPI)
  return _with_few_colours(png)


def _with_few_colours(png):
  """A fraction of the size, for pages with a hundred pictures."""
  smaller = io.BytesIO()
  with Image.open(png) as image:
    image.convert('RGB').quantize(_COLOURS, dither=Image.Dither.NONE).save(
        smaller, 'png', optimize=True)
  return smaller.getvalue()
