"""Nests of NumPy arrays, for what is done at every step.

A nest is an array, or a tuple or named tuple of nests. `tf.nest` takes more
kinds and checks more, and needs 8 us to map over an `AgentOutput`, this 2; when
an emulator has just had the caches, some times that. An actor job of 16 Atari
games took 2.4 and 2.7 % less CPU per step than two with `tf.nest` beside it.
"""


def map_arrays(function, *nests):
  """Returns the nest of a function's values.

  Args:
    function: Takes an array of each nest.
    *nests: Nests of the same structure, at least one.
  """
  first = nests[0]
  if not isinstance(first, tuple):
    return function(*nests)
  values = [map_arrays(function, *parts) for parts in zip(*nests, strict=True)]
  return first._make(values) if hasattr(first, '_make') else tuple(values)


def flatten(nest):
  """Returns a list of the arrays, in the order of `tf.nest.flatten`."""
  if not isinstance(nest, tuple):
    return [nest]
  return [array for part in nest for array in flatten(part)]
