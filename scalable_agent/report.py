r"""Draws learning curves of runs, from their episodes.csv.

    python -m scalable_agent.report --logdirs=/tmp/pong,/tmp/breakout \
        --png=/tmp/curves.png

Works on unfinished runs too. One panel per level: every game as a point, and
the mean over the last 100 games as a line.
"""

import csv
import os
import sys

from absl import app
from absl import flags
import numpy as np

FLAGS = flags.FLAGS

flags.DEFINE_list('logdirs', [], 'Log directories of the runs to draw.')
flags.DEFINE_string('png', 'curves.png', 'File to write.')

WINDOW = 100


def read_episodes(logdir):
  """Reads `episodes.csv`.

  Args:
    logdir: The run's directory.

  Returns:
    A dict of level name to a pair of arrays: frames (int64) and returns
    (float64) of its games, in order.

  Raises:
    FileNotFoundError: The run has none.
  """
  levels = {}
  with open(os.path.join(logdir, 'episodes.csv'), newline='') as f:
    for row in csv.DictReader(f):
      levels.setdefault(row['level'], []).append(
          (int(row['frames']), float(row['episode_return'])))
  return {level: (np.array([frames for frames, _ in rows]),
                  np.array([value for _, value in rows]))
          for level, rows in levels.items()}


def moving_mean(values, window=WINDOW):
  """Mean over the last `window` values, of fewer at the start."""
  sums = np.cumsum(np.concatenate([[0.], values]))
  ends = np.arange(1, len(values) + 1)
  starts = np.maximum(ends - window, 0)
  return (sums[ends] - sums[starts]) / (ends - starts)


def draw(logdirs, path):
  """Draws one panel per run and level into the PNG `path`."""
  import matplotlib
  matplotlib.use('Agg')
  from matplotlib import pyplot as plt

  curves = [(logdir, level, *curve) for logdir in logdirs
            for level, curve in read_episodes(logdir).items()]
  if not curves:
    raise ValueError('No game has finished in ' + ', '.join(logdirs))
  figure, axes = plt.subplots(
      1, len(curves), figsize=(6 * len(curves), 4), squeeze=False)
  for axis, (logdir, level, frames, returns) in zip(axes[0], curves):
    axis.plot(frames / 1e6, returns, '.', markersize=2, alpha=.25, color='C0')
    axis.plot(frames / 1e6, moving_mean(returns), color='C1',
              label=f'mean over {WINDOW} games')
    axis.set_title(f'{level} ({os.path.basename(os.path.normpath(logdir))})')
    axis.set_xlabel('environment frames (millions)')
    axis.set_ylabel('return of a game')
    axis.grid(alpha=.3)
    axis.legend(loc='best')
  figure.tight_layout()
  figure.savefig(path, dpi=100)
  plt.close(figure)


def main(_):
  if not FLAGS.logdirs:
    sys.exit('Error: --logdirs names no log directory.')
  try:
    draw(FLAGS.logdirs, FLAGS.png)
  except (OSError, ValueError) as e:
    sys.exit(f'Error: {e}')
  print(FLAGS.png)


if __name__ == '__main__':
  app.run(main)
