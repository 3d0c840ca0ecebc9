"""Batches on the device that their loss is computed on."""

import collections

import numpy as np
import tree

from scalable_agent import trajectories
from scalable_agent.process import host_tensors

PlacedBatch = collections.namedtuple(
    'PlacedBatch', 'unrolls is_replayed weights num_new')
PlacedBatch.__doc__ = """What a loss is computed of, tensors.

  unrolls: As of a `Batch`, without what no loss depends on.
  is_replayed: As of a `Batch`.
  weights: As of a `Batch`.
  num_new: How many new unrolls this part counts for, a float32 scalar.
"""


def place(batch, device, rows=slice(None), num_new=0):
  """Puts a batch, or some of its unrolls, on a device.

  Args:
    batch: A `Batch` of NumPy arrays, which nobody writes to any more.
    device: The device's name.
    rows: A slice of the unrolls.
    num_new: How many new unrolls this part counts for.

  Returns:
    A `PlacedBatch`.
  """
  along_batch = lambda nest: tree.map_structure(lambda a: a[rows], nest)
  along_time = lambda nest: tree.map_structure(lambda a: a[:, rows], nest)
  unrolls = batch.unrolls
  arrays = PlacedBatch(
      unrolls=trajectories.ActorOutput(
          level_name=(),
          agent_state=along_batch(unrolls.agent_state),
          env_outputs=along_time(unrolls.env_outputs._replace(info=())),
          agent_outputs=along_time(unrolls.agent_outputs),
          policy_version=()),
      is_replayed=along_batch(batch.is_replayed),
      weights=along_batch(batch.weights),
      num_new=np.float32(num_new))
  return host_tensors.on_device(arrays, device)
