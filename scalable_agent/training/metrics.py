"""Writes a run's metrics.jsonl, episodes.csv, TensorBoard files, progress."""

import collections
import csv
import io
import json
import math
import os
import threading
import time

from absl import logging
import numpy as np
import tensorflow as tf

from scalable_agent import suites
from scalable_agent.process import errors
from scalable_agent.process import log_lines
from scalable_agent.process import progress
from scalable_agent.suites import scores as suite_scores
from scalable_agent.training import log_file

_RECENT_EPISODES = 100


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


def _csv_line(values):
  text = io.StringIO()
  csv.writer(text, lineterminator='').writerow(values)
  return text.getvalue()


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

  def sync(self):
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
    """Takes up the files of a run, new or resumed; makes none yet.

    Args:
      logdir: The run's directory.
      frames: Environment frames of the checkpoint that the run resumes from, 0
        if it is new. What the files say of later ones was lost with the run
        that wrote them, and is dropped.
      total_frames: Environment frames the run is to take.
      interval_secs: Seconds between two writes.
      level_name: As in the configuration; a suite's scores are written too.

    Raises:
      OSError: A file cannot be read, or cut.
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

    metrics_path = os.path.join(logdir, log_file.METRICS)
    episodes_path = os.path.join(logdir, log_file.EPISODES)
    log_file.keep_until(metrics_path, frames, log_lines.frames_of_metrics)
    log_file.keep_until(
        episodes_path, frames, log_lines.frames_of_episode, header_lines=1)
    self._metrics = log_file.LogFile(metrics_path)
    self._episodes = log_file.LogFile(
        episodes_path, _csv_line(log_lines.EpisodeLine._fields) + '\n')
    self._logdir = logdir
    self._summaries = None

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
    for frames, episode in episodes:
      self._recent_returns.append(episode.episode_return)
      self._suite_scores.add(episode)
      self._episodes.add(_csv_line(
          (frames, episode.level_name, f'{episode.episode_return:.8g}',
           episode.episode_frames)))
    suite = self._suite_scores.compute()
    metrics.update(suite)
    if self._steps:
      # JSON has no word for what is not finite.
      self._metrics.add(json.dumps({
          name: value if math.isfinite(value) else None
          for name, value in metrics.items()}))
      self._progress.show(progress_text(
          self._frames, self._total_frames, fps, self._recent_returns,
          metrics['policy_lag_mean']) + ''.join(
              f' | {name.replace("_", " ")} {value:.1f} %'
              for name, value in suite.items()))
    try:
      self.sync(to_disk=False)
      self._write_summaries(metrics, episodes, suite)
    except (OSError, tf.errors.OpError) as e:
      logging.warning('The logs cannot be written, what they lack will be '
                      'written later: %s', errors.first_line(e))
    self._written_time, self._written_frames = now, self._frames
    self._sums.clear()
    self._lag_max = self._steps = 0

  def _write_summaries(self, metrics, episodes, suite):
    if self._summaries is None:
      self._summaries = tf.summary.create_file_writer(self._logdir)
    with self._summaries.as_default():
      for frames, episode in episodes:
        for name in ('episode_return', 'episode_frames'):
          _summarize(f'{episode.level_name}/{name}', getattr(episode, name),
                     frames)
      for name, value in metrics.items():
        _summarize(name, value, self._frames)
      for name, released_name in self._released_names.items():
        if name in suite:
          _summarize(released_name, suite[name], self._frames)
      if self._steps:
        tf.summary.histogram('action', self._actions,
                             step=np.array(self._frames, np.int64))
    self._summaries.flush()

  def sync(self, to_disk=True):
    """Makes sure that all that `write` took is in the files.

    Args:
      to_disk: Whether to wait until the disk has it.

    Raises:
      OSError: It cannot be written now. Another call tries again.
    """
    for file in self._episodes, self._metrics:
      file.flush(to_disk)

  def close(self):
    """Ends the progress line, and closes TensorBoard's file. `write` first."""
    self._progress.end()
    if self._summaries is None:
      return
    try:
      self._summaries.close()
    except tf.errors.OpError as e:
      logging.warning('TensorBoard\'s file cannot be written: %s',
                      errors.first_line(e))
