"""Specs that messages are laid out by: scalars, step outputs, nests of them."""

import numpy as np
import tree

from scalable_agent import environments
from scalable_agent.environments import ArraySpec

BOOL, INT32, INT64, UINT64, FLOAT32 = (
    ArraySpec((), np.dtype(dtype))
    for dtype in ('bool', 'int32', 'int64', 'uint64', 'float32'))
_MAX_INT32 = 2**31 - 1


def repeat(nest, *shape):
  """Returns specs of a nest's arrays or specs with `shape` put in front."""
  return tree.map_structure(
      lambda leaf: ArraySpec(shape + tuple(leaf.shape), np.dtype(leaf.dtype)),
      nest)


def step_output(observation_spec):
  """Returns the `StepOutput` of specs of one environment.

  Args:
    observation_spec: A tuple of `ArraySpec`.
  """
  return environments.StepOutput(
      reward=FLOAT32,
      info=environments.StepOutputInfo(FLOAT32, INT32),
      done=BOOL,
      observation=tuple(observation_spec))


def step_bounds(prefix, observation_spec):
  """Returns bounds of a `StepOutput`, as for `wire.Layout`.

  Args:
    prefix: Its path in the message.
    observation_spec: A tuple of `ArraySpec`.
  """
  # Those of int32 are numbers of words. The network takes any value of others.
  bounds = {f'{prefix}.observation.{i}': (-1, environments.NUM_HASH_BUCKETS - 1)
            for i, spec in enumerate(observation_spec)
            if np.dtype(spec.dtype) == np.int32}
  return dict(bounds, **{f'{prefix}.info.episode_step': (0, _MAX_INT32)})
