"""What agents do alike: joining time and batch, and drawing actions."""

import tensorflow as tf


def join_time(tensor):
  """Reshapes [T, B, ...] to [T * B, ...]."""
  return tf.reshape(tensor, (-1,) + tuple(tensor.shape[2:]))


def split_time(tensor, like):
  """Reshapes [T * B, ...] to [T, B, ...], with T and B of `like`."""
  sizes = [size or tf.shape(like)[i] for i, size in enumerate(like.shape[:2])]
  return tf.reshape(tensor, sizes + tensor.shape[1:].as_list())


def draw_actions(logits, seed):
  """Draws actions from a softmax.

  Args:
    logits: float32 [B, A].
    seed: int32 [2]: the same seed draws the same actions.

  Returns:
    int32 [B].
  """
  actions = tf.squeeze(tf.random.stateless_categorical(
      logits, 1, seed=seed, dtype=tf.int32), 1)
  # Logits that are not finite may draw one action too many. The learner
  # notices them too, and can say what is wrong.
  return tf.minimum(actions, logits.shape[1] - 1)
