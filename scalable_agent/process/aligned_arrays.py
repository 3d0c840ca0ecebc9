"""Arrays that TensorFlow can use without copying them."""

import collections
import math
import weakref

import numpy as np

# Bytes. Where memory is aligned to less, some of TensorFlow's kernels end the
# process.
ALIGNMENT = 64
# Bytes, from which on memory is used again. The kernel zeroes all that it hands
# out, which takes as long as to fill it.
_LARGE = 2**20
# Of each size. A batch is made while one waits and one is trained on.
_KEPT_BLOCKS = 4
_KEPT_SIZES = 8


class _FreeBlocks:
  """Memory of arrays that are gone, for new ones of the same size.

  An array may be gone at any time, in any thread, even in one that is in here:
  so there are no locks, and every step is atomic.
  """

  def __init__(self):
    self._by_size = {}

  def take(self, size):
    """Returns bytes that nobody uses, uint8 [size], whatever they hold."""
    try:
      return self._by_size[size].pop()
    except (KeyError, IndexError):
      return np.empty([size], np.uint8)

  def give(self, block):
    """Takes bytes that nobody uses any more, what `take` has returned."""
    self._by_size.setdefault(
        block.size, collections.deque(maxlen=_KEPT_BLOCKS)).append(block)
    for size in list(self._by_size)[:-_KEPT_SIZES]:
      self._by_size.pop(size, None)


_free_blocks = _FreeBlocks()


def empty(shape, dtype):
  """Returns a new NumPy array that begins at a multiple of `ALIGNMENT`.

  Args:
    shape: A tuple of ints.
    dtype: Its NumPy dtype.
  """
  dtype = np.dtype(dtype)
  size = math.prod(shape) * dtype.itemsize
  memory = _new_memory(size + ALIGNMENT)
  start = -memory.ctypes.data % ALIGNMENT
  return memory[start:start + size].view(dtype).reshape(shape)


def _new_memory(size):
  """Returns a uint8 [size] that lives as long as what is made of it."""
  if size < _LARGE:
    return np.empty([size], np.uint8)
  block = _free_blocks.take(size)
  # Arrays made of a part of `block` itself would keep that alive and not this.
  memory = np.frombuffer(memoryview(block), np.uint8)
  weakref.finalize(memory, _free_blocks.give, block).atexit = False
  return memory


def copy(array):
  """Returns a copy of a NumPy array that begins at such a multiple."""
  copied = empty(array.shape, array.dtype)
  copied[...] = array
  return copied


def is_aligned(array):
  """Whether an array is contiguous and begins at a multiple of `ALIGNMENT`."""
  return (array.flags.c_contiguous and
          array.ctypes.data % ALIGNMENT == 0)
