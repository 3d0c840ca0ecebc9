"""How weights start, and the layers that use them.

Weights are a flat dict of name to float32 array. The layer called `name` has
its kernel under `name/w` and its bias under `name/b`.
"""

import numpy as np
import tensorflow as tf


class Initializer:
  """Makes the weights of a network and puts a prefix before their names.

  The same seed and the same calls in the same order give the same weights.

  Attributes:
    seed: The int that the weights are drawn by.
    params: All weights made so far, a dict of full name to float32 array.
  """

  def __init__(self, seed, prefix='', params=None):
    """Initializes the initializer.

    Args:
      seed: An int.
      prefix: A string that comes before every name.
      params: The dict to add weights to, None for a new one.
    """
    self.seed = seed
    self.params = {} if params is None else params
    self._prefix = prefix

  def under(self, prefix):
    """Returns an `Initializer` of the same weights with a longer prefix."""
    return Initializer(self.seed, self._prefix + prefix, self.params)

  def linear(self, name, *shape):
    """Makes a linear or convolutional layer, as Sonnet 1 starts both.

    The kernel is truncated normal with stddev 1/sqrt(fan in), the bias zero.

    Args:
      name: The layer's name.
      *shape: The kernel's shape, [inputs, outputs] or [height, width, input
        channels, output channels]. The fan in is the product of all but the
        last.
    """
    self.normal(name + '/w', shape, int(np.prod(shape[:-1])) ** -.5)
    self.zeros(name + '/b', shape[-1:])

  def normal(self, name, shape, stddev):
    """Makes a weight of a normal with mean 0 that is cut at 2 `stddev`."""
    self.add(name, tf.random.stateless_truncated_normal(
        shape, self._next_seed(), stddev=stddev))

  def glorot_uniform(self, name, shape):
    """Makes a weight [inputs, outputs], uniform in +-sqrt(6/(sum of both))."""
    limit = (6. / sum(shape)) ** .5
    self.add(name, tf.random.stateless_uniform(
        shape, self._next_seed(), minval=-limit, maxval=limit))

  def zeros(self, name, shape):
    """Makes a weight that starts at zero."""
    self.add(name, np.zeros(shape))

  def add(self, name, values):
    """Adds a weight that the caller has drawn.

    Args:
      name: The weight's name.
      values: Its array of floats, kept as float32.

    Raises:
      ValueError: There is a weight of this name already.
    """
    name = self._prefix + name
    if name in self.params:
      raise ValueError(f'The weight {name!r} is made twice.')
    self.params[name] = np.array(values, np.float32)

  def _next_seed(self):
    return [self.seed, len(self.params)]


def linear(params, name, inputs):
  """Applies a linear layer: [N, inputs] to [N, outputs]."""
  # Not `bias_add`: TensorFlow fuses it with the product, which is slower.
  return tf.matmul(inputs, params[name + '/w']) + params[name + '/b']


def conv(params, name, inputs, stride, padding):
  """Applies a convolution: [N, height, width, channels] to the same rank."""
  outputs = tf.nn.conv2d(inputs, params[name + '/w'], stride, padding)
  bias = params[name + '/b']
  # The gradient of `bias_add` may be summed in bfloat16, and stop at 256.
  return (outputs + bias if bias.dtype == tf.bfloat16 else
          tf.nn.bias_add(outputs, bias))


def flatten(inputs):
  """Reshapes [N, ...] to [N, size]; only N may be unknown when tracing."""
  return tf.reshape(inputs, [-1, int(np.prod(inputs.shape[1:]))])
