"""What a run says to its user: at the start, while it goes on, at the end."""

import collections
import os
import shlex
import shutil
import sys

from scalable_agent import suites
from scalable_agent.logs import recent

_UNITS = (('G', 1e9), ('M', 1e6), ('k', 1e3))


def short(number, num_digits=3):
  """Returns a number with few digits, as in 12.3k, and without idle zeros."""
  rounded = abs(float(f'{number:.{num_digits - 1}e}'))
  unit, size = next((unit for unit in _UNITS if rounded >= unit[1]), ('', 1.))
  value = number / size
  digits = num_digits - 1 - (abs(value) >= 10) - (abs(value) >= 100)
  text = f'{value:.{digits}f}'
  return (text.rstrip('0').rstrip('.') if '.' in text else text) + unit


def duration(seconds):
  """Returns how long something takes, in its two largest units."""
  seconds = int(max(seconds, 0))
  for (large, size), (small, part) in (
      (('d', 86400), ('h', 3600)), (('h', 3600), ('m', 60)),
      (('m', 60), ('s', 1))):
    if seconds >= size:
      return f'{seconds // size}{large}{seconds % size // part:02d}{small}'
  return f'{seconds}s'


def _number(value):
  return short(value) if abs(value) >= 1e5 else (
      f'{value:.0f}' if abs(value) >= 1e3 else f'{value:.2f}')


def _suite_score(recent_episodes):
  """Returns the first score of a suite and its name, None if it has none."""
  return next(iter(recent_episodes.suite_scores().items()), None)


def _score_text(recent_episodes):
  found = _suite_score(recent_episodes)
  if found:
    name, score = found
    return f'{name.partition("_")[0]} {score:.1f} %'
  if not len(recent_episodes):
    return 'no episode yet'
  text = f'return {_number(recent_episodes.mean_return())}'
  if len(recent_episodes) < recent.WINDOW:
    text += f' ({len(recent_episodes)})'
  return text


def progress_text(frames, total_frames, fps, recent_episodes, policy_lag):
  """Returns one line on how the run is doing, for a terminal of 80 columns.

  Args:
    frames: Environment frames so far.
    total_frames: Environment frames the run is to take.
    fps: Environment frames per second.
    recent_episodes: A `recent.RecentEpisodes`.
    policy_lag: Mean updates between acting and training.
  """
  percent = min(100. * frames / total_frames, 100.)
  left = f'{duration((total_frames - frames) / fps)} left' if fps else (
      'time left unknown')
  return ', '.join([
      f'{short(frames)} of {short(total_frames)} '
      f'({percent:.{0 if percent >= 10 else 1}f} %)',
      f'{short(fps)} frames/s', left,
      _score_text(recent_episodes),
      f'lag {policy_lag:.{0 if policy_lag >= 10 else 1}f}'])


def level(config):
  """Returns the first line of a run: its level, and who plays it."""
  if config.task >= 0:
    return (f'Level: {config.level_name}, played by actor jobs at '
            f'{",".join(config.learner_hosts)}')
  layout = suites.choose_layout(config, config.num_environments)
  pools = '1 pool' if layout.num_pools == 1 else f'{layout.num_pools} pools'
  return (
      f'Level: {config.level_name}, {pools} of {layout.size} environments, at '
      f'most {layout.maximum_batch_size} at a time, {layout.num_workers} '
      f'threads or processes{_unevenness(config)}')


def _unevenness(config):
  """Says how many environments levels have, if these are not as many each."""
  counts = collections.Counter(
      suites.turns(config, 0, config.num_environments)).values()
  fewest, most = min(counts), max(counts)
  if fewest == most:
    return ''
  num_most = sum(count == most for count in counts)
  return (f'; {num_most} of {len(counts)} levels have {most} environments, the '
          f'others {fewest}')


def agent_and_files(config, network, num_parameters, devices, frames):
  """Returns two lines of a run: its agent, and where it is kept.

  Args:
    config: A `config.Config`.
    network: The name of its torso.
    num_parameters: Numbers in the agent's weights.
    devices: A `devices.Devices`.
    frames: Environment frames that it was trained on so far.
  """
  agent = (config.architecture if config.agent == 'impala'
           else config.agent)
  network += ' with LSTM' if config.use_lstm else ''
  xla = 'on' if devices.jit_compile else 'off'
  return [
      f'Agent: {agent}, {network}, {num_parameters:,} '
      f'parameters; learner on {", ".join(devices.learner)}, policy on '
      f'{devices.inference}, XLA {xla}',
      f'Files: {config.logdir}, at frame {short(frames)} of '
      f'{short(config.total_environment_frames)}; all settings are in '
      'config.json']


def _command(config, arguments):
  """Returns a command line for the shell that this process came from."""
  python = 'python'
  found = shutil.which(python)
  if not found or os.path.realpath(found) != os.path.realpath(sys.executable):
    python = sys.executable
  return shlex.join([python, '-m', 'scalable_agent.experiment', *arguments,
                     f'--logdir={config.logdir}'])


def _long_score_text(recent_episodes):
  found = _suite_score(recent_episodes)
  if found:
    name, score = found
    return f'{name.replace("_", " ")} {score:.1f} %'
  if not len(recent_episodes):
    return 'no episode has finished'
  return (f'mean return {_number(recent_episodes.mean_return())} over the last '
          f'{len(recent_episodes)} episodes')


def closing(config, frames, is_new, recent_episodes):
  """Returns three lines on what a run has come to: score, files, next step.

  Args:
    config: A `config.Config`.
    frames: Environment frames that it was trained on.
    is_new: Whether some of these were trained on by this process.
    recent_episodes: A `recent.RecentEpisodes`.
  """
  total = config.total_environment_frames
  state, advice = 'Done', f'Test: {_command(config, ["--mode=test"])}'
  if frames < total:
    state = 'Stopped'
    advice = ('Go on: the same commands' if config.task >= 0 else
              f'Go on: {_command(config, [])}')
  elif not is_new:
    state = 'Nothing to do, this run has finished'
  return [
      f'{state}: {short(frames)} of {short(total)} frames, '
      f'{_long_score_text(recent_episodes)}',
      f'Files: {config.logdir}', advice]
