"""How far a run is, by its files."""

import collections
import math
import os

from scalable_agent import suites
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.evaluation import schedule
from scalable_agent.evaluation import scores as scores_lib
from scalable_agent.files import file_names
from scalable_agent.files import log_file
from scalable_agent.files import log_lines
from scalable_agent.files import whole_file
from scalable_agent.suites import scores as suite_scores

Progress = collections.namedtuple('Progress', 'frames fps mean_return')
Progress.__doc__ = """How far a run is, each None if it has not said.

  frames: Environment frames.
  fps: Environment frames per second.
  mean_return: Of the last episodes, at most `suites.scores.WINDOW`.
"""


def is_trained(logdir, total_frames):
  """Whether the newest checkpoint of a run has all of its frames."""
  return checkpoint_files.newest_frames(logdir) >= total_frames


def is_evaluated(logdir, period):
  """Whether every evaluation that is due has been played.

  Args:
    logdir: The run's directory.
    period: As `evaluate_every_frames`.

  Raises:
    OSError: Files cannot be read.
  """
  if not period:
    return True
  evaluated = log_file.last_frames(
      os.path.join(logdir, log_file.EVALUATIONS), log_lines.frames_of_episode)
  return not schedule.is_due(
      checkpoint_files.newest_frames(logdir), evaluated, period)


def is_tested(config):
  """Whether a `config.Config`'s test has been played, and its films made."""
  try:
    scores = whole_file.read_json(
        os.path.join(config.logdir, file_names.TEST_SCORES))
    return scores['test'] == scores_lib.identity(config) and all(
        scores['levels'][level]['num_episodes'] >= config.test_num_episodes
        and (not config.video_dir or os.path.exists(
            file_names.video(config.video_dir, level)))
        for level in suites.level_names(config))
  except (FileNotFoundError, NotADirectoryError, ValueError, KeyError,
          TypeError):
    return False


def last_episodes(logdir, count, after, until=math.inf):
  """Reads the last episodes that a run has logged in a range of frames.

  Args:
    logdir: The run's directory.
    count: How many at most.
    after: Environment frames; the episodes have more.
    until: Environment frames; the episodes have no more.

  Returns:
    A list of `log_lines.EpisodeLine`s, the newest last, without returns that
    are not finite.
  """
  found = []
  for line in log_file.whole_lines_backwards(
      os.path.join(logdir, log_file.EPISODES)):
    episode = log_lines.parse_finite_episode(line)
    if episode and episode.frames <= after or len(found) == count:
      break
    if episode and episode.frames <= until:
      found.append(episode)
  return found[::-1]


def read(logdir):
  """Reads the ends of what a run logs, and returns its `Progress`."""
  lines = log_file.whole_lines_backwards(os.path.join(logdir, log_file.METRICS))
  metrics = next(filter(None, map(log_lines.parse_metrics, lines)), {})
  fps = metrics.get('fps')
  returns = [episode.episode_return
             for episode in last_episodes(logdir, suite_scores.WINDOW, -1)]
  return Progress(
      metrics.get('frames'), fps if isinstance(fps, float) else None,
      sum(returns) / len(returns) if returns else None)
