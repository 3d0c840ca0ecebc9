"""Checks the actions that a pool is sent."""

import numpy as np


def check(ids, actions, awaiting, num_actions):
  """Refuses what cannot be a step.

  Args:
    ids: Distinct environments that await an action, anything like int32 [K].
    actions: Their actions, the same.
    awaiting: bool [N], which environments await an action.
    num_actions: Of each environment.

  Returns:
    Both as int32 arrays [K].

  Raises:
    ValueError: They are not as above.
  """
  ids, actions = np.asarray(ids), np.asarray(actions)
  if ids.ndim != 1 or ids.shape != actions.shape:
    raise ValueError('ids of shape {} and actions of shape {}'.format(
        ids.shape, actions.shape))
  if not ids.size:
    return ids.astype(np.int32), actions.astype(np.int32)
  if ids.dtype.kind not in 'iu' or actions.dtype.kind not in 'iu':
    raise ValueError('ids of {} and actions of {} are not integers'.format(
        ids.dtype, actions.dtype))
  # Of few numbers, lists are faster.
  listed_ids, listed_actions = ids.tolist(), actions.tolist()
  if min(listed_ids) < 0 or max(listed_ids) >= len(awaiting):
    raise ValueError('ids {} are not all between 0 and {}'.format(
        listed_ids, len(awaiting) - 1))
  if min(listed_actions) < 0 or max(listed_actions) >= num_actions:
    raise ValueError('actions {} are not all between 0 and {}'.format(
        listed_actions, num_actions - 1))
  ids, actions = ids.astype(np.int32), actions.astype(np.int32)
  if not awaiting[ids].all():
    raise ValueError('environments {} do not await an action'.format(
        ids[~awaiting[ids]].tolist()))
  if len(set(listed_ids)) < len(listed_ids):
    raise ValueError('ids {} are not distinct'.format(listed_ids))
  return ids, actions
