"""What a `ProcessPool` and its workers exchange: messages and shared memory.

The pool sends a JSON object saying which environments to make, a JSON list of
the observation's specs, and from then on int32 ids of environments to step. A
worker answers with one byte of `ALIVE`, `INFO`, `READY` or `ERROR` and what
these say. The outputs themselves are in `SharedArrays`.
"""

import collections
import mmap
import os

import numpy as np

from scalable_agent.environments import ArraySpec

ALIVE = b'a'  # Nothing: it made another environment, or its first output.
INFO = b'i'   # JSON, for each environment: [level name, actions, specs].
READY = b'r'  # int32 ids of environments whose rows are filled in.
# JSON: [id or null, text, whether the text stands by itself, whether a new
# environment would do the same].
ERROR = b'e'

MAXIMUM_MESSAGE_BYTES = 1 << 18

_ALIGNMENT_BYTES = 64

SharedArrays = collections.namedtuple(
    'SharedArrays',
    'action stepping reward episode_return episode_step done is_first is_last '
    'observation')
SharedArrays.__doc__ = """What pool and workers exchange, by environment id.

  action: int32 [N], written by the pool before it asks for a step.
  stepping: int32 [N]. The entry at a worker's first id names the environment
    that this worker steps, or stepped last. The worker writes it, like all that
    follows; the pool does so once, before the first outputs.
  reward, episode_return: float32 [N], as in a `StepOutput`.
  episode_step: int32 [N], likewise.
  done, is_first, is_last: bool [N], as in a `PoolOutput`.
  observation: A tuple of arrays [N, ...], one for each observation spec.
"""
_SCALAR_DTYPES = (np.int32, np.int32, np.float32, np.float32, np.int32,
                  np.bool_, np.bool_, np.bool_)


def map_arrays(memory_fd, num_environments, observation_spec):
  """Maps the memory that the pool shares with its workers.

  Args:
    memory_fd: File descriptor. The file is given the size it needs, which is
      the same whoever computes it.
    num_environments: Number of environments in the whole pool, N.
    observation_spec: A tuple of `ArraySpec`.

  Returns:
    `SharedArrays`; the mapping lives as long as they do.
  """
  specs = [ArraySpec((num_environments, *spec.shape), np.dtype(spec.dtype))
           for spec in (*[ArraySpec((), dtype) for dtype in _SCALAR_DTYPES],
                        *observation_spec)]
  offsets = [0]
  for spec in specs:
    offsets.append(offsets[-1] -
                   (-spec.num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
  os.ftruncate(memory_fd, offsets[-1])
  memory = mmap.mmap(memory_fd, offsets[-1])
  arrays = [np.ndarray(spec.shape, spec.dtype, memory, offset)
            for spec, offset in zip(specs, offsets)]
  num_scalars = len(_SCALAR_DTYPES)
  return SharedArrays(*arrays[:num_scalars], tuple(arrays[num_scalars:]))


def specs_to_json(observation_spec):
  """Returns a JSON-able list for a tuple of `ArraySpec`."""
  return [[[int(size) for size in spec.shape], np.dtype(spec.dtype).str]
          for spec in observation_spec]


def specs_from_json(specs):
  """Returns the tuple of `ArraySpec` that `specs_to_json` was given."""
  return tuple(ArraySpec(tuple(shape), np.dtype(dtype))
               for shape, dtype in specs)
