"""Studies as pictures: curves of the best, sorted returns, return against lag.
"""

import io
import textwrap

from matplotlib import figure as figure_lib
from matplotlib import ticker
from matplotlib import transforms
import numpy as np

from scalable_agent.results import curves

_SIZE = (7, 4.5)
_ALPHA = .15
# From the axis down to the names, in points: its numbers and label are between.
_NAMES_BELOW = 36
# Longer names are broken into lines.
_NAME_LENGTH = 80
# A longer name has a line of its own.
_HALF_LENGTH = 40


def _axis(title, x_label, y_label):
  figure = figure_lib.Figure(figsize=_SIZE)
  axis = figure.add_subplot()
  axis.set_prop_cycle(curves.STYLES)
  # Dollars in a name would make it a formula.
  axis.set_title(title, parse_math=False)
  axis.set_xlabel(x_label)
  axis.set_ylabel(y_label)
  axis.grid(alpha=.3)
  return figure, axis


def _to_png(figure, axis):
  figure.tight_layout()
  lines, names = axis.get_legend_handles_labels()
  if lines:
    # Below the picture, where it covers no curve, however many names there are.
    below = transforms.ScaledTranslation(
        0, -_NAMES_BELOW / 72, figure.dpi_scale_trans)
    legend = axis.legend(
        lines, [textwrap.fill(name, _NAME_LENGTH) for name in names],
        fontsize='small', loc='upper center', bbox_to_anchor=(.5, 0),
        bbox_transform=axis.transAxes + below,
        ncols=2 if max(map(len, names)) <= _HALF_LENGTH else 1)
    for text in legend.get_texts():
      text.set_parse_math(False)
  png = io.BytesIO()
  figure.savefig(png, format='png', dpi=100, bbox_inches='tight')
  return png.getvalue()


def best_curves(level, by_name):
  """Draws learning curves, each the mean of a variant's best runs.

  Args:
    level: The level's name.
    by_name: A dict of a variant's name to a list of `runs.Episodes`, one of
      each run.

  Returns:
    A PNG, bytes.
  """
  figure, axis = _axis(level, 'environment frames', 'return of an episode')
  axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  for name, episodes in by_name.items():
    curves.draw_band(axis, name, curves.over_seeds(episodes), alpha=_ALPHA)
  return _to_png(figure, axis)


def best_agents(level, by_name):
  """Draws the return of the best agent of a sweep over its frames.

  Args:
    level: The level's name.
    by_name: A dict of a condition's name to a list of points: environment
      frames of an agent; mean over the sweeps that have got that far; the
      interval around it, a pair or None; and whether these are all sweeps.

  Returns:
    A PNG, bytes.
  """
  figure, axis = _axis(level, 'environment frames of an agent',
                       'return of the best agent')
  axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  for name, points in by_name.items():
    rows = [(frames, mean, *(interval or (mean, mean)), is_of_all)
            for frames, mean, interval, is_of_all in points]
    curves.draw_band(axis, name, np.array(rows).reshape(-1, 5).T, alpha=_ALPHA)
  return _to_png(figure, axis)


def sorted_returns(level, by_name):
  """Draws final returns from the greatest to the least.

  Args:
    level: The level's name.
    by_name: A dict of a variant's name to its final returns, floats in any
      order.

  Returns:
    A PNG, bytes.
  """
  figure, axis = _axis(level, 'sample or seed, from the best to the worst',
                       'final return')
  axis.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
  for name, finals in by_name.items():
    axis.plot(np.arange(1, len(finals) + 1), sorted(finals, reverse=True),
              marker='.', label=name)
  return _to_png(figure, axis)


def against_lag(title, by_name):
  """Draws the final return against the policy lag.

  Args:
    title: What is drawn.
    by_name: A dict of a variant's name to a list of points: lag, mean, and the
      interval around it, a pair or None.

  Returns:
    A PNG, bytes.
  """
  figure, axis = _axis(title, 'policy lag (updates)', 'final return')
  lags = sorted({point[0] for points in by_name.values() for point in points})
  for i, (name, points) in enumerate(by_name.items()):
    # Equal distances, for lags go from 0 to hundreds; side by side, so that no
    # interval covers another.
    x = [lags.index(lag) + .06 * i for lag, _, _ in points]
    means = [mean for _, mean, _ in points]
    intervals = [interval or (np.nan, np.nan) for *_, interval in points]
    errors = [[mean - low for mean, (low, _) in zip(means, intervals)],
              [high - mean for mean, (_, high) in zip(means, intervals)]]
    axis.errorbar(x, means, np.maximum(errors, 0.), marker='o', capsize=3,
                  label=name)
  axis.set_xticks(range(len(lags)), [f'{lag}' for lag in lags])
  return _to_png(figure, axis)
