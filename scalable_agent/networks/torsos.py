"""The torsos: what turns a frame into the first features of the agent.

A torso is a class with three methods:

* `__init__(frame_shape)` takes the observation's shape without batch, a tuple.
  It raises `ValueError` if the torso does not fit that shape. Where it also
  takes `channel_multiplier`, --channel_multiplier may be other than 1.
* `init(initializer)` makes the weights with a `layers.Initializer` and returns
  the size of the output, an int.
* `apply(params, frame)` takes a dict of the weights by the names that `init`
  gave them, and frames [N, ...frame_shape]. It returns [N, size]. Weights and
  frames have the dtype of the computation, float32 or, for images only,
  bfloat16.

Frames of bytes come divided by 255. A torso that starts with a linear layer or
a convolution may name its kernel in the attribute `first_kernel`. Then the
kernel comes divided by 255 and the frames do not, which is faster.

Users write torsos of their own: launch/your_own.md has an example, and says how
--network names it.
"""

import importlib
import inspect
import os
import sys
import traceback

import tensorflow as tf

from scalable_agent.networks import layers

_WHAT_FITS = ('images need deep, shallow, small or reactor, vectors need '
              'vector. An image has the shape (height, width, channels).')
# Pixels of an image's shorter side.
_SMALLEST = dict(shallow=20, reactor=36)


def _check_size(name, height, width):
  least = _SMALLEST[name]
  if min(height, width) < least:
    raise ValueError(f'{name} needs images of at least {least} x {least} '
                     'pixels, small and deep take smaller ones too.')


class Deep:
  """Residual sections of 16, 32 and 32 channels (paper, Figure 3 right)."""

  first_kernel = 'section_0/conv/w'

  def __init__(self, frame_shape, channel_multiplier=1):
    if len(frame_shape) != 3:
      raise ValueError(_WHAT_FITS)
    self._frame_shape = frame_shape
    self._units = [channel_multiplier * n for n in (16, 32, 32)]

  def init(self, initializer):
    height, width, channels = self._frame_shape
    for i, units in enumerate(self._units):
      initializer.linear(f'section_{i}/conv', 3, 3, channels, units)
      for j in range(2):
        for k in range(2):
          initializer.linear(
              f'section_{i}/residual_{j}/conv_{k}', 3, 3, units, units)
      height, width, channels = -(-height // 2), -(-width // 2), units
    initializer.linear('linear', height * width * channels, 256)
    return 256

  def apply(self, params, frame):
    out = frame
    for i in range(3):
      out = layers.conv(params, f'section_{i}/conv', out, 1, 'SAME')
      out = tf.nn.max_pool2d(out, 3, 2, 'SAME')
      for j in range(2):
        block_input = out
        for k in range(2):
          out = layers.conv(params, f'section_{i}/residual_{j}/conv_{k}',
                            tf.nn.relu(out), 1, 'SAME')
        out += block_input
    out = layers.flatten(tf.nn.relu(out))
    return tf.nn.relu(layers.linear(params, 'linear', out))


class Shallow:
  """Two convolutions and a linear layer (paper, Figure 3 left).

  The convolutions are unpadded, as in the network that the paper cites.
  """

  first_kernel = 'conv_0/w'

  def __init__(self, frame_shape, channel_multiplier=1):
    if len(frame_shape) != 3:
      raise ValueError(_WHAT_FITS)
    height, width, self._channels = frame_shape
    self._units = [channel_multiplier * n for n in (16, 32)]
    _check_size('shallow', height, width)
    height, width = (((n - 8) // 4 + 1 - 4) // 2 + 1 for n in (height, width))
    self._flat_size = height * width * self._units[1]

  def init(self, initializer):
    initializer.linear('conv_0', 8, 8, self._channels, self._units[0])
    initializer.linear('conv_1', 4, 4, *self._units)
    initializer.linear('linear', self._flat_size, 256)
    return 256

  def apply(self, params, frame):
    out = tf.nn.relu(layers.conv(params, 'conv_0', frame, 4, 'VALID'))
    out = tf.nn.relu(layers.conv(params, 'conv_1', out, 2, 'VALID'))
    return tf.nn.relu(layers.linear(params, 'linear', layers.flatten(out)))


class Small:
  """A convolution and a linear layer, for images of a few pixels.

  It is the network of MinAtar (Young and Tian, 2019), whose images are 10 x 10,
  but padded, so that it takes images of any size.
  """

  first_kernel = 'conv/w'

  def __init__(self, frame_shape, channel_multiplier=1):
    if len(frame_shape) != 3:
      raise ValueError(_WHAT_FITS)
    self._height, self._width, self._channels = frame_shape
    self._units = 16 * channel_multiplier

  def init(self, initializer):
    initializer.linear('conv', 3, 3, self._channels, self._units)
    initializer.linear('linear', self._height * self._width * self._units, 128)
    return 128

  def apply(self, params, frame):
    out = tf.nn.relu(layers.conv(params, 'conv', frame, 1, 'SAME'))
    return tf.nn.relu(layers.linear(params, 'linear', layers.flatten(out)))


class Reactor:
  """Three convolutions and a linear layer (Gruslys et al., 2018, Table 3).

  After each, both the positive and the negative part go on.
  """

  first_kernel = 'conv_0/w'
  _CONVOLUTIONS = (8, 4, 16), (4, 2, 32), (3, 1, 32)  # Size, stride, channels.

  def __init__(self, frame_shape, channel_multiplier=1):
    if len(frame_shape) != 3:
      raise ValueError(_WHAT_FITS)
    self._height, self._width, self._channels = frame_shape
    _check_size('reactor', self._height, self._width)
    self._multiplier = channel_multiplier

  def init(self, initializer):
    height, width, channels = self._height, self._width, self._channels
    for i, (size, stride, units) in enumerate(self._CONVOLUTIONS):
      units *= self._multiplier
      initializer.linear(f'conv_{i}', size, size, channels, units)
      height, width = ((n - size) // stride + 1 for n in (height, width))
      channels = 2 * units
    initializer.linear('linear', height * width * channels, 128)
    return 2 * 128

  def apply(self, params, frame):
    out = frame
    for i, (_, stride, _) in enumerate(self._CONVOLUTIONS):
      out = tf.nn.crelu(layers.conv(params, f'conv_{i}', out, stride, 'VALID'))
    return tf.nn.crelu(layers.linear(params, 'linear', layers.flatten(out)))


class Vector:
  """Two linear layers, for observations that are no images."""

  first_kernel = 'linear_0/w'

  def __init__(self, frame_shape):
    if len(frame_shape) != 1:
      raise ValueError(_WHAT_FITS)
    self._size, = frame_shape

  def init(self, initializer):
    initializer.linear('linear_0', self._size, 64)
    initializer.linear('linear_1', 64, 64)
    return 64

  def apply(self, params, frame):
    out = tf.nn.relu(layers.linear(params, 'linear_0', frame))
    return tf.nn.relu(layers.linear(params, 'linear_1', out))


TORSOS = dict(deep=Deep, shallow=Shallow, small=Small, reactor=Reactor,
              vector=Vector)


def choose(frame_shape, large):
  """Returns the name of the torso that `auto` stands for.

  Args:
    frame_shape: The observation's shape without batch, a tuple of ints.
    large: The torso for images that it fits, 'shallow' or 'reactor'.
  """
  if len(frame_shape) == 1:
    return 'vector'
  return 'small' if min(frame_shape[:2]) < _SMALLEST[large] else large


def find(name):
  """Finds the class of a torso.

  Args:
    name: The value of --network: a key of `TORSOS`, or 'package.module:Name'
      for the class `Name` of a module, which is imported.

  Returns:
    The class, see the top of this module.

  Raises:
    ValueError: There is no such torso; the message is one line.
  """
  if name in TORSOS:
    return TORSOS[name]
  module_name, colon, class_name = name.partition(':')
  if not colon:
    raise ValueError(f'--network={name!r} is unknown, expected one of '
                     f'{", ".join(TORSOS)}, or package.module:Name for a torso '
                     'of your own.')
  refused = f'--network={name}: '
  try:
    module = importlib.import_module(module_name)
  except Exception as e:  # pylint: disable=broad-except
    hint = (' Modules are looked for in the current folder and on PYTHONPATH.'
            if isinstance(e, ModuleNotFoundError) else '')
    raise ValueError(
        explain(name, f'importing {module_name!r}', e) + hint) from e
  if not hasattr(module, class_name):
    raise ValueError(f'{refused}module {module_name!r} has no {class_name!r}.')
  torso = getattr(module, class_name)
  for method in ('__call__', 'init', 'apply'):
    if not callable(getattr(torso, method, None)):
      raise ValueError(f'{refused}{class_name!r} must be a class with the '
                       f'methods init and apply, but has no {method}.')
  return torso


def explain(name, what, error):
  """Says in one line what the user's code has raised, whatever that is.

  Args:
    name: The value of --network, 'package.module:Name'.
    what: What has failed, such as 'apply'.
    error: The exception.

  Returns:
    The line, with the last place in the user's module, if there is one.
  """
  reason = ' '.join(f'{type(error).__name__}: {error}'.split()).rstrip('.')
  module = sys.modules.get(name.partition(':')[0])
  path = getattr(module, '__file__', None)
  numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == path]
  place = f' ({os.path.basename(path)}:{numbers[-1]})' if numbers else ''
  return f'--network={name}: {what} failed with {reason}{place}.'


def make(name, frame_shape, channel_multiplier=1):
  """Makes a torso.

  Args:
    name: As in `find`.
    frame_shape: The observation's shape without batch, a tuple of ints.
    channel_multiplier: What the channels of its convolutions are multiplied by,
      an int.

  Returns:
    An instance of the class that `find` returns.

  Raises:
    ValueError: There is no such torso, it does not fit the shape, it has no
      channels to be multiplied, or it is the user's and cannot be made.
  """
  torso = find(name)
  options = {}
  if channel_multiplier != 1:
    options = dict(channel_multiplier=channel_multiplier)
    if 'channel_multiplier' not in inspect.signature(torso).parameters:
      raise ValueError(
          f'--channel_multiplier={channel_multiplier} cannot work: '
          f'--network={name} does not take it.')
  try:
    return torso(frame_shape, **options)
  except ValueError as e:
    raise ValueError(f'--network={name} does not fit observations of shape '
                     f'{frame_shape}: {e}') from e
  except Exception as e:  # pylint: disable=broad-except
    if name in TORSOS:
      raise
    raise ValueError(explain(name, '__init__', e)) from e
