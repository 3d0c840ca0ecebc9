"""Reads what runs left in their log directories, finished or not."""

import collections
import contextlib
import dataclasses
import math
import os

from absl import logging
import numpy as np

from scalable_agent import config as config_lib
from scalable_agent.config import settings as settings_lib
from scalable_agent.files import file_names
from scalable_agent.files import log_file
from scalable_agent.files import log_lines
from scalable_agent.files import whole_file
from scalable_agent.results import published

Run = collections.namedtuple(
    'Run', 'logdir config frames episodes tested tested_frames clock '
    'evaluations updates', defaults=[None, {}, None])
Run.__doc__ = """A log directory.

  logdir: Its path.
  config: The settings of `config.json`, a dict, empty if there is none.
  frames: Environment frames that the run has got to.
  episodes: A dict of level to `Episodes`, by the order of their first episode.
  tested: A dict of level to the returns of its test episodes, float64 [N];
    empty if the run was not tested.
  tested_frames: Environment frames at the test, None if there was none.
  clock: A `Clock`, None if the run has not said how fast it was.
  evaluations: A dict of level to `Episodes` that were played while the run
    trained (--evaluate_every_frames); their frames are those of the weights.
  updates: Updates that the run has made, None if it has not said.
"""

Clock = collections.namedtuple('Clock', 'frames hours')
Clock.__doc__ = """How long a run took, all of its starts together.

  frames: int64 [N], environment frames, increasing.
  hours: float64 [N], hours of training until then. They begin when a start has
    restored its checkpoint, before environments start and XLA compiles.
"""

Episodes = collections.namedtuple('Episodes', 'frames returns')
Episodes.__doc__ = """A level's training episodes, in the order of their ends.

  frames: int64 [N], environment frames of the run when they ended.
  returns: float64 [N], their unclipped returns.
"""

# What is read of a configuration.
_READ_SETTINGS = (
    'level_name', 'seed', *config_lib.names(config_lib.AGENT))
_HEADER = log_lines.EPISODE_HEADER.encode()
# What is slower was not measured.
_LEAST_FPS = 1e-3


@contextlib.contextmanager
def _reading(path):
  """Names the file that cannot be read, unless it does not exist."""
  try:
    yield
  except (FileNotFoundError, NotADirectoryError):
    raise
  except OSError as e:
    raise ValueError(f'{path} cannot be read: {e.strerror}.') from e


def _read_json(path):
  with _reading(path):
    try:
      return whole_file.read_json(path)
    except FileNotFoundError:
      return {}
    except ValueError as e:
      raise ValueError(f'{path} is not readable as JSON: {e}') from e


def _read_config(logdir):
  """Reads `config.json`, and checks what is taken from it."""
  path = os.path.join(logdir, file_names.CONFIG)
  config = _read_json(path)
  for name in _READ_SETTINGS:
    if name not in config:
      continue
    value = config[name]
    # The report does not care whether the values could still work today.
    declared = dataclasses.replace(
        config_lib.SETTINGS[name], check=None, choices=())
    try:
      settings_lib.check_value(declared, value)
    except config_lib.ConfigError as e:
      raise ValueError(f'{path}: {e}') from e
    if declared.type is int and not log_lines.is_frames(abs(value)):
      raise ValueError(f'{path}: --{name} is too large.')
    if declared.type is str and not value.isprintable():
      raise ValueError(f'{path}: --{name}={value!r} is no name.')
  return config


def _read_test_scores(logdir):
  """Reads `test_scores.json`.

  Returns:
    A pair: a dict of level to the returns of its episodes, float64 [N], and the
    frames at the test, None if there was none.
  """
  path = os.path.join(logdir, file_names.TEST_SCORES)
  scores = _read_json(path)
  if not scores:
    return {}, None
  try:
    tested = {level: np.array(score['episode_returns'], np.float64)
              for level, score in scores['levels'].items()}
  except (ValueError, AttributeError, KeyError, TypeError, OverflowError) as e:
    raise ValueError(f'{path} holds no test scores ({e!r}).') from e
  for level, returns in tested.items():
    if (not level.isprintable() or returns.ndim != 1 or
        not np.isfinite(returns).all()):
      raise ValueError(f'{path} holds no test scores of {level!r}.')
  if not log_lines.is_frames(scores.get('frames')):
    raise ValueError(f'{path} does not say after how many frames the test was.')
  return tested, scores['frames']


def _parse_lines(path, parse):
  """Yields what the lines of a log say; warns if some are damaged.

  Args:
    path: The file.
    parse: A function of a line, bytes, that returns None if it is damaged.
  """
  num_damaged = 0
  with _reading(path), open(path, 'rb') as f:
    for line in f:
      parsed = parse(line)
      if parsed is not None:
        yield parsed
      # A line without an end is still being written.
      elif line.endswith(b'\n') and line.strip() != _HEADER:
        num_damaged += 1
  if num_damaged:
    logging.warning(
        '%s: left out %d lines that are damaged or hold a return that is not '
        'finite.', path, num_damaged)


def read_episodes(logdir, name=log_file.EPISODES):
  """Reads `episodes.csv`.

  Args:
    logdir: The run's directory.
    name: Another file of this kind.

  Returns:
    A dict of level name to `Episodes`. Lines that are still being written or
    are damaged are left out, and so are returns that are not finite.

  Raises:
    FileNotFoundError: The run has none.
    ValueError: It cannot be read.
  """
  levels = {}
  for episode in _parse_lines(
      os.path.join(logdir, name), log_lines.parse_finite_episode):
    levels.setdefault(episode.level, []).append(
        (episode.frames, episode.episode_return))
  return {level: Episodes(np.array([frames for frames, _ in episodes]),
                          np.array([value for _, value in episodes]))
          for level, episodes in levels.items()}


def read_metrics(logdir):
  """Yields the lines of `metrics.jsonl`, none if the run has no such file.

  Args:
    logdir: The run's directory.

  Yields:
    Dicts whose `frames` is an int; of the rest nothing is checked. Lines that
    are still being written or are damaged are left out.

  Raises:
    ValueError: The file cannot be read.
  """
  with contextlib.suppress(FileNotFoundError):
    yield from _parse_lines(
        os.path.join(logdir, log_file.METRICS), log_lines.parse_metrics)


def _read_progress(logdir):
  """Returns what `metrics.jsonl` says of frames, updates and time.

  Returns:
    A triple: frames by its last whole line, 0 if there is none; updates by
    that, None if it does not say; and a `Clock` or None.
  """
  last, updates = 0, None
  frames, seconds = [0], [0.]
  for metrics in read_metrics(logdir):
    last = metrics['frames']
    updates = metrics.get('learner_steps')
    fps = metrics.get('fps')
    # The seconds in the log begin anew when a run resumes.
    if (isinstance(fps, float) and _LEAST_FPS < fps < math.inf and
        last > frames[-1]):
      seconds.append(seconds[-1] + (last - frames[-1]) / fps)
      frames.append(last)
  if not log_lines.is_frames(updates):
    updates = None
  if len(frames) == 1:
    return last, updates, None
  return last, updates, Clock(np.array(frames), np.array(seconds) / 3600)


def read(logdir):
  """Reads a run.

  Args:
    logdir: Its directory.

  Returns:
    A `Run`.

  Raises:
    FileNotFoundError: There is neither a configuration nor an episode in it.
    ValueError: A file in it cannot be read, or is not what it should be.
  """
  config = _read_config(logdir)
  try:
    episodes = read_episodes(logdir)
  except FileNotFoundError:
    if not config:
      raise FileNotFoundError(
          f'{logdir} holds no run: it has neither config.json nor '
          'episodes.csv.') from None
    episodes = {}
  evaluations = {}
  with contextlib.suppress(FileNotFoundError):
    evaluations = read_episodes(logdir, log_file.EVALUATIONS)
  tested, tested_frames = _read_test_scores(logdir)
  last_frames, updates, clock = _read_progress(logdir)
  # A copy of a run may have its test alone, and not its metrics.
  ends = [e.frames[-1] for e in episodes.values()] + [
      last_frames or tested_frames or 0]
  return Run(logdir, config, int(max(ends)), episodes, tested, tested_frames,
             clock, evaluations, updates)


def is_of_suite(run):
  """Whether one agent is trained on all levels of a suite."""
  return bool(published.levels_of_suite(run.config.get('level_name')))


def levels_of(run):
  """The levels that a run has had episodes of, or was to have."""
  name = run.config.get('level_name')
  expected = published.levels_of_suite(name) or ([name] if name else [])
  return list(dict.fromkeys([*run.episodes, *run.tested, *expected]))


def in_hours(run, episodes):
  """Returns `Episodes` with hours of training in place of their frames.

  Args:
    run: A `Run` whose `clock` is known.
    episodes: `Episodes` of it.
  """
  hours = np.interp(episodes.frames, run.clock.frames, run.clock.hours)
  return episodes._replace(frames=hours)
