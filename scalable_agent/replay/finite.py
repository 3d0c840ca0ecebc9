"""Keeps unrolls with values that are not finite out of replay."""

from absl import logging
import numpy as np
import tree


class FiniteFilter:
  """Lets pass unrolls whose values are all finite.

  Attributes:
    num_left_out: How many unrolls did not pass.
  """

  def __init__(self):
    self.num_left_out = 0

  def passes(self, unroll):
    """Whether an `ActorOutput` does; warns of the first that does not."""
    # Most of an unroll are bytes, which need no look.
    is_finite = all(
        np.isfinite(leaf).all() for leaf in tree.flatten(unroll)
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == 'f')
    if is_finite:
      return True
    if not self.num_left_out:
      logging.warning(
          'Replay leaves out an unroll of %s, and others like it: a reward, an '
          'observation or an output of the network is not finite (NaN or '
          'infinite).', unroll.level_name)
    self.num_left_out += 1
    return False
