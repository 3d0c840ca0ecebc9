"""Encodes arrays as messages in the safetensors format, which holds no code.

Every message of a kind has the same names, shapes and dtypes, so its header is
the same bytes. Both ends compute it from what they agreed on, and the receiver
compares it as a whole: nothing that was sent decides how much memory is used or
how it is read. Arrays of a received message are views of it, and each is copied
once on its way into a batch.
"""

import json
import struct

import numpy as np
import tree

# The format is little-endian, so other byte orders have no name in it.
_DTYPES = {
    '|b1': 'BOOL', '|u1': 'U8', '|i1': 'I8', '<i2': 'I16', '<u2': 'U16',
    '<i4': 'I32', '<u4': 'U32', '<i8': 'I64', '<u8': 'U64', '<f2': 'F16',
    '<f4': 'F32', '<f8': 'F64'}
# A name that the format reserves.
_RESERVED = '__metadata__'
_ALIGNMENT = 8


class WireError(ValueError):
  """A message is not what was agreed on; the text says what is wrong."""


def paths(nest):
  """Lists the leaves of a nest.

  Returns:
    A list of pairs of path, such as 'env_outputs.observation.0', and leaf. A
    leaf that is the whole nest has an empty path.
  """
  return [('.'.join(map(str, path)), leaf)
          for path, leaf in tree.flatten_with_path(nest)]


class Layout:
  """What the messages of one kind hold.

  Attributes:
    header: The bytes that every such message starts with.
    num_bytes: Length of every such message.
  """

  def __init__(self, template, bounds=None, finite=True):
    """Initializes the layout.

    Args:
      template: A nest of arrays or `ArraySpec`s: their shapes and dtypes.
      bounds: A dict of path to the smallest and largest value that a received
        array may hold. Booleans have to be 0 or 1 whatever this says.
      finite: Whether all floats have to be finite.

    Raises:
      ValueError: A dtype or a path has no name in the format, two paths are
        the same, or `bounds` has one that is unknown.
    """
    self._template = template
    named = paths(template)
    unknown = set(bounds or ()) - {name for name, _ in named}
    if unknown:
      raise ValueError(f'bounds of {sorted(unknown)}, which the template lacks')
    self._bounds = bounds or {}
    self._finite = finite
    self._names = [name for name, _ in named]
    if (len(set(self._names)) < len(self._names) or
        {'', _RESERVED} & set(self._names)):
      raise ValueError(f'{self._names} do not name the arrays of a message')
    self._shapes = [tuple(leaf.shape) for _, leaf in named]
    self._dtypes = [np.dtype(leaf.dtype) for _, leaf in named]
    self._counts = [int(np.prod(shape)) for shape in self._shapes]
    # Large items first keeps every array aligned without gaps.
    self._order = sorted(range(len(named)),
                         key=lambda i: -self._dtypes[i].itemsize)
    self._offsets = [0] * len(named)
    offset = 0
    entries = {}
    for i in self._order:
      dtype = self._dtypes[i]
      if dtype.str not in _DTYPES:
        raise ValueError(f'{self._names[i]} is of {dtype}, which messages '
                         'cannot hold')
      self._offsets[i] = offset
      offset += self._counts[i] * dtype.itemsize
      entries[self._names[i]] = dict(
          dtype=_DTYPES[dtype.str], shape=self._shapes[i],
          data_offsets=[self._offsets[i], offset])
    text = json.dumps(entries, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % _ALIGNMENT)
    self.header = struct.pack('<Q', len(text)) + text
    self.num_bytes = len(self.header) + offset

  def encode(self, nest):
    """Returns the message that holds a nest of arrays, bytes.

    Raises:
      ValueError: The nest is not like the template.
    """
    leaves = [np.asarray(leaf) for leaf in tree.flatten(nest)]
    if len(leaves) != len(self._names):
      raise ValueError(f'{len(leaves)} arrays for {len(self._names)}')
    for name, shape, dtype, leaf in zip(
        self._names, self._shapes, self._dtypes, leaves):
      if leaf.shape != shape or leaf.dtype != dtype:
        raise ValueError(f'{name} is {leaf.dtype} {leaf.shape}, expected '
                         f'{dtype} {shape}')
    return b''.join(
        [self.header] +
        [np.ascontiguousarray(leaves[i]).reshape(-1).view(np.uint8)
         for i in self._order])

  def begins(self, messages, start=0):
    """Whether a message of this layout, or its header, is at `start`."""
    return bytes(messages[start:start + len(self.header)]) == self.header

  def length_at(self, unused_messages, unused_start):
    """Returns the length of the message that begins at `start` of `messages`.
    """
    return self.num_bytes

  def peek(self, message, name):
    """Returns the first value of an array, without a look at the others.

    Args:
      message: Bytes.
      name: The array's path.

    Raises:
      WireError: What was read of the message is not of this layout.
    """
    i = self._names.index(name)
    start = len(self.header) + self._offsets[i]
    if not self.begins(message) or (
        len(message) < start + self._dtypes[i].itemsize):
      raise self._other_header()
    return np.frombuffer(message, self._dtypes[i], 1, start)[0]

  def overwrite(self, message, values):
    """Overwrites the values of arrays that have one value.

    Args:
      message: A bytearray, of this layout.
      values: A dict of an array's path to a number.
    """
    for name, value in values.items():
      i = self._names.index(name)
      start = len(self.header) + self._offsets[i]
      dtype = self._dtypes[i]
      message[start:start + dtype.itemsize] = dtype.type(value).tobytes()

  def _other_header(self):
    return WireError(
        f'the header is not that of {len(self._names)} arrays as agreed')

  def decode(self, message):
    """Returns the nest of a message; its arrays are read-only views of it.

    Raises:
      WireError: The message is not of this layout, or a value is not allowed.
    """
    if not self.begins(message):
      raise self._other_header()
    if len(message) != self.num_bytes:
      raise WireError(f'{len(message)} bytes, expected {self.num_bytes}')
    leaves = []
    for name, shape, dtype, count, offset in zip(
        self._names, self._shapes, self._dtypes, self._counts, self._offsets):
      leaf = np.frombuffer(message, dtype, count, len(self.header) + offset)
      self._check(name, leaf)
      leaves.append(leaf.reshape(shape))
    return tree.unflatten_as(self._template, leaves)

  def check(self, message):
    """Raises `WireError` if `decode` would.

    A layout may do it at less expense.
    """
    self.decode(message)

  def _check(self, name, leaf):
    if not leaf.size:
      return
    if (self._finite and leaf.dtype.kind == 'f' and
        not np.isfinite(leaf).all()):
      raise WireError(f'{name} has values that are not finite')
    if leaf.dtype.kind == 'b' and leaf.view(np.uint8).max() > 1:
      raise WireError(f'{name} has values that are not booleans')
    if name in self._bounds:
      low, high = self._bounds[name]
      # NaN, which compares to nothing, is outside too.
      if not (leaf.min() >= low and leaf.max() <= high):
        raise WireError(f'{name} has values outside of [{low}, {high}]')


def aligned(length):
  """Returns how many bytes `join` takes for a message of some length."""
  return length + -length % _ALIGNMENT


def join(messages, before=b''):
  """Returns messages as one, bytes, each of them aligned.

  Args:
    messages: An iterable of bytes.
    before: Bytes that come first, of a length that is aligned.
  """
  parts = [before]
  for message in messages:
    parts += message, bytes(aligned(len(message)) - len(message))
  return b''.join(parts)


def decode_all(layout, messages):
  """Returns a list of the nests of what `join` returned, one or more.

  Args:
    layout: The `Layout` of every one of them.
    messages: Bytes.

  Raises:
    WireError: They are not of this layout, or a value is not allowed.
  """
  return [layout.decode(message) for message in split(layout, messages)]


def split(layout, messages):
  """Yields the messages of what `join` returned, one or more.

  Args:
    layout: The `Layout` of every one of them.
    messages: Bytes.

  Yields:
    Views, as long as messages of the layout are, or cut off.

  Raises:
    WireError: There is something else between them.
  """
  view = memoryview(messages)
  start = count = 0
  while start < len(view) or not count:
    end = start + layout.length_at(view, start)
    yield view[start:end]
    count += 1
    start = aligned(end)
    if any(view[end:start]):
      raise WireError(f'{count} messages are not followed by another')
