"""Reads what runs left in their log directories, finished or not."""

import collections
import csv
import json
import os

import numpy as np

from scalable_agent import config as config_lib
from scalable_agent.results import published

Run = collections.namedtuple(
    'Run', 'logdir config frames episodes tested tested_frames')
Run.__doc__ = """A log directory.

  logdir: Its path.
  config: The settings of `config.json`, a dict, empty if there is none.
  frames: Environment frames that the run has got to.
  episodes: A dict of level to `Episodes`, by the order of their first episode.
  tested: A dict of level to the returns of its test episodes, float64 [N];
    empty if the run was not tested.
  tested_frames: Environment frames at the test, None if there was none.
"""

Episodes = collections.namedtuple('Episodes', 'frames returns')
Episodes.__doc__ = """A level's training episodes, in the order of their ends.

  frames: int64 [N], environment frames of the run when they ended.
  returns: float64 [N], their unclipped returns.
"""

# Settings that make an agent what it is. The others are about the machine, or
# name the run.
SETTINGS = config_lib.names(config_lib.AGENT)


def _read_json(path):
  try:
    with open(path) as f:
      value = json.load(f)
  except FileNotFoundError:
    return {}
  except ValueError as e:
    raise ValueError(f'{path} is not readable as JSON: {e}') from e
  if not isinstance(value, dict):
    raise ValueError(f'{path} holds no JSON object.')
  return value


def read_episodes(logdir):
  """Reads `episodes.csv`.

  Args:
    logdir: The run's directory.

  Returns:
    A dict of level name to `Episodes`. Lines that are still being written are
    left out.

  Raises:
    FileNotFoundError: The run has none.
  """
  levels = {}
  with open(os.path.join(logdir, 'episodes.csv'), newline='') as f:
    for row in csv.DictReader(f):
      if None in row.values():
        continue
      try:
        episode = int(row['frames']), float(row['episode_return'])
        int(row['episode_frames'])
      except (ValueError, KeyError):
        continue
      levels.setdefault(row['level'], []).append(episode)
  return {level: Episodes(np.array([frames for frames, _ in episodes]),
                          np.array([value for _, value in episodes]))
          for level, episodes in levels.items()}


def _last_frames(logdir):
  """Frames by the last whole line of `metrics.jsonl`, 0 if there is none."""
  frames = 0
  try:
    with open(os.path.join(logdir, 'metrics.jsonl')) as f:
      for line in f:
        try:
          frames = int(json.loads(line)['frames'])
        except (ValueError, KeyError, TypeError):
          pass
  except FileNotFoundError:
    pass
  return frames


def read(logdir):
  """Reads a run.

  Args:
    logdir: Its directory.

  Returns:
    A `Run`.

  Raises:
    FileNotFoundError: There is neither a configuration nor an episode in it.
    ValueError: A file in it is not what it should be.
  """
  config = _read_json(os.path.join(logdir, 'config.json'))
  try:
    episodes = read_episodes(logdir)
  except FileNotFoundError:
    if not config:
      raise FileNotFoundError(
          f'{logdir} holds no run: it has neither config.json nor '
          'episodes.csv.') from None
    episodes = {}
  scores = _read_json(os.path.join(logdir, 'test_scores.json'))
  try:
    tested = {level: np.array(score['episode_returns'], np.float64)
              for level, score in scores.get('levels', {}).items()}
  except (AttributeError, KeyError, TypeError) as e:
    raise ValueError(
        f'{logdir}/test_scores.json holds no test scores ({e!r}).') from e
  ends = [e.frames[-1] for e in episodes.values()] + [_last_frames(logdir)]
  return Run(logdir, config, int(max(ends)), episodes, tested,
             scores.get('frames'))


def levels_of(run):
  """The levels that a run has had episodes of, or was to have."""
  name = run.config.get('level_name')
  expected = published.levels_of_suite(name) or ([name] if name else [])
  return list(dict.fromkeys([*run.episodes, *run.tested, *expected]))


def _settings(run):
  """What makes two runs seeds of one agent, if it is equal."""
  if not run.config:
    return (('logdir', run.logdir),)
  name = run.config.get('level_name')
  settings = config_lib.effective_values(run.config, config_lib.AGENT)
  return (*settings.items(), ('suite', bool(published.levels_of_suite(name))))


# An agent for a suite of games has all actions.
_NAMED_OTHERWISE = {'network', 'use_lstm', 'suite', 'full_action_set'}


def _name(settings, shared):
  """What to call an agent, given the settings that all agents share."""
  values = dict(settings)
  if 'logdir' in values:
    return os.path.basename(os.path.normpath(values['logdir']))
  parts = [str(values['network'])]
  if values['use_lstm']:
    parts.append('LSTM')
  if values['suite']:
    parts.append('multi-task')
  for name, value in settings:
    if name in shared | _NAMED_OTHERWISE or value is None:
      continue
    if name == 'total_environment_frames' and value:
      parts.append(f'for {value / 1e6:g}M frames')
    else:
      parts.append(f'{name}={value}')
  return ', '.join(parts)


def group(all_runs):
  """Puts the seeds of an agent together.

  Two runs are of one agent if they differ in nothing but level, seed and what
  is about the machine. A run without a configuration is an agent of its own.

  Args:
    all_runs: A list of `Run`s.

  Returns:
    A dict of a name for the agent, which says how it differs from the others,
    to its list of `Run`s.
  """
  by_settings = collections.defaultdict(list)
  for run in all_runs:
    by_settings[_settings(run)].append(run)
  known = [dict(s) for s in by_settings if s[0][0] != 'logdir']
  shared = {name for name in SETTINGS
            if len({values[name] for values in known}) <= 1}
  agents = {}
  for settings, seeds in by_settings.items():
    name = _name(settings, shared)
    if name in agents:
      name = f'{name} ({seeds[0].logdir})'
    agents[name] = seeds
  return agents
