"""Makes tensors of NumPy arrays without stopping other threads."""

import tensorflow as tf
import tree


def of(nest):
  """Returns the nest with tensors in the host's memory in place of arrays.

  Operations on a GPU that take NumPy arrays themselves copy them to it while
  they hold Python's lock, and the copy waits for all that the GPU has to do.
  They copy tensors of the host without the lock.
  """
  with tf.device('/cpu:0'):
    return tree.map_structure(tf.convert_to_tensor, nest)
