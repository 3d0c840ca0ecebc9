"""Gathers what a run has to say, and writes its logs at intervals."""

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

from scalable_agent.files import log_file
from scalable_agent.files import log_lines
from scalable_agent.logs import messages
from scalable_agent.logs import recent
from scalable_agent.logs import summaries
from scalable_agent.process import errors
from scalable_agent.suites import scores as suite_scores


def _csv_line(values):
  text = io.StringIO()
  csv.writer(text, lineterminator='').writerow(values)
  return text.getvalue()


def _episode_line(frames, episode):
  return _csv_line((frames, episode.level_name,
                    f'{episode.episode_return:.8g}', episode.episode_frames))


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


def _mean(values):
  """The mean of a list without NaN, which is NaN if nothing is left."""
  values = [value for value in values if not math.isnan(value)]
  return sum(values) / len(values) if values else math.nan


class Reporter:
  """Gathers episodes and updates, and writes them at intervals.

  Any thread may call `episode` and `evaluation`; one calls the rest.

  Attributes:
    recent: Episodes of this run that were written, before and since it was
      resumed; a `recent.RecentEpisodes`.
    evaluated_frames: Environment frames of the last evaluation before this
      start, 0 if there was none.
  """

  def __init__(self, config, frames, learner_steps):
    """Takes up the files of a run, new or resumed; makes none yet.

    Args:
      config: A `config.Config`.
      frames: Environment frames of the checkpoint that the run resumes from, 0
        if it is new. Lines of later frames are dropped: that training was lost
        with the process that wrote them.
      learner_steps: Updates of that checkpoint.

    Raises:
      OSError: A file cannot be read, or cut.
    """
    self._config = config
    self._frames = self._written_frames = frames
    self._lock = threading.Lock()
    self._new_episodes = []
    self._new_evaluations = []
    self.recent = recent.RecentEpisodes(config.level_name)
    self._logs = collections.defaultdict(list)
    self._lags = []
    self._steps = 0
    self._actions = None
    self._start = self._written_time = time.monotonic()

    metrics_path = os.path.join(config.logdir, log_file.METRICS)
    episodes_path = os.path.join(config.logdir, log_file.EPISODES)
    # Updates on replay alone leave the frames as they are.
    log_file.keep_until(
        metrics_path, (frames, learner_steps), log_lines.progress_of_metrics)
    log_file.keep_until(
        episodes_path, frames, log_lines.frames_of_episode, header_lines=1)
    self.recent.add_logged(episodes_path)
    evaluations_path = os.path.join(config.logdir, log_file.EVALUATIONS)
    log_file.keep_until(
        evaluations_path, frames, log_lines.frames_of_episode, header_lines=1)
    self.evaluated_frames = log_file.last_frames(
        evaluations_path, log_lines.frames_of_episode)
    self._metrics = log_file.LogFile(metrics_path)
    header = log_lines.EPISODE_HEADER + '\n'
    self._episodes = log_file.LogFile(episodes_path, header)
    self._evaluations = log_file.LogFile(evaluations_path, header)
    self._summaries = None

  def episode(self, episode):
    """Notes a finished `Episode`."""
    with self._lock:
      self._new_episodes.append((self._frames, episode))

  def evaluation(self, frames, episodes):
    """Notes an evaluation.

    Args:
      frames: Environment frames that the weights were trained on.
      episodes: A list of `Episode`s, at least one of each level.
    """
    with self._lock:
      self._new_evaluations.append((frames, episodes))

  def fitness(self):
    """Returns the `suites.scores.Score` of what `write` took, or None."""
    return self.recent.fitness()

  def step(self, frames, logs, policy_lags, actions):
    """Notes an update.

    Args:
      frames: Environment frames trained on so far.
      logs: A dict of floats from the learner, NaN where an update has none.
      policy_lags: int64 [N], updates between acting and training, of the
        unrolls that are new.
      actions: int32 array of any shape, the actions of the batch.
    """
    self._frames = frames
    self._actions = actions
    for name, value in logs.items():
      self._logs[name].append(value)
    self._lags.append(policy_lags)
    self._steps += 1

  def due(self):
    """Whether the next `write` is due."""
    return (time.monotonic() - self._written_time >=
            self._config.log_interval_secs)

  def write(self, learner_steps, gauges, stage_seconds, film=None):
    """Writes what has gathered.

    Args:
      learner_steps: Updates so far.
      gauges: A dict of further values to log as they are now.
      stage_seconds: A dict of stage name to seconds since the last write.
      film: A `film.Film` of an episode, or None.

    Returns:
      A line on how the run is doing, None if there was no update.
    """
    now = time.monotonic()
    episodes, evaluations = self._take()
    self._add_episodes(episodes, evaluations)
    scores = self.recent.suite_scores()
    metrics, distributions, text = scores, {}, None
    if self._steps:
      lags = np.concatenate(self._lags)
      metrics = self._gather(now, learner_steps, lags, gauges, stage_seconds)
      metrics.update(scores)
      distributions = {'3_lag/policy_lag': lags,
                       '5_policy/action': self._actions}
      self._add_metrics(metrics)
      text = messages.progress_text(
          self._frames, self._config.total_environment_frames, metrics['fps'],
          self.recent, metrics['policy_lag_mean'])
    try:
      self.sync(to_disk=False)
      self._write_summaries(metrics, distributions, episodes, evaluations, film)
    except (OSError, tf.errors.OpError) as e:
      logging.warning('The logs cannot be written. The files get later what '
                      'they lack, TensorBoard does not: %s',
                      errors.first_line(e))
    self._begin_interval(now)
    return text

  def _take(self):
    """Returns the episodes and the evaluations since the last write."""
    with self._lock:
      episodes, self._new_episodes = self._new_episodes, []
      evaluations, self._new_evaluations = self._new_evaluations, []
    return episodes, evaluations

  def _add_episodes(self, episodes, evaluations):
    """Counts new episodes, and has lines of them for the next `sync`."""
    for frames, episode in episodes:
      self.recent.add(episode)
      self._episodes.add(_episode_line(frames, episode))
    for frames, played in evaluations:
      for episode in played:
        self._evaluations.add(_episode_line(frames, episode))
    self._episodes.begin()

  def _gather(self, now, learner_steps, lags, gauges, stage_seconds):
    """Returns the metrics of the updates since the last write, a dict."""
    elapsed = now - self._written_time
    new_frames = self._frames - self._written_frames
    metrics = dict(
        frames=self._frames,
        wall_time=now - self._start,
        fps=new_frames / elapsed,
        learner_steps=learner_steps)
    if new_frames:
      metrics.update(updates_per_frame=self._steps / new_frames)
    metrics.update(
        (name, sum(values) if name == 'skipped' else _mean(values))
        for name, values in self._logs.items())
    metrics.update(policy_lag_mean=float(lags.sum()) / max(len(lags), 1),
                   policy_lag_max=int(lags.max(initial=0)), **gauges)
    metrics.update((f'time_{name}', seconds / elapsed)
                   for name, seconds in stage_seconds.items())
    return metrics

  def _add_metrics(self, metrics):
    """Has a line of metrics for the next `sync`."""
    # JSON has no numbers that are not finite.
    self._metrics.add(json.dumps({
        name: value if math.isfinite(value) else None
        for name, value in metrics.items()}))

  def _write_summaries(self, metrics, distributions, episodes, evaluations,
                       film):
    """Writes TensorBoard's file, which is made where there is none yet.

    Raises:
      OSError, tf.errors.OpError: It cannot be written.
    """
    if self._summaries is None:
      self._summaries = summaries.Summaries(self._config)
    self._summaries.write(
        self._frames, metrics, episodes, self.recent, distributions, film)
    for frames, played in evaluations:
      self._summaries.write_evaluation(
          frames, suite_scores.of_episodes(self._config.level_name, played),
          played)

  def _begin_interval(self, now):
    """Forgets the updates that are written."""
    self._written_time, self._written_frames = now, self._frames
    self._logs.clear()
    self._lags.clear()
    self._steps = 0

  def sync(self, to_disk=True):
    """Makes sure that all that `write` took is in the files.

    Args:
      to_disk: Whether to wait until the disk has it.

    Raises:
      OSError: It cannot be written now. Another call tries again.
    """
    for file in self._episodes, self._evaluations, self._metrics:
      file.flush(to_disk)

  def close(self):
    """Closes TensorBoard's file. `write` first."""
    if self._summaries is None:
      return
    try:
      self._summaries.close()
    except tf.errors.OpError as e:
      logging.warning('TensorBoard\'s file cannot be written: %s',
                      errors.first_line(e))
