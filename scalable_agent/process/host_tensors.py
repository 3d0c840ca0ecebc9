"""Makes tensors of NumPy arrays without stopping other threads.

Operations on a GPU that take NumPy arrays themselves copy them to it while they
hold Python's lock, and the copy waits for all that the GPU has to do. They copy
tensors of the host without the lock.
"""

import functools

import numpy as np
import tensorflow as tf
import tree

from scalable_agent.process import aligned_arrays

# Bytes. Below, a copy takes no longer than to do without it.
_LARGE = 2**16


def of(nest):
  """Returns the nest with tensors in the host's memory in place of arrays."""
  with tf.device('/cpu:0'):
    return tree.map_structure(tf.convert_to_tensor, nest)


def on_device(nest, device):
  """Returns the nest with tensors on a device in place of arrays.

  In the host's memory, tensors of large arrays of uint8 and float32 use that of
  the arrays. Those that are not of `aligned_arrays`, or have gaps, are copied
  into such ones, which takes less time than a copy of TensorFlow.

  Args:
    nest: Of arrays and scalars, to which nobody may write any more.
    device: The device's name.
  """
  def put(value):
    tensor = _share(value) if _is_large(value) else tf.constant(value)
    # TensorFlow takes as long to do nothing as to make a small tensor.
    if _includes(tensor.device, device):
      return tensor
    with tf.device(device):
      return tf.identity(tensor)

  with tf.device('/cpu:0'):
    return tree.map_structure(put, nest)


def _is_large(value):
  return (isinstance(value, np.ndarray) and value.nbytes >= _LARGE and
          value.dtype in (np.uint8, np.float32))


def _share(array):
  if not (aligned_arrays.is_aligned(array) and array.flags.writeable):
    array = aligned_arrays.copy(array)
  # TensorFlow keeps the array until it needs the tensor no more.
  return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


@functools.cache
def _includes(name, part):
  """Whether a device's name says all that `part` of a name does."""
  spec = tf.DeviceSpec.from_string(name)
  return spec.make_merged_spec(tf.DeviceSpec.from_string(part)) == spec
