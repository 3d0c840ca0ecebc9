"""The gradient of a loss.

A gradient may be sparse, `tf.IndexedSlices` of the words that occur. It is made
dense on its way to whoever applies it, with a note of the rows that it had:
rows that it does not touch keep their slots in the optimizer.
"""

import tensorflow as tf
import tree

from scalable_agent import rmsprop


def loss_and_gradients(loss_fn, params, target_params, batch):
  """Computes a loss and its gradient.

  Args:
    loss_fn: As for `learner.Learner`, as are the others.
    params: A dict of name to tensor.
    target_params: The same, or None.
    batch: A `placing.PlacedBatch`.

  Returns:
    A triple: a pair of dicts, see `densify`; the loss function's logs; and its
    priorities.
  """
  with tf.GradientTape() as tape:
    tape.watch(params)
    loss, logs, priorities = loss_fn(params, target_params, batch)
  gradients = tape.gradient(
      loss, params, unconnected_gradients=tf.UnconnectedGradients.ZERO)
  return densify(gradients), logs, priorities


def add(parts):
  """Adds up what `loss_and_gradients` returned for the parts of a batch."""
  gradients, logs, priorities = zip(*parts, strict=True)
  add_up = lambda nests: tree.map_structure(lambda *ts: tf.add_n(ts), *nests)
  return (add_up(gradients), add_up(logs),
          None if priorities[0] is None else tf.concat(priorities, axis=0))


def densify(gradients):
  """Makes gradients dense, so that one sum over learners takes them all.

  Args:
    gradients: A dict of name to tensor or `tf.IndexedSlices`. Negative indices
      stand for no row.

  Returns:
    A pair of dicts: name to tensor, and for those that had slices, name to
    float32 [rows], how often each row occurs in them.
  """
  dense, touched = dict(gradients), {}
  for name, gradient in gradients.items():
    if isinstance(gradient, tf.IndexedSlices):
      dense[name], touched[name] = rmsprop.sum_rows(
          gradient, gradient.dense_shape[0])
  return dense, touched
