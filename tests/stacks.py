"""Stacks of frames, as Atari has them."""

import numpy as np


def make(rng, length, height, width, breaks=()):
  """Stacks of random frames, which begin anew at `breaks`."""
  stack = rng.integers(0, 256, (height, width, 4), np.uint8)
  result = [stack]
  for t in range(1, length):
    frame = rng.integers(0, 256, (height, width, 1), np.uint8)
    stack = np.concatenate([stack[..., 1:], frame], axis=-1)
    if t in breaks:
      stack = rng.integers(0, 256, stack.shape, np.uint8)
    result.append(stack)
  return np.stack(result)
