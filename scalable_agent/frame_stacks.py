"""Packs stacks of frames, so that each frame is there once.

An Atari observation is a stack of four frames, of which three were in the one
before. Where that holds, the first stack and the newest frame of each other one
are enough, a quarter of the bytes. The same stacks can be made of them again,
equal to the bit. It does not hold where a game begins.

A pixel of a stack is four bytes, the newest last, which as a little-endian
number of 32 bits makes the shift by a frame one by eight bits.
"""

import collections

import numpy as np

STACK = 4
_NUMBER = np.dtype('<u4')

PackedFrames = collections.namedtuple('PackedFrames', 'first newest')
PackedFrames.__doc__ = """T+1 stacks, without what repeats.

  first: uint8 [H, W, 4], the stack of entry 0.
  newest: uint8 [T, H, W], the last frame of the stacks of entries 1 to T.
"""


def is_stack(spec):
  """Whether observations of an `ArraySpec` may be stacks of frames."""
  return (np.dtype(spec.dtype) == np.uint8 and len(spec.shape) == 3 and
          spec.shape[-1] == STACK)


def pack(frames):
  """Packs stacks, or returns None if they do not follow from each other.

  Args:
    frames: uint8 [T+1, H, W, 4].

  Returns:
    A `PackedFrames` that shares no memory with `frames`.
  """
  pixels = _pixels(frames)
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
  return PackedFrames(frames[0].copy(), newest)


def unpack(packed):
  """Returns the stacks, uint8 [T+1, H, W, 4], that `pack` was given."""
  return unpack_runs([packed])


def pack_runs(frames):
  """Packs stacks, also where some do not follow from the one before.

  Args:
    frames: uint8 [T+1, H, W, 4].

  Returns:
    A list of `PackedFrames`, each of as many stacks in a row as follow from
    each other; None if more than half of them follow from no other, as where
    the four channels are no frames at all.
  """
  packed = pack(frames)
  if packed:
    return [packed]
  pixels = _pixels(frames)
  starts = [0] + [
      i for i in range(1, len(pixels))
      if np.left_shift((pixels[i - 1] >> 8) ^ pixels[i], 8).any()]
  if 2 * len(starts) > len(pixels):
    return None
  return [pack(frames[start:end])
          for start, end in zip(starts, starts[1:] + [len(pixels)])]


def unpack_runs(runs):
  """Returns the stacks, uint8 [T+1, H, W, 4], that `pack_runs` was given."""
  length = sum(len(run.newest) + 1 for run in runs)
  result = np.empty((length,) + runs[0].first.shape[:2], _NUMBER)
  start = 0
  for run in runs:
    pixels = result[start:start + len(run.newest) + 1]
    pixels[0] = _pixels(run.first)
    for pixel, before, newest in zip(pixels[1:], pixels, run.newest):
      np.left_shift(newest, 24, out=pixel, dtype=_NUMBER)
      pixel |= before >> 8
    start += len(pixels)
  return result.view(np.uint8).reshape(result.shape + (STACK,))


def _pixels(frames):
  """Returns the stacks [..., H, W, 4] as numbers, [..., H, W]."""
  return np.ascontiguousarray(frames).view(_NUMBER)[..., 0]
