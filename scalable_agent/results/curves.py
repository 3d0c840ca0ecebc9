"""Learning curves as pictures."""

import io
import math

from matplotlib import figure as figure_lib
import numpy as np

from scalable_agent.results import published
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


def over_seeds(all_episodes):
  """Joins the curves of seeds.

  Args:
    all_episodes: A list of `runs.Episodes`, one of each seed.

  Returns:
    Frames, and of the seeds that have got that far the mean, least and greatest
    of their moving means, float64 [n] each.
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
          np.nanmax(curves, axis=0))


def episodes_by_agent(agents, level):
  """The episodes of a level, as it is scored, of those agents that have any.

  Args:
    agents: A dict of name to a list of `runs.Run`s.
    level: The level's name.

  Returns:
    A dict of the agent's name to a list of `runs.Episodes`, one of each seed.
  """
  found = {}
  for agent, seeds in agents.items():
    episodes = [run.episodes[name] for run in seeds
                for name in runs_lib.levels_of(run)
                if name in run.episodes and published.find(name)[1] == level]
    if episodes:
      found[agent] = episodes
  return found


def _plot(axis, level, by_agent):
  for i, (agent, all_episodes) in enumerate(by_agent.items()):
    colour = f'C{i}'
    if len(all_episodes) == 1:
      axis.plot(all_episodes[0].frames / 1e6, all_episodes[0].returns, '.',
                markersize=2, alpha=.25, color=colour)
    frames, mean, low, high = over_seeds(all_episodes)
    seeds = '1 seed' if len(all_episodes) == 1 else f'{len(all_episodes)} seeds'
    axis.plot(frames / 1e6, mean, color=colour, label=f'{agent} ({seeds})')
    axis.fill_between(frames / 1e6, low, high, color=colour, alpha=.25)
  limits = axis.get_ylim()
  benchmark, _ = published.find(level)
  if benchmark:
    for scores, style in ((benchmark.human, '--'), (benchmark.random, ':')):
      axis.axhline(scores[level], color='grey', linestyle=style, linewidth=1)
  axis.set_ylim(limits)
  # A name may have dollars in it, and is no formula.
  axis.set_title(level, parse_math=False)
  axis.set_xlabel('environment frames (millions)')
  axis.set_ylabel('return of an episode')
  axis.grid(alpha=.3)
  for text in axis.legend(loc='best', fontsize='small').get_texts():
    text.set_parse_math(False)


def draw(panels, columns=_COLUMNS):
  """Draws learning curves.

  Of each agent the mean over the last 100 episodes is a line. With several
  seeds it is their mean, shaded from the least to the greatest of them. With a
  single one its episodes are points. A human's score is dashed and that of
  random actions dotted, where they lie within the picture.

  Args:
    panels: A dict of level to what `episodes_by_agent` returns of it; it has
      one at least.
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
