"""Reads what a checkpoint says of itself, and tells apart why it cannot."""

import json

import tensorflow as tf

_CONFIG = 'config/.ATTRIBUTES/VARIABLE_VALUE'

# By a damaged or foreign checkpoint, among others.
ERRORS = (tf.errors.OpError, AssertionError, IndexError, ValueError,
          RuntimeError, OSError)
# These are of the machine, and say nothing of the checkpoint. TensorFlow has
# UnknownError for most errors of a file system, among them EIO.
PASSING = (tf.errors.AbortedError, tf.errors.CancelledError,
           tf.errors.DeadlineExceededError, tf.errors.PermissionDeniedError,
           tf.errors.ResourceExhaustedError, tf.errors.UnavailableError,
           tf.errors.UnknownError)


def settings(reader):
  """Returns the settings of the run that a checkpoint is of, a dict.

  Args:
    reader: Of `tf.train.load_checkpoint`. A checkpoint that does not say is of
      a run with no settings, {}.

  Raises:
    ERRORS: It cannot be read.
  """
  if not reader.has_tensor(_CONFIG):
    return {}
  return json.loads(reader.get_tensor(_CONFIG))
