"""Memory that is used again, once nobody uses it any more."""

import gc
import threading

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent.process import aligned_arrays
from scalable_agent.process import host_tensors

_LARGE = (3, 2**20)


@pytest.fixture(autouse=True)
def _no_free_blocks(monkeypatch):
  monkeypatch.setattr(
      aligned_arrays, '_free_blocks', aligned_arrays._FreeBlocks())


def _address(array):
  return array.ctypes.data


@given(shape=st.lists(st.integers(1, 9), max_size=4).map(tuple),
       dtype=st.sampled_from([np.uint8, np.float32, np.int64, bool]))
def test_new_arrays_are_aligned(shape, dtype):
  array = aligned_arrays.empty(shape, dtype)
  assert array.shape == shape and array.dtype == dtype
  assert aligned_arrays.is_aligned(array)
  assert array.flags.writeable


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_large_arrays_are_aligned(dtype):
  for _ in range(3):
    array = aligned_arrays.empty(_LARGE, dtype)
    assert array.shape == _LARGE and array.dtype == dtype
    assert aligned_arrays.is_aligned(array)
    assert array.flags.writeable


def test_memory_is_used_again():
  array = aligned_arrays.empty(_LARGE, np.uint8)
  address = _address(array)
  del array
  assert _address(aligned_arrays.empty(_LARGE, np.uint8)) == address
  # By any array of as many bytes.
  assert _address(aligned_arrays.empty(_LARGE[::-1], bool)) == address


@pytest.mark.parametrize('part_of', [
    lambda array: array[1:2], lambda array: array.T,
    lambda array: array.view(np.int32), memoryview,
    lambda array: host_tensors.on_device(array, '/cpu:0')],
                         ids=['slice', 'transposed', 'view', 'buffer', 'tensor'])
def test_memory_is_not_used_while_a_part_of_it_is(part_of):
  array = aligned_arrays.empty(_LARGE, np.uint8)
  address = _address(array)
  part = part_of(array)
  del array
  gc.collect()
  other = aligned_arrays.empty(_LARGE, np.uint8)
  assert _address(other) != address
  del part
  gc.collect()
  assert _address(aligned_arrays.empty(_LARGE, np.uint8)) == address


def test_what_is_computed_of_a_tensor_is_not_overwritten():
  with tf.device('/cpu:0'):
    results = []
    for value in range(20):
      array = aligned_arrays.empty(_LARGE, np.float32)
      array[...] = value
      tensor = host_tensors.on_device(array, '/cpu:0')
      results.append((tf.identity(tensor[:1]), tf.reduce_max(tensor)))
      del array, tensor
  for value, (row, largest) in enumerate(results):
    assert largest.numpy() == value
    np.testing.assert_array_equal(row, np.full([1, _LARGE[1]], value))


def test_only_so_much_is_kept():
  for more in range(2 * aligned_arrays._KEPT_SIZES):
    shape = (aligned_arrays._LARGE + more,)
    arrays = [aligned_arrays.empty(shape, np.uint8)
              for _ in range(2 * aligned_arrays._KEPT_BLOCKS)]
    del arrays
  kept = {size: len(free)
          for size, free in aligned_arrays._free_blocks._by_size.items()}
  assert len(kept) == aligned_arrays._KEPT_SIZES
  assert set(kept.values()) == {aligned_arrays._KEPT_BLOCKS}
  # Those of the sizes that came last.
  assert max(kept) == (
      aligned_arrays._LARGE + more + aligned_arrays.ALIGNMENT)


def test_small_ones_are_left_to_the_allocator():
  aligned_arrays.empty((2**10,), np.uint8)
  assert not aligned_arrays._free_blocks._by_size


def test_threads_never_get_the_same_memory():
  """Each writes its own number, and finds it everywhere later."""
  wrong, barrier = [], threading.Barrier(8)

  def use(number):
    barrier.wait()
    for i in range(60):
      array = aligned_arrays.empty((1 + i % 2, 2**20), np.uint8)
      array[:, ::4096] = number
      if i % 3:
        array = array[:1]
      if not (array[:, ::4096] == number).all():
        wrong.append(number)

  threads = [threading.Thread(target=use, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong


def test_memory_comes_back_while_some_is_taken(monkeypatch):
  """The collector may free an array at any point, in the same thread."""
  blocks = aligned_arrays._free_blocks
  array = aligned_arrays.empty(_LARGE, np.uint8)
  cycle = [array]
  cycle.append(cycle)
  address = _address(array)
  del array, cycle
  take = blocks.take

  def take_after_collection(size):
    gc.collect()
    return take(size)

  monkeypatch.setattr(blocks, 'take', take_after_collection)
  assert _address(aligned_arrays.empty(_LARGE, np.uint8)) == address
