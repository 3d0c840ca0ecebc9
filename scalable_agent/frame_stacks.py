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
NUMBER = np.dtype('<u4')

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
  numbers = pixels(frames)
  newest = np.empty(frames[1:, ..., 0].shape, np.uint8)
  number, all_bits = np.empty_like(numbers[0]), np.zeros_like(numbers[0])
  # Entry by entry, what is computed stays in the cache.
  for i, (before, after) in enumerate(zip(numbers, numbers[1:])):
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
  begins = [0] + [i for i in range(1, len(frames))
                  if not follows(frames[i - 1], frames[i])]
  if 2 * len(begins) > len(frames):
    return None
  return [pack(frames[begin:end])
          for begin, end in zip(begins, begins[1:] + [len(frames)])]


def follows(before, after):
  """Whether a stack, uint8 [H, W, 4], is another one shifted by a frame."""
  return not np.left_shift((pixels(before) >> 8) ^ pixels(after), 8).any()


def unpack_runs(runs):
  """Returns the stacks, uint8 [T+1, H, W, 4], that `pack_runs` was given."""
  length = sum(len(run.newest) + 1 for run in runs)
  result = np.empty((length,) + runs[0].first.shape[:2], NUMBER)
  start = 0
  for run in runs:
    numbers = result[start:start + len(run.newest) + 1]
    numbers[0] = pixels(run.first)
    for number, before, newest in zip(numbers[1:], numbers, run.newest):
      shift(before, newest, number)
    start += len(numbers)
  return stacks(result)


def shift(before, newest, out):
  """Writes the stack that a frame makes of the stack before it.

  Args:
    before: That stack, numbers [H, W] as of `pixels`.
    newest: The frame, uint8 [H, W].
    out: Where the stack goes, numbers [H, W]; it may be `before`.
  """
  np.right_shift(before, 8, out=out)
  out |= np.left_shift(newest, 24, dtype=NUMBER)


def pixels(frames):
  """Returns stacks, uint8 [..., H, W, 4], as numbers of 32 bits [..., H, W]."""
  return np.ascontiguousarray(frames).view(NUMBER)[..., 0]


def stacks(numbers):
  """Returns the stacks of which `pixels` makes these numbers."""
  return numbers.view(np.uint8).reshape(numbers.shape + (STACK,))
