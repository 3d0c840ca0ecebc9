"""The torsos: what turns a frame into the first features of the agent.

A torso is a class with three methods:

* `__init__(frame_shape)` takes the observation's shape without batch, a tuple.
  It raises `ValueError` if the torso does not fit that shape.
* `init(initializer)` makes the weights with a `layers.Initializer` and returns
  the size of the output, an int.
* `apply(params, frame)` takes a dict of the weights by the names that `init`
  gave them, and frames [N, ...frame_shape]. It returns [N, size]. Weights and
  frames have the dtype of the computation, float32 or, for images only,
  bfloat16.

Frames of bytes come divided by 255. A torso that starts with a linear layer or
a convolution may name its kernel in the attribute `first_kernel`. Then the
kernel comes divided by 255 and the frames do not, which is faster.

Users write torsos of their own: the README's section "Your own network" has an
example, and says how --network names it.
"""

import importlib

import tensorflow as tf

from scalable_agent.networks import layers

_WHAT_FITS = ('images need deep or shallow, vectors need vector. '
              'An image has the shape (height, width, channels).')


class Deep:
  """Residual sections of 16, 32 and 32 channels (paper, Figure 3 right)."""

  first_kernel = 'section_0/conv/w'

  def __init__(self, frame_shape):
    if len(frame_shape) != 3:
      raise ValueError(_WHAT_FITS)
    self._frame_shape = frame_shape

  def init(self, initializer):
    height, width, channels = self._frame_shape
    for i, units in enumerate([16, 32, 32]):
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

  def __init__(self, frame_shape):
    if len(frame_shape) != 3:
      raise ValueError(_WHAT_FITS)
    height, width, self._channels = frame_shape
    height, width = (((n - 8) // 4 + 1 - 4) // 2 + 1 for n in (height, width))
    if height < 1 or width < 1:
      raise ValueError('shallow needs images of at least 20 x 20 pixels, deep '
                       'takes smaller ones too.')
    self._flat_size = height * width * 32

  def init(self, initializer):
    initializer.linear('conv_0', 8, 8, self._channels, 16)
    initializer.linear('conv_1', 4, 4, 16, 32)
    initializer.linear('linear', self._flat_size, 256)
    return 256

  def apply(self, params, frame):
    out = tf.nn.relu(layers.conv(params, 'conv_0', frame, 4, 'VALID'))
    out = tf.nn.relu(layers.conv(params, 'conv_1', out, 2, 'VALID'))
    return tf.nn.relu(layers.linear(params, 'linear', layers.flatten(out)))


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


TORSOS = dict(deep=Deep, shallow=Shallow, vector=Vector)


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
    # It is the user's module: whatever it raises ends in one line.
    reason = ' '.join(f'{type(e).__name__}: {e}'.split())
    hint = (' Modules are looked for in the current folder and on PYTHONPATH.'
            if isinstance(e, ModuleNotFoundError) else '')
    raise ValueError(f'{refused}importing {module_name!r} failed with {reason}.'
                     + hint) from e
  if not hasattr(module, class_name):
    raise ValueError(f'{refused}module {module_name!r} has no {class_name!r}.')
  torso = getattr(module, class_name)
  for method in ('__call__', 'init', 'apply'):
    if not callable(getattr(torso, method, None)):
      raise ValueError(f'{refused}{class_name!r} must be a class with the '
                       f'methods init and apply, but has no {method}.')
  return torso


def make(name, frame_shape):
  """Makes a torso.

  Args:
    name: As in `find`.
    frame_shape: The observation's shape without batch, a tuple of ints.

  Returns:
    An instance of the class that `find` returns.

  Raises:
    ValueError: There is no such torso, or it does not fit the shape.
  """
  torso = find(name)
  try:
    return torso(frame_shape)
  except ValueError as e:
    raise ValueError(f'--network={name} does not fit observations of shape '
                     f'{frame_shape}: {e}') from e
