"""Learning curves as pictures."""

import io
import math

from matplotlib import figure as figure_lib
import numpy as np

from scalable_agent.results import benchmarks
from scalable_agent.results import runs as runs_lib

WINDOW = 100
_GRID = 400
_COLUMNS = 4


def moving_mean(values, window=WINDOW):
  """Mean over the last `window` values, of fewer at the start."""
  sums = np.cumsum(np.concatenate([[0.], values]))
  ends = np.arange(1, len(values) + 1)
  starts = np.maximum(ends - window, 0)
  return (sums[ends] - sums[starts]) / (ends - starts)


def over_seeds(all_games):
  """Joins the curves of seeds.

  Args:
    all_games: A list of `runs.Games`, one of each seed.

  Returns:
    Frames, and of the seeds that have got that far the mean, least and greatest
    of their moving means, float64 [n] each.
  """
  grid = np.linspace(min(games.frames[0] for games in all_games),
                     max(games.frames[-1] for games in all_games), _GRID)
  curves = np.array([
      np.interp(grid, games.frames, moving_mean(games.returns),
                left=np.nan, right=np.nan) for games in all_games])
  # A seed that started later or ended sooner leaves gaps to the others.
  there = ~np.isnan(curves).all(axis=0)
  curves = curves[:, there]
  return (grid[there], np.nanmean(curves, axis=0), np.nanmin(curves, axis=0),
          np.nanmax(curves, axis=0))


def games_by_agent(agents, level):
  """The games of a level, as it is scored, of those agents that have any.

  Args:
    agents: A dict of name to a list of `runs.Run`s.
    level: The level's name.

  Returns:
    A dict of the agent's name to a list of `runs.Games`, one of each seed.
  """
  found = {}
  for agent, seeds in agents.items():
    games = [run.games[name] for run in seeds
             for name in runs_lib.levels_of(run)
             if name in run.games and benchmarks.find(name)[1] == level]
    if games:
      found[agent] = games
  return found


def _plot(axis, level, by_agent):
  for i, (agent, all_games) in enumerate(by_agent.items()):
    colour = f'C{i}'
    if len(all_games) == 1:
      axis.plot(all_games[0].frames / 1e6, all_games[0].returns, '.',
                markersize=2, alpha=.25, color=colour)
    frames, mean, low, high = over_seeds(all_games)
    seeds = '1 seed' if len(all_games) == 1 else f'{len(all_games)} seeds'
    axis.plot(frames / 1e6, mean, color=colour, label=f'{agent} ({seeds})')
    axis.fill_between(frames / 1e6, low, high, color=colour, alpha=.25)
  limits = axis.get_ylim()
  benchmark, _ = benchmarks.find(level)
  if benchmark:
    for scores, style in ((benchmark.human, '--'), (benchmark.random, ':')):
      axis.axhline(scores[level], color='grey', linestyle=style, linewidth=1)
  axis.set_ylim(limits)
  axis.set_title(level)
  axis.set_xlabel('environment frames (millions)')
  axis.set_ylabel('return of a game')
  axis.grid(alpha=.3)
  axis.legend(loc='best', fontsize='small')


def draw(panels, columns=_COLUMNS):
  """Draws learning curves.

  Of each agent the mean over the last 100 games is a line, the mean over seeds
  where there are several and then shaded from the least to the greatest of
  them; a single seed's games are points. A human's score is dashed and that of
  random actions dotted, where they lie within the picture.

  Args:
    panels: A dict of level to what `games_by_agent` returns of it, not empty.
    columns: Panels side by side at the most.

  Returns:
    A PNG, bytes.
  """
  columns = min(columns, len(panels))
  rows = math.ceil(len(panels) / columns)
  figure = figure_lib.Figure(figsize=(6 * columns, 4 * rows))
  for i, (level, by_agent) in enumerate(panels.items()):
    _plot(figure.add_subplot(rows, columns, i + 1), level, by_agent)
  figure.tight_layout()
  png = io.BytesIO()
  figure.savefig(png, format='png', dpi=100)
  return png.getvalue()
