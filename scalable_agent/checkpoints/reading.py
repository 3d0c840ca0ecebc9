"""What reading a checkpoint of TensorFlow can raise, and what it means."""

import tensorflow as tf

# By a damaged or foreign checkpoint, among others.
ERRORS = (tf.errors.OpError, AssertionError, IndexError, ValueError,
          RuntimeError, OSError)
# These are of the machine, and say nothing of the checkpoint.
PASSING = (tf.errors.AbortedError, tf.errors.CancelledError,
           tf.errors.DeadlineExceededError, tf.errors.PermissionDeniedError,
           tf.errors.ResourceExhaustedError, tf.errors.UnavailableError)
