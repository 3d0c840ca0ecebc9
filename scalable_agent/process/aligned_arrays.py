"""Arrays that TensorFlow can use without copying them."""

import numpy as np

# Bytes. Where memory is aligned to less, some of TensorFlow's kernels end the
# process.
ALIGNMENT = 64


def empty(shape, dtype):
  """Returns a new NumPy array that begins at a multiple of `ALIGNMENT`.

  Args:
    shape: A tuple of ints.
    dtype: Its NumPy dtype.
  """
  dtype = np.dtype(dtype)
  size = int(np.prod(shape)) * dtype.itemsize
  memory = np.empty([size + ALIGNMENT], np.uint8)
  start = -memory.ctypes.data % ALIGNMENT
  return memory[start:start + size].view(dtype).reshape(shape)


def copy(array):
  """Returns a copy of a NumPy array that begins at such a multiple."""
  copied = empty(array.shape, array.dtype)
  copied[...] = array
  return copied


def is_aligned(array):
  """Whether an array is contiguous and begins at a multiple of `ALIGNMENT`."""
  return (array.flags.c_contiguous and
          array.ctypes.data % ALIGNMENT == 0)
