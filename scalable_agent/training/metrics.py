"""Writes a run's metrics.jsonl, episodes.csv, TensorBoard files, progress."""

import collections
import csv
import json
import math
import os
import threading
import time

import numpy as np
import tensorflow as tf

from scalable_agent import suites
from scalable_agent.process import progress
from scalable_agent.suites import scores as suite_scores

EPISODE_FIELDS = ('frames', 'level', 'episode_return', 'episode_frames')
_RECENT_EPISODES = 100


def _keep_until(path, frames, frames_of_line, header_lines):
  """Drops the lines that a run wrote after the checkpoint it resumes from."""
  if not os.path.exists(path):
    return
  with open(path) as f:
    lines = f.readlines()
  kept = lines[:header_lines]
  for line in lines[header_lines:]:
    try:
      # A line without an end was being written when the run was killed.
      if line.endswith('\n') and frames_of_line(line) <= frames:
        kept.append(line)
    except (ValueError, KeyError):
      pass
  if len(kept) != len(lines):
    with open(path + '.tmp', 'w') as f:
      f.writelines(kept)
    os.replace(path + '.tmp', path)


def _short(number):
  for unit, size in (('G', 1e9), ('M', 1e6), ('k', 1e3)):
    if number >= size:
      return f'{number / size:.2f}{unit}'
  return f'{number:.0f}'


def _duration(seconds):
  minutes, seconds = divmod(int(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{seconds:02d}'


def progress_text(frames, total_frames, fps, returns, policy_lag):
  """One line on how the run is doing.

  Args:
    frames: Environment frames so far.
    total_frames: Environment frames the run is to take.
    fps: Environment frames per second.
    returns: The recent episode returns, newest last.
    policy_lag: Mean updates between acting and training.
  """
  left = _duration((total_frames - frames) / fps) if fps else 'unknown'
  mean = (f'{np.mean(returns):.2f} over {len(returns)} episodes' if returns
          else 'no episode finished yet')
  return (f'frames {_short(frames)} of {_short(total_frames)} '
          f'({100. * frames / total_frames:.1f} %) | {_short(fps)} frames/s | '
          f'mean return {mean} | policy lag {policy_lag:.1f} | '
          f'time left {left}')


def _summarize(name, value, frames):
  # Arrays, since TensorFlow keeps every Python number it has converted.
  tf.summary.scalar(name, np.array(value, np.float32),
                    step=np.array(frames, np.int64))


class Forwarder:
  """In place of a `Reporter` where another learner writes."""

  def __init__(self):
    self._episodes = collections.deque()

  def episode(self, episode):
    """Keeps a finished `Episode` until `take`."""
    self._episodes.append(episode)

  def take(self):
    """Returns the episodes since the last call."""
    return [self._episodes.popleft() for _ in range(len(self._episodes))]

  def step(self, *unused_args):
    """The first learner logs the losses, which are sums over all learners."""

  def write(self, *unused_args):
    """There is nothing to write to."""

  def due(self):
    """Never."""
    return False

  def close(self):
    """There is nothing to close."""


class Reporter:
  """Gathers episodes and updates, and writes them at intervals.

  `episode` may be called by any thread, the rest by one.
  """

  def __init__(self, logdir, frames, total_frames, interval_secs, level_name):
    """Opens the files of a run, new or resumed.

    Args:
      logdir: The run's directory.
      frames: Environment frames the run has behind it. What the files say of
        later ones was lost with the run that wrote them, and is dropped.
      total_frames: Environment frames the run is to take.
      interval_secs: Seconds between two writes.
      level_name: As in the configuration; a suite's scores are written too.
    """
    self._total_frames = total_frames
    self._interval = interval_secs
    self._frames = self._written_frames = frames
    self._lock = threading.Lock()
    self._new_episodes = []
    self._recent_returns = collections.deque(maxlen=_RECENT_EPISODES)
    self._suite_scores = suite_scores.RunningScores(level_name)
    self._released_names = suites.find(level_name).released_score_names(
        level_name)
    self._sums = collections.Counter()
    self._lag_max = 0
    self._steps = 0
    self._actions = None
    self._start = self._written_time = time.time()
    self._progress = progress.ProgressLine()

    metrics_path = os.path.join(logdir, 'metrics.jsonl')
    episodes_path = os.path.join(logdir, 'episodes.csv')
    _keep_until(metrics_path, frames,
                lambda line: json.loads(line)['frames'], 0)
    _keep_until(episodes_path, frames,
                lambda line: int(line.split(',')[0]), 1)
    self._metrics = open(metrics_path, 'a', buffering=1)
    self._episodes = open(episodes_path, 'a', buffering=1, newline='')
    self._episode_writer = csv.writer(self._episodes, lineterminator='\n')
    if self._episodes.tell() == 0:
      self._episode_writer.writerow(EPISODE_FIELDS)
    self._summaries = tf.summary.create_file_writer(logdir)

  def episode(self, episode):
    """Notes a finished `Episode`."""
    with self._lock:
      self._new_episodes.append((self._frames, episode))

  def step(self, frames, logs, policy_lags, actions):
    """Notes an update.

    Args:
      frames: Environment frames trained on so far.
      logs: A dict of floats from the learner.
      policy_lags: int64 [B], updates between acting and training.
      actions: int32 array of any shape, the actions of the batch.
    """
    self._frames = frames
    self._actions = actions
    self._sums.update(logs)
    self._sums.update(policy_lag_mean=float(np.mean(policy_lags)))
    self._lag_max = max(self._lag_max, int(np.max(policy_lags)))
    self._steps += 1

  def due(self):
    """Whether the next `write` is due."""
    return time.time() - self._written_time >= self._interval

  def write(self, learner_steps, gauges, stage_seconds):
    """Writes what has gathered, and shows progress.

    Args:
      learner_steps: Updates so far.
      gauges: A dict of further values to log as they are now.
      stage_seconds: A dict of stage name to seconds since the last write.
    """
    now = time.time()
    elapsed = now - self._written_time
    fps = (self._frames - self._written_frames) / elapsed
    metrics = dict(
        frames=self._frames,
        wall_time=now - self._start,
        fps=fps,
        learner_steps=learner_steps)
    steps = max(self._steps, 1)
    metrics.update((name, value if name == 'skipped' else value / steps)
                   for name, value in self._sums.items())
    metrics.update(policy_lag_max=self._lag_max, **gauges)
    metrics.update((f'time_{name}', seconds / elapsed)
                   for name, seconds in stage_seconds.items())

    with self._lock:
      episodes, self._new_episodes = self._new_episodes, []
    with self._summaries.as_default():
      for frames, episode in episodes:
        self._write_episode(frames, episode)
      suite = self._suite_scores.compute()
      metrics.update(suite)
      for name, value in metrics.items():
        _summarize(name, value, self._frames)
      for name, released_name in self._released_names.items():
        if name in suite:
          _summarize(released_name, suite[name], self._frames)
      if self._steps:
        tf.summary.histogram('action', self._actions,
                             step=np.array(self._frames, np.int64))
    self._summaries.flush()
    if self._steps:
      # JSON has no word for what is not finite.
      self._metrics.write(json.dumps({
          name: value if math.isfinite(value) else None
          for name, value in metrics.items()}) + '\n')
      self._progress.show(progress_text(
          self._frames, self._total_frames, fps, self._recent_returns,
          metrics['policy_lag_mean']) + ''.join(
              f' | {name.replace("_", " ")} {value:.1f} %'
              for name, value in suite.items()))

    self._written_time, self._written_frames = now, self._frames
    self._sums.clear()
    self._lag_max = self._steps = 0

  def _write_episode(self, frames, episode):
    self._recent_returns.append(episode.episode_return)
    self._suite_scores.add(episode)
    self._episode_writer.writerow(
        (frames, episode.level_name, f'{episode.episode_return:.8g}',
         episode.episode_frames))
    for name in ('episode_return', 'episode_frames'):
      _summarize(f'{episode.level_name}/{name}', getattr(episode, name), frames)

  def close(self):
    """Closes the files. `write` first."""
    self._progress.end()
    self._metrics.close()
    self._episodes.close()
    self._summaries.close()
