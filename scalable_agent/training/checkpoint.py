"""Saves and restores the learner: atomically, with the last few kept."""

import os

from absl import logging
import tensorflow as tf

from scalable_agent.process import errors
from scalable_agent.training import checkpoint_files as files

# What reading a damaged or foreign checkpoint, or writing one, can raise.
READ_ERRORS = (tf.errors.OpError, AssertionError, IndexError, ValueError,
               RuntimeError, OSError)
WRITE_ERRORS = (tf.errors.OpError, OSError)


class CheckpointError(RuntimeError):
  """Checkpoints cannot be restored or saved; the message says which and why."""


class Checkpointer:
  """Weights, optimizer slots, counters and configuration of a learner.

  `checkpoint_files` says how they get into the log directory.
  """

  def __init__(self, logdir, learner, config_json, keep=3):
    """Initializes the checkpointer.

    Args:
      logdir: The directory of the checkpoints.
      learner: A `learner.Learner`.
      config_json: The configuration to save along, a string.
      keep: How many checkpoints to keep.
    """
    self._logdir = logdir
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
    # Made now: a restore that fails would complain of its absence at the end.
    self._save_counter = self._checkpoint.save_counter
    self._config_json = config_json
    self._keep = keep
    self._saved_frames = None
    # Those that could not be restored, as long as they have their names.
    self._damaged = []

  @property
  def newest_frames(self):
    """Environment frames of the checkpoint that was last saved or restored."""
    return self._saved_frames or 0

  def save(self):
    """Saves, unless nothing has changed since. Returns the newest path.

    Raises:
      tf.errors.OpError: It cannot be written; those before it stay.
      OSError: Likewise.
    """
    frames = self._learner.frames
    path = files.path_of(self._logdir, frames)
    if frames == self._saved_frames:
      return path
    self._checkpoint.config.assign(self._config_json)
    self._save_counter.assign_add(1)
    with files.committing(path) as temporary:
      self._checkpoint.write(temporary)
      self._set_aside_damaged()
    self._saved_frames = frames
    files.keep_newest(self._logdir, self._keep)
    return path

  def _set_aside_damaged(self):
    """Lets no damaged checkpoint pass for the newest, or one of those kept."""
    while self._damaged:
      path = self._damaged[-1]
      files.set_aside(path)
      logging.warning('%s could not be restored; its files are now called '
                      'damaged-%s.*', path, os.path.basename(path))
      self._damaged.pop()

  def restore(self):
    """Restores the newest checkpoint that is whole.

    Returns:
      Its path, or None if there is no checkpoint.

    Raises:
      CheckpointError: There are checkpoints, and none can be restored.
    """
    try:
      paths = files.find(self._logdir)
    except OSError as e:
      raise CheckpointError(f'--logdir={self._logdir} cannot be read: '
                            f'{errors.first_line(e)}.') from e
    self._damaged = []
    for path in reversed(paths):
      try:
        self._checkpoint.restore(path).assert_consumed()
      except READ_ERRORS as e:
        logging.warning(
            'Checkpoint %s cannot be restored, trying the one before: %s',
            path, errors.first_line(e))
        self._damaged.append(path)
        continue
      self._saved_frames = self._learner.frames
      return path
    if paths:
      names = ', '.join(map(os.path.basename, paths))
      raise CheckpointError(
          f'None of the checkpoints in {self._logdir} can be restored '
          f'({names}). Move them away to start afresh, or choose another '
          '--logdir.')
    return None
