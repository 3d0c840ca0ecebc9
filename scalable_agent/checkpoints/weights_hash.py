"""Tells weights apart, wherever they were trained or saved."""

import hashlib

import numpy as np


def of(weights):
  """Returns 16 hex digits that tell weights apart.

  Args:
    weights: A dict of name to tensor or array.

  Returns:
    The first digits of the SHA-256 of names and bytes, in the order of names.
  """
  digest = hashlib.sha256()
  for name in sorted(weights):
    digest.update(name.encode())
    digest.update(np.asarray(weights[name]).tobytes())
  return digest.hexdigest()[:16]
