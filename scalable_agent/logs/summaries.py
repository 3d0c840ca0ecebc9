"""What TensorBoard shows of a run: groups, in the order people look at them.

TensorBoard sorts groups by name, so their names begin with a digit.
"""

import collections
import io
import itertools
import os

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.hparams import api as hparams_api
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar import summary_v2 as scalar_summary

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.files import gif
from scalable_agent.logs import recent

MEAN_RETURN = f'1_return/mean_of_{recent.WINDOW}_episodes'
_SUITE_SCORE = 'human_normalized_score'
# Groups of the names that are not in `_GROUPS` and begin with these.
_GROUPS_BY_PREFIX = {'time_': '6_time', 'replay_': '3_lag'}
# Names that are in neither dict are the learner's.
_GROUPS = {
    'fps': '2_speed', 'learner_steps': '2_speed',
    'updates_per_frame': '2_speed', 'replayed_share': '3_lag',
    'inference_batch_mean': '2_speed', 'inference_latency_ms': '2_speed',
    'actor_jobs': '2_speed', 'num_replaced': '2_speed',
    'policy_lag_mean': '3_lag', 'policy_lag_max': '3_lag',
    'queue_size': '3_lag', 'dropped_unrolls': '3_lag',
    'replaying_mb': '3_lag', 'known_priorities': '3_lag',
    'importance_weight_max': '3_lag', 'behaviour_kl': '5_policy',
    'rho_clipped': '5_policy', 'relevance_mean': '5_policy',
    'replay_rejected': '5_policy', 'online_rejected': '5_policy'}
_LEARNER_GROUP = '4_losses'
# The axis itself, and what TensorBoard notes anyway.
_LEFT_OUT = ('frames', 'wall_time')


def tag_of(name):
  """Returns what a key of `metrics.jsonl` is called in TensorBoard."""
  if name.endswith(_SUITE_SCORE):
    return f'1_return/{name}'
  by_prefix = (group for prefix, group in _GROUPS_BY_PREFIX.items()
               if name.startswith(prefix))
  group = _GROUPS.get(name) or next(by_prefix, _LEARNER_GROUP)
  return f'{group}/{name}'


class Summaries:
  """Writes TensorBoard's file of a run."""

  def __init__(self, config):
    """Makes the file, and writes the settings into it.

    Args:
      config: A `config.Config`.

    Raises:
      tf.errors.OpError: The file cannot be written.
    """
    self._writer = tf.summary.create_file_writer(config.logdir)
    self._num_action_repeats = config.num_action_repeats
    self._released_names = suites.find(config.level_name).released_score_names(
        config.level_name)
    with self._writer.as_default():
      tf.summary.text('settings', _as_markdown(config), step=_number(0))
      hparams_api.hparams(_hparams(config), trial_id=(
          f'{os.path.basename(config.logdir)} ({config.logdir})'))

  def write(self, frames, metrics, episodes, recent_episodes, distributions,
            film=None):
    """Writes what is new.

    Args:
      frames: Environment frames so far.
      metrics: A dict of a key of `metrics.jsonl` to its value.
      episodes: A list of pairs: frames, and an `Episode` that ended there.
      recent_episodes: The `recent.RecentEpisodes`, with these.
      distributions: A dict of name to an array of any shape: a histogram each.
      film: A `film.Film`, or None.

    Raises:
      tf.errors.OpError: The file cannot be written.
    """
    with self._writer.as_default():
      # Many short episodes end between two updates.
      for ended, group in itertools.groupby(episodes, lambda pair: pair[0]):
        _write_scalars(
            [(f'7_levels/{episode.level_name}/{name}', getattr(episode, name))
             for _, episode in group
             for name in ('episode_return', 'episode_frames')], ended)
      scalars = [(tag_of(name), value) for name, value in metrics.items()
                 if name not in _LEFT_OUT]
      scalars += [(tag, metrics[name])
                  for name, tag in self._released_names.items()
                  if name in metrics]
      # A mean over the games of a suite would mean nothing.
      if len(recent_episodes) and recent_episodes.num_levels == 1:
        scalars.append((MEAN_RETURN, recent_episodes.mean_return()))
      _write_scalars(scalars, frames)
      for name, values in distributions.items():
        tf.summary.histogram(name, values, step=_number(frames))
      if film:
        self._write_film(film, frames)
    self._writer.flush()

  def write_evaluation(self, frames, scores, episodes):
    """Writes an evaluation.

    Args:
      frames: Environment frames that the weights were trained on.
      scores: Of `suites.scores.of_episodes`.
      episodes: A list of `Episode`s.

    Raises:
      tf.errors.OpError: The file cannot be written.
    """
    returns = collections.defaultdict(list)
    for episode in episodes:
      returns[episode.level_name].append(episode.episode_return)
    with self._writer.as_default():
      # With this name it comes right after the score that it evaluates.
      _write_scalars([(f'1_return/{name}_of_evaluation', value)
                      for name, value in scores.items()] +
                     [(f'7_levels/{level_name}/evaluation_return',
                       np.mean(values))
                      for level_name, values in returns.items()], frames)
    self._writer.flush()

  def _write_film(self, film, frames):
    data = io.BytesIO()
    gif.write(data, film.frames, self._num_action_repeats)
    height, width, _ = film.frames[0].shape
    # `tf.summary.image` would encode each frame as a picture of its own.
    tf.summary.write(
        f'8_episode/{film.level_name}',
        tf.constant([str(width), str(height), data.getvalue()]),
        step=_number(frames), metadata=image_metadata.create_summary_metadata(
            display_name=None, description='An episode of training.'))

  def close(self):
    """Ends the file.

    Raises:
      tf.errors.OpError: It cannot be written.
    """
    self._writer.close()


def _number(value):
  # An array, since TensorFlow keeps every Python number it has converted.
  return np.array(value, np.int64)


def _write_scalars(scalars, frames):
  """Writes pairs of a tag and a number, any of which may occur again."""
  summary = summary_pb2.Summary()
  for tag, value in scalars:
    summary.value.extend(scalar_summary.scalar_pb(tag, value).value)
  # `tf.summary.scalar` would call TensorFlow for each.
  tf.summary.experimental.write_raw_pb(
      summary.SerializeToString(), step=_number(frames))


def _hparams(config):
  """Returns what may differ between runs, a dict of name to value."""
  settings = dict(
      config_lib.effective_values(vars(config), config_lib.AGENT),
      level_name=config.level_name, seed=config.seed,
      num_actors=config.num_actors)
  return {name: value for name, value in settings.items() if value is not None}


def _as_markdown(config):
  rows = [f'| {name} | {getattr(config, name)} |'
          for name in config_lib.SETTINGS]
  return '\n'.join(['| setting | value |', '| --- | --- |', *rows])
