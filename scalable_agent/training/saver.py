"""Saves a run, and keeps it going while it cannot be saved."""

import math

from absl import logging

from scalable_agent.checkpoints import best_checkpoint
from scalable_agent.checkpoints import checkpoint
from scalable_agent.config import ConfigError
from scalable_agent.files import open_files
from scalable_agent.process import errors
from scalable_agent.training import logdir

# More than logs and a checkpoint need at a time.
_RESERVED_FILES = 32


class Saver:
  """Writes the configuration, the logs and the checkpoints of a run.

  Attributes:
    has_begun: Whether the log directory is this run's.
  """

  def __init__(self, config, facts, learner):
    """Restores the newest checkpoint into the learner; writes nothing.

    Args:
      config: A `config.Config`.
      facts: Of `logdir.facts_of`.
      learner: A `learner.Learner`.

    Raises:
      config.ConfigError: There are logs or a best checkpoint, but no
        checkpoint that they go with, that of --warm_start cannot be taken, or
        the best one cannot be read.
      checkpoint.CheckpointError: There are checkpoints, and none can be
        restored.
    """
    self._config = config
    self._facts = facts
    self._learner = learner
    self._checkpointer = checkpoint.Checkpointer(
        config.logdir, learner, config.to_json(), config.keep_checkpoints)
    self.has_begun = False
    self._failed_saves = 0
    path = self._checkpointer.restore()
    if path:
      logging.info('Resuming from %s', path)
    else:
      logdir.check_is_new(config.logdir)
    if config.warm_start and self._checkpointer.warm_start(config.warm_start):
      logging.info('Weights and slots are those of %s', config.warm_start)
    self._best = self._read_best()
    # So that connections of others cannot take the last descriptors.
    self._reserve = open_files.Reserve(_RESERVED_FILES)

  def _read_best(self):
    """Returns the `measure` and `value` of the best, None if there is none."""
    try:
      return best_checkpoint.read(self._config.logdir)
    except ValueError as e:
      logging.warning('%s. The next checkpoint counts as the best so far.', e)
      return None
    except OSError as e:
      # The next checkpoint would replace it.
      raise ConfigError(
          f'The best checkpoint in --logdir={self._config.logdir} cannot be '
          f'read: {errors.first_line(e)}.') from e

  def begin(self):
    """Makes the log directory this run's, if it is not yet.

    A new run has a checkpoint from here on, so that its logs always belong to
    one.

    Raises:
      config.ConfigError: The log directory cannot be written.
      checkpoint.CheckpointError: Likewise.
    """
    if self.has_begun:
      return
    try:
      with self._reserve.released():
        logdir.write(self._config, self._facts)
        self._checkpointer.save()
    except checkpoint.WRITE_ERRORS as e:
      raise checkpoint.CheckpointError(
          f'No checkpoint can be written to --logdir={self._config.logdir}: '
          f'{errors.first_line(e)}') from e
    self.has_begun = True

  def save(self, reporter):
    """Saves the logs and a checkpoint, once the run has begun.

    If that fails, a warning says why, and the next call tries again.

    Args:
      reporter: The run's `metrics.Reporter`.

    Raises:
      checkpoint.CheckpointError: It has failed --max_failed_saves times in a
        row.
    """
    if not self.has_begun:
      return
    try:
      with self._reserve.released():
        # The logs go first: a run that resumes must find in them whatever its
        # checkpoint was trained on.
        reporter.sync()
        self._checkpointer.save()
        self._keep_best(reporter.fitness())
      self._failed_saves = 0
    except checkpoint.WRITE_ERRORS as e:
      self._note_failure(errors.first_line(e))

  def _keep_best(self, score):
    """Keeps what was saved last as the best, if its score is.

    Args:
      score: A `suites.scores.Score`, or None if there is none yet.
    """
    if score is None or not math.isfinite(score.value):
      return
    best = self._best
    if best and best.measure == score.measure and best.value >= score.value:
      return
    try:
      self._checkpointer.save_best(score)
      self._best = score
    except checkpoint.WRITE_ERRORS as e:
      # The run can be resumed all the same.
      logging.warning('The best checkpoint could not be kept, the next save '
                      'tries again: %s', errors.first_line(e))

  def _note_failure(self, reason):
    config = self._config
    self._failed_saves += 1
    text = (f'Frame {self._learner.frames} could not be saved to '
            f'--logdir={config.logdir}: {reason}. The newest checkpoint is of '
            f'frame {self._checkpointer.newest_frames}')
    if self._failed_saves >= config.max_failed_saves:
      raise checkpoint.CheckpointError(
          f'{text}. These were {self._failed_saves} failed saves in a row, and '
          f'--max_failed_saves is {config.max_failed_saves}.')
    logging.warning('%s. Failed saves in a row: %d of at most '
                    '--max_failed_saves=%d.', text, self._failed_saves,
                    config.max_failed_saves)

  def check(self):
    """Raises `checkpoint.CheckpointError` if the last save failed."""
    if self._failed_saves:
      raise checkpoint.CheckpointError(
          'The last state of the run could not be saved. The same command goes '
          f'on from frame {self._checkpointer.newest_frames}, once '
          f'--logdir={self._config.logdir} can be written.')

  def close(self):
    """Gives back the descriptors it kept for saving."""
    self._reserve.close()
