"""Tests of `weights_hash`."""

import numpy as np

from scalable_agent.checkpoints import weights_hash


def test_digits_tell_weights_apart():
  """By names and bits, in any order."""
  weights = dict(a=np.zeros([2], np.float32), b=np.ones([1], np.float32))
  digits = weights_hash.of(weights)
  assert len(digits) == 16 and int(digits, 16)
  assert digits == weights_hash.of(dict(reversed(list(weights.items()))))
  others = [dict(weights, a=-weights['a']), dict(a=weights['a']),
            dict(a=weights['a'], c=weights['b'])]
  for other in others:
    assert weights_hash.of(other) != digits
