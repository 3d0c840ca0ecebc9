"""Saves and restores the learner: atomically, with the last few kept."""

import os

from absl import logging
import tensorflow as tf


class CheckpointError(RuntimeError):
  """No checkpoint can be restored; the message says which were tried."""


class Checkpointer:
  """Weights, optimizer slots, counters and configuration of a learner.

  TensorFlow writes a checkpoint under a temporary name and renames it, and only
  then names it in the file `checkpoint`, so that being killed at any time
  leaves the one before in place.
  """

  def __init__(self, logdir, learner, config_json, keep=3):
    """Initializes the checkpointer.

    Args:
      logdir: The directory of the checkpoints.
      learner: A `learner.Learner`.
      config_json: The configuration to save along, a string.
      keep: How many checkpoints to keep.
    """
    self._learner = learner
    # What an algorithm lacks has no name in its checkpoints.
    targets = ({'target_params': learner.target_params}
               if learner.target_params else {})
    self._checkpoint = tf.train.Checkpoint(
        params=learner.params,
        **targets,
        optimizer=learner.optimizer,
        num_environment_frames=learner.num_environment_frames,
        learner_steps=learner.learner_steps,
        config=tf.Variable(config_json, trainable=False))
    self._config_json = config_json
    self._manager = tf.train.CheckpointManager(
        self._checkpoint, logdir, max_to_keep=keep)
    self._saved_frames = None

  def save(self):
    """Saves, unless nothing has changed since. Returns the newest path."""
    frames = self._learner.frames
    if frames != self._saved_frames:
      self._checkpoint.config.assign(self._config_json)
      self._manager.save(checkpoint_number=frames)
      self._saved_frames = frames
    return self._manager.latest_checkpoint

  def restore(self):
    """Restores the newest checkpoint that is whole.

    Returns:
      Its path, or None if there is no checkpoint.

    Raises:
      CheckpointError: There are checkpoints, and none can be restored.
    """
    paths = self._manager.checkpoints
    for path in reversed(paths):
      try:
        self._checkpoint.restore(path).assert_consumed()
      except (tf.errors.OpError, AssertionError, IndexError, ValueError) as e:
        logging.warning(
            'Checkpoint %s cannot be restored, trying the one before: %s',
            path, (str(e).splitlines() or [type(e).__name__])[0])
        continue
      self._saved_frames = self._learner.frames
      return path
    if paths:
      names = ', '.join(os.path.basename(path) for path in paths)
      raise CheckpointError(
          f'None of the checkpoints in {os.path.dirname(paths[0])} can be '
          f'restored ({names}). Move them away to start afresh, or choose '
          'another --logdir.')
    return None
