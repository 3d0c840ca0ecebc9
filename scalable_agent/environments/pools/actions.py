"""Checks the actions that a pool is sent."""

import numpy as np


def check(ids, actions, awaiting, num_actions):
  """Refuses what cannot be a step.

  Args:
    ids: Distinct environments that await an action, anything like int32 [K].
    actions: Their actions, the same.
    awaiting: Which of N environments await an action, a sequence.
    num_actions: Of each environment.

  Returns:
    Both as lists of K ints.

  Raises:
    ValueError: They are not as above.
  """
  ids, actions = np.asarray(ids), np.asarray(actions)
  if ids.ndim != 1 or ids.shape != actions.shape:
    raise ValueError(
        f'ids of shape {ids.shape} and actions of shape {actions.shape}')
  if not ids.size:
    return [], []
  if ids.dtype.kind not in 'iu' or actions.dtype.kind not in 'iu':
    raise ValueError(f'ids of {ids.dtype} and actions of {actions.dtype} are '
                     'not integers')
  # Of few numbers, lists are faster.
  ids, actions = ids.tolist(), actions.tolist()
  if min(ids) < 0 or max(ids) >= len(awaiting):
    raise ValueError(
        f'ids {ids} are not all between 0 and {len(awaiting) - 1}')
  if min(actions) < 0 or max(actions) >= num_actions:
    raise ValueError(
        f'actions {actions} are not all between 0 and {num_actions - 1}')
  others = [i for i in ids if not awaiting[i]]
  if others:
    raise ValueError(f'environments {others} do not await an action')
  if len(set(ids)) < len(ids):
    raise ValueError(f'ids {ids} are not distinct')
  return ids, actions
