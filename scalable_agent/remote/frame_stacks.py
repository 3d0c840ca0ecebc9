"""Packs stacks of frames, so that each frame is sent once.

An Atari observation is a stack of four frames, of which three were in the one
before. Where that holds for a whole unroll, the actor job sends the first stack
and the newest frame of each other one, a quarter of the bytes. The receiver
makes the same stacks of them again, equal to the bit. Where an episode begins
in an unroll, the unroll is sent as it is.

A pixel of a stack is four bytes, the newest last, which as a little-endian
number of 32 bits makes the shift by a frame one by eight bits.
"""

import collections

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.remote import wire

STACK = 4
_NUMBER = np.dtype('<u4')

PackedFrames = collections.namedtuple('PackedFrames', 'first newest')
PackedFrames.__doc__ = """Stacks of an unroll, without what repeats.

  first: uint8 [H, W, 4], the stack of entry 0.
  newest: uint8 [T, H, W], the last frame of the stacks of entries 1 to T.
"""


def pack(frames):
  """Packs stacks, or returns None if they do not follow from each other.

  Args:
    frames: uint8 [T+1, H, W, 4].
  """
  pixels = np.ascontiguousarray(frames).view(_NUMBER)[..., 0]
  newest = np.empty(frames[1:, ..., 0].shape, np.uint8)
  number, all_bits = np.empty_like(pixels[0]), np.zeros_like(pixels[0])
  # Entry by entry, what is computed stays in the cache.
  for i, (before, after) in enumerate(zip(pixels, pixels[1:])):
    # The newest frame in the upper byte; what does not repeat in the others.
    np.right_shift(before, 8, out=number)
    np.bitwise_xor(number, after, out=number)
    np.bitwise_or(all_bits, number, out=all_bits)
    np.right_shift(number, 24, out=number)
    newest[i] = number
  if np.left_shift(all_bits, 8, out=all_bits).any():
    return None
  return PackedFrames(frames[0], newest)


def unpack(packed):
  """Returns the stacks, uint8 [T+1, H, W, 4], that `pack` was given."""
  pixels = np.empty(
      (len(packed.newest) + 1,) + packed.first.shape[:2], _NUMBER)
  pixels[0] = np.ascontiguousarray(packed.first).view(_NUMBER)[..., 0]
  for pixel, before, newest in zip(pixels[1:], pixels, packed.newest):
    np.left_shift(newest, 24, out=pixel, dtype=_NUMBER)
    pixel |= before >> 8
  return pixels.view(np.uint8).reshape(pixels.shape + (STACK,))


def is_stack(spec):
  """Whether observations of a spec may be stacks of frames."""
  return (np.dtype(spec.dtype) == np.uint8 and len(spec.shape) == 3 and
          spec.shape[-1] == STACK)


class StackedLayout:
  """A `wire.Layout` of messages whose observation is a stack of frames.

  Attributes:
    num_bytes: Length of the longest message.
  """

  def __init__(self, template, bounds):
    """Initializes the layout.

    Args:
      template: As for `wire.Layout`, with `env_outputs` whose observation is
        (frames,), a spec of uint8 [T+1, H, W, 4].
      bounds: As for `wire.Layout`.
    """
    self._whole = wire.Layout(template, bounds)
    (frames,) = template.env_outputs.observation
    length, height, width, _ = frames.shape
    self._packed = wire.Layout(_with_frames(template, PackedFrames(
        ArraySpec((height, width, STACK), frames.dtype),
        ArraySpec((length - 1, height, width), frames.dtype))), bounds)
    self.num_bytes = max(self._whole.num_bytes, self._packed.num_bytes)

  def encode(self, nest):
    """See `wire.Layout`."""
    (frames,) = nest.env_outputs.observation
    packed = pack(frames)
    if packed is None:
      return self._whole.encode(nest)
    return self._packed.encode(_with_frames(nest, packed))

  def length_at(self, messages, start):
    """See `wire.Layout`."""
    return (self._packed if self._packed.begins(messages, start)
            else self._whole).num_bytes

  def peek(self, message, name):
    """See `wire.Layout`."""
    return (self._packed if self._packed.begins(message)
            else self._whole).peek(message, name)

  def decode(self, message):
    """See `wire.Layout`."""
    if not self._packed.begins(message):
      return self._whole.decode(message)
    nest = self._packed.decode(message)
    (packed,) = nest.env_outputs.observation
    return _with_frames(nest, unpack(packed))


def _with_frames(nest, frames):
  return nest._replace(
      env_outputs=nest.env_outputs._replace(observation=(frames,)))
