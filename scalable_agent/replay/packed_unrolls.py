"""Unrolls as a buffer keeps them: each frame once, and nothing else alive."""

import sys

import numpy as np
import tree

from scalable_agent import frame_stacks


def pack(unroll):
  """Packs an `ActorOutput`; `unpack` makes an equal one of it.

  Args:
    unroll: An `ActorOutput` of arrays. Its frames are packed if its observation
      is a stack of them alone.

  Returns:
    The same with other observations. What is a view is copied, as of a message
    from an actor job, which it would keep alive. Other arrays are shared, and
    nobody may write to them.
  """
  observation = unroll.env_outputs.observation
  if len(observation) == 1 and frame_stacks.is_stack(observation[0][0]):
    runs = frame_stacks.pack_runs(observation[0])
    if runs:
      unroll = _with_observation(unroll, runs)
  return tree.map_structure(_own, unroll)


def unpack(packed):
  """Returns the `ActorOutput` that `pack` was given."""
  observation = packed.env_outputs.observation
  if not isinstance(observation, list):
    return packed
  return _with_observation(packed, (frame_stacks.unpack_runs(observation),))


def size(packed):
  """Returns how much memory an unroll takes, in bytes."""
  return sum(map(sys.getsizeof, filter(_is_array, tree.flatten(packed))))


def cut(packed, offset):
  """Returns the `ActorOutput` that begins in one unroll and ends in the next.

  Args:
    packed: A list of a packed unroll and, unless `offset` is 0, the next one.
    offset: Its first entry, counted in the first unroll.
  """
  first = unpack(packed[0])
  if not offset:
    return first
  join = lambda a, b: np.concatenate([a[offset:-1], b[:offset + 1]])
  second = unpack(packed[1])
  return first._replace(
      env_outputs=tree.map_structure(
          join, first.env_outputs, second.env_outputs),
      agent_outputs=tree.map_structure(
          join, first.agent_outputs, second.agent_outputs))


def _is_array(leaf):
  return isinstance(leaf, np.ndarray)


def _own(leaf):
  return leaf.copy() if _is_array(leaf) and leaf.base is not None else leaf


def _with_observation(unroll, observation):
  return unroll._replace(
      env_outputs=unroll.env_outputs._replace(observation=observation))
