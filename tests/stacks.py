"""Stacks of frames, as Atari has them."""

from hypothesis import strategies as st
import numpy as np


def small(max_breaks):
  """Returns what a property draws to `make` small stacks, for `given`."""
  return dict(
      length=st.integers(1, 9), height=st.integers(1, 7),
      width=st.integers(1, 7), seed=st.integers(0, 99),
      breaks=st.sets(st.integers(1, 8), max_size=max_breaks))


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
