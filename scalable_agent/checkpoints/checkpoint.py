"""Saves and restores the learner: atomically, with the last few kept."""

import collections
import json
import os

from absl import logging
import tensorflow as tf

from scalable_agent.checkpoints import best_checkpoint
from scalable_agent.checkpoints import checkpoint_files as files
from scalable_agent.checkpoints import reading
from scalable_agent.checkpoints import warm_start
from scalable_agent.process import errors

# What writing a checkpoint can raise.
WRITE_ERRORS = (tf.errors.OpError, OSError)


TrainedWeights = collections.namedtuple(
    'TrainedWeights', 'weights frames steps path')
TrainedWeights.__doc__ = """What acting needs of a checkpoint.

  weights: A dict of name to float32 tensor.
  frames: Environment frames that they were trained on.
  steps: The updates in that.
  path: The checkpoint, without the endings of its files.
"""


class CheckpointError(errors.Failure):
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
    self._trained = dict(
        targets, params=learner.params, optimizer=learner.optimizer)
    self._checkpoint = tf.train.Checkpoint(
        **self._trained,
        num_environment_frames=learner.num_environment_frames,
        learner_steps=learner.learner_steps,
        config=tf.Variable(config_json, trainable=False))
    # Made now: a restore that fails would complain of its absence at the end.
    self._save_counter = self._checkpoint.save_counter
    self._config_json = config_json
    self._keep = keep
    # Frames and updates of what was last saved or restored.
    self._saved = None
    # Those that could not be restored, as long as they have their names.
    self._damaged = []

  @property
  def newest_frames(self):
    """Environment frames of the checkpoint that was last saved or restored."""
    return self._saved[0] if self._saved else 0

  def _progress(self):
    # Replay may be trained on several times before there are new frames.
    return self._learner.frames, self._learner.steps

  def save(self):
    """Saves the learner, unless its checkpoint of the last update is there.

    A checkpoint of as many frames gives way to it.

    Raises:
      tf.errors.OpError: It cannot be written; those before it stay.
      OSError: Likewise.
    """
    path = files.path_of(self._logdir, self._learner.frames)
    if (self._progress() != self._saved or
        not os.path.exists(f'{path}.index')):
      self._checkpoint.config.assign(self._config_json)
      self._save_counter.assign_add(1)
      with files.committing(path) as temporary:
        self._checkpoint.write(temporary)
        self._set_aside_damaged()
      self._saved = self._progress()
    # Even so: it may have failed the last time. But a damaged one that still
    # has its name would be kept in the place of the one that was restored.
    if not self._damaged:
      files.keep_newest(self._logdir, self._keep)

  def save_best(self, score):
    """Saves the learner as the run's best.

    Args:
      score: The `suites.scores.Score` that it is the best in.

    Raises:
      tf.errors.OpError: It cannot be written; the best before it stays.
      OSError: Likewise.
    """
    with best_checkpoint.committing(
        self._logdir, self._learner.frames, score) as temporary:
      self._checkpoint.write(temporary)

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
      CheckpointError: There are checkpoints, and none can be restored, or the
        newest cannot be read now.
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
      except reading.PASSING as e:
        # With an older one the run would lose what it has, and set this aside.
        raise _not_now(path, e) from e
      except reading.ERRORS as e:
        logging.warning(
            'Checkpoint %s cannot be restored, trying the one before: %s',
            path, errors.first_line(e))
        self._damaged.append(path)
        continue
      self._saved = self._progress()
      return path
    if paths:
      names = ', '.join(map(os.path.basename, paths))
      raise CheckpointError(
          f'None of the checkpoints in {self._logdir} can be restored '
          f'({names}). Move them away to start afresh, or choose another '
          '--logdir.')
    return None

  def warm_start(self, path):
    """Takes weights and slots of another run, unless this one has done so.

    Args:
      path: Of a checkpoint, without the endings of its files.

    Returns:
      Whether they were taken.

    Raises:
      ConfigError: They cannot be.
    """
    if self._saved:
      config = json.loads(self._checkpoint.config.numpy())
      taken = config.get('warm_start')
      if taken and os.path.realpath(taken) == os.path.realpath(path):
        return False
    warm_start.restore(path, self._trained, json.loads(self._config_json))
    return True


def restore_weights(paths, agent):
  """Reads the weights of an agent, for those who do not train them on.

  Args:
    paths: A list of paths, of which the last that is whole is taken.
    agent: An agent of `networks`.

  Returns:
    A `TrainedWeights`.

  Raises:
    CheckpointError: None can be restored, or the last cannot be read now.
  """
  with tf.device('/cpu:0'):
    params = {name: tf.Variable(value)
              for name, value in agent.initial_params(seed=0).items()}
    frames, steps = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
  saved = tf.train.Checkpoint(
      params=params, num_environment_frames=frames, learner_steps=steps)
  reason = None
  for path in reversed(paths):
    try:
      # There is more in it: what training needs.
      saved.restore(path).expect_partial().assert_existing_objects_matched()
    except reading.PASSING as e:
      # The scores of an older one would pass for those of this one.
      raise _not_now(path, e) from e
    except reading.ERRORS as e:
      reason = errors.first_line(e)
      logging.warning('Checkpoint %s cannot be restored: %s', path, reason)
      continue
    return TrainedWeights(
        {name: tf.identity(variable) for name, variable in params.items()},
        int(frames), int(steps), path)
  raise CheckpointError(f'{", ".join(paths)} cannot be restored: {reason}.')


def _not_now(path, error):
  return CheckpointError(
      f'{path} cannot be read now, and may be whole: '
      f'{errors.first_line(error)}. Start again once that is repaired, or move '
      'its files away to go without it.')
