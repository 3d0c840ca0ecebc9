"""Tensors that share the memory of arrays, and those that must not."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent.process import aligned_arrays
from scalable_agent.process import host_tensors

_SIZE = 2**16


def _filled(array, value=1):
  array[...] = value
  return array


def _aligned(dtype=np.uint8):
  return _filled(aligned_arrays.empty((_SIZE,), dtype))


def _on_host(nest):
  return host_tensors.on_device(nest, '/cpu:0')


def _shares(array, tensor):
  """Whether what is written to the array is seen in the tensor."""
  before = array.flat[0]
  array.flat[0] = 7
  try:
    return bool(tf.reshape(tensor, [-1])[0].numpy() == 7)
  finally:
    array.flat[0] = before


@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_large_arrays_are_shared(dtype):
  array = _aligned(dtype)
  (tensor,) = _on_host((array,))
  assert tensor.dtype == dtype and tensor.shape == [_SIZE]
  assert 'CPU' in tensor.device
  assert _shares(array, tensor)


def _begins_elsewhere():
  return _filled(aligned_arrays.empty((_SIZE + 1,), np.uint8)[1:])


@pytest.mark.parametrize('make', [
    lambda: _aligned()[:-1], _begins_elsewhere, lambda: _aligned(np.int64),
    lambda: _aligned(bool),
    lambda: np.ones([4, _SIZE], np.uint8)[:, :_SIZE // 2],
    lambda: _aligned().reshape(2, -1)[:, ::2]])
def test_others_are_copied(make):
  """Small ones, ones TensorFlow's kernels cannot use, and ones with gaps."""
  array = make()
  tensor = _on_host(array)
  np.testing.assert_array_equal(tensor, array)
  assert not _shares(array, tensor)


@pytest.mark.parametrize('make', [
    _begins_elsewhere, lambda: np.ones([4, _SIZE], np.uint8)[:, :_SIZE // 2],
    lambda: np.broadcast_to(np.uint8(1), [_SIZE])])
def test_large_ones_are_copied_into_memory_that_is_shared(make, monkeypatch):
  copies, copy = [], aligned_arrays.copy

  def keep(array):
    copies.append(copy(array))
    return copies[0]

  monkeypatch.setattr(aligned_arrays, 'copy', keep)
  tensor = _on_host(make())
  (found,) = copies
  assert aligned_arrays.is_aligned(found) and _shares(found, tensor)
  np.testing.assert_array_equal(tensor, make())


def test_what_cannot_be_written_to_is_copied():
  array = _aligned()
  array.flags.writeable = False
  np.testing.assert_array_equal(_on_host(array), array)


def test_plain_tensors_share_nothing():
  array = _aligned()
  assert not _shares(array, host_tensors.of(array))


def test_a_shared_array_lives_as_long_as_its_tensor():
  memory = _aligned()
  gone = weakref.ref(memory.base)
  tensor = _on_host(memory)
  del memory
  gc.collect()
  assert gone() is not None
  np.testing.assert_array_equal(tensor, np.ones(_SIZE))
  with tf.device('/cpu:0'):
    copy = tf.identity(tensor)
  del tensor
  gc.collect()
  np.testing.assert_array_equal(copy, np.ones(_SIZE))
  del copy
  gc.collect()
  assert gone() is None


@pytest.mark.parametrize('make', [
    _aligned, lambda: np.arange(3), lambda: np.float32(2.)])
def test_another_device_has_a_copy(make):
  value = make()
  (tensor,) = host_tensors.on_device([value], '/cpu:1')
  assert tensor.device.endswith('CPU:1')
  np.testing.assert_array_equal(tensor, value)


@pytest.mark.parametrize('name', [
    '/cpu:0', '/device:CPU:0', '/job:localhost/replica:0/task:0/device:CPU:0'])
def test_a_device_has_several_names(name, monkeypatch):
  """A tensor that is there is not copied."""
  monkeypatch.setattr(tf, 'identity', None)
  tensor = host_tensors.on_device(np.arange(3), name)
  np.testing.assert_array_equal(tensor, np.arange(3))
