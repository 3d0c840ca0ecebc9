"""Tests for nests."""

import collections

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import nests

Pair = collections.namedtuple('Pair', 'first second')

_LEAVES = st.integers(-5, 5).map(lambda value: np.full([2], value))
_NESTS = st.recursive(_LEAVES, lambda parts: st.one_of(
    st.lists(parts, max_size=3).map(tuple), st.builds(Pair, parts, parts)))


def _types(nest):
  """A nest with its arrays as lists, to compare, and the types of its tuples.
  """
  if isinstance(nest, tuple):
    return type(nest), [_types(part) for part in nest]
  return nest.tolist()


@given(_NESTS)
def test_does_what_tensorflow_does(nest):
  other = nests.map_arrays(lambda a: a * 10, nest)
  for ours, theirs in (
      (other, tf.nest.map_structure(lambda a: a * 10, nest)),
      (nests.map_arrays(np.subtract, other, nest),
       tf.nest.map_structure(np.subtract, other, nest)),
      (tuple(nests.flatten(nest)), tuple(tf.nest.flatten(nest)))):
    assert _types(ours) == _types(theirs)


@pytest.mark.parametrize('other', [(1,), (1, 2, 3), 1])
def test_refuses_another_structure(other):
  with pytest.raises((TypeError, ValueError)):
    nests.map_arrays(np.add, (1, 2), other)
