"""Frames through a torso: without background, scaled, cast and checked."""

import contextlib

import numpy as np
import tensorflow as tf

from scalable_agent.networks import layers
from scalable_agent.networks import torsos

_PREFIX = 'torso/'
# How many rows and columns of an image its background is found from, at most.
_GRID = 8


class Frames:
  """What turns frames into features, with the weights called `torso/...`."""

  def __init__(self, spec, torso, precision, channel_multiplier,
               subtract_background):
    """Initializes it.

    Args:
      spec: The frame's `ArraySpec`.
      torso: As for `torsos.make`.
      precision: 'float32' or 'bfloat16', what a torso for images computes in.
      channel_multiplier: As for `torsos.make`.
      subtract_background: Whether `background` of each frame is subtracted.

    Raises:
      ValueError: There is no such torso, or it does not fit the frame, or the
        frame is no image and has no background.
    """
    if subtract_background and len(spec.shape) != 3:
      raise ValueError(
          '--subtract_background cannot work: observations of shape '
          f'{tuple(spec.shape)} are no images. Give '
          '--nosubtract_background.')
    self._spec = spec
    self._name = torso
    self._torso = torsos.make(torso, tuple(spec.shape), channel_multiplier)
    self._subtract_background = subtract_background
    self._dtype = tf.as_dtype(
        precision if len(spec.shape) > 1 else 'float32')

  def init(self, initializer):
    """Makes the weights with a `layers.Initializer`; returns the output's size.

    Raises:
      ValueError: The user's torso breaks the interface.
    """
    inner = initializer.under(_PREFIX)
    if self._name in torsos.TORSOS:
      return self._torso.init(inner)
    with self._explaining('init'):
      size = self._torso.init(inner)
    self._check(initializer.params, size)
    return size

  def apply(self, params, frame):
    """Returns the features, float32 [N, size].

    Args:
      params: All weights of the network.
      frame: [N, ...], uint8, which is divided by 255, or float32.
    """
    weights = {name.removeprefix(_PREFIX): value
               for name, value in params.items() if name.startswith(_PREFIX)}
    kernel = getattr(self._torso, 'first_kernel', None)
    is_bytes = frame.dtype == tf.uint8
    if is_bytes and kernel:
      # That is frame / 255, without a pass over all frames for the division.
      weights[kernel] = weights[kernel] / 255.
    weights = {name: tf.cast(value, self._dtype)
               for name, value in weights.items()}
    if self._subtract_background:
      # In float32, since bytes have no negative values.
      frame = tf.cast(frame, tf.float32)
      frame -= background(frame)
    frame = tf.cast(frame, self._dtype)
    if is_bytes and not kernel:
      frame /= 255.
    return tf.cast(self._torso.apply(weights, frame), tf.float32)

  @contextlib.contextmanager
  def _explaining(self, method):
    """Raises ValueError, of one line, for whatever the user's torso raises."""
    try:
      yield
    except Exception as e:  # pylint: disable=broad-except
      raise ValueError(torsos.explain(self._name, method, e)) from e

  def _check(self, params, size):
    """Raises ValueError unless `apply` does what `init` has announced."""
    problem = f'--network={self._name}: '
    if not isinstance(size, (int, np.integer)):
      raise ValueError(f'{problem}init returns a {type(size).__name__} instead '
                       'of an int, the size of what apply returns.')
    kernel = getattr(self._torso, 'first_kernel', None)
    if kernel and _PREFIX + kernel not in params:
      raise ValueError(f'{problem}first_kernel is {kernel!r}, but init makes '
                       'no such weight.')
    # Traces the torso and runs nothing: an accelerator's memory stays free.
    apply = tf.function(self.apply, autograph=False)
    frame = tf.TensorSpec([2, *self._spec.shape], self._spec.dtype)
    with self._explaining('apply'):
      traced = apply.get_concrete_function(params, frame)
    if traced.captured_inputs:
      raise ValueError(
          f'{problem}apply uses a tensor or a variable that is not in params. '
          'Make weights in init, and constants of NumPy arrays.')
    shape = traced.output_shapes
    if shape.rank != 2 or shape[0] not in (2, None) or shape[1] != size:
      raise ValueError(
          f'{problem}init returns the size {size}, but apply returns the shape '
          f'{shape} for 2 frames instead of (2, {size}).')


def unit_biases(params):
  """Returns the names of the biases of the torso's units, a list.

  Args:
    params: All weights of a network, or their names. Those of a user's torso
      may have other names than those of `layers`, and are left out.
  """
  return [name for name in params
          if name.startswith(_PREFIX) and name.endswith('/b')]


def background(frame):
  """Returns about the median of each image.

  It is that of a grid of pixels: to sort all of them would take longer than the
  network.

  Args:
    frame: Float32 [N, H, W, C].

  Returns:
    Float32 [N, 1, 1, 1], the lower of two medians.
  """
  height, width = frame.shape[1:3]
  grid = layers.flatten(frame[:, ::-(-height // _GRID), ::-(-width // _GRID)])
  num_upper = grid.shape[1] // 2 + 1
  median = tf.math.top_k(grid, num_upper).values[:, -1]
  return tf.reshape(median, [-1, 1, 1, 1])
