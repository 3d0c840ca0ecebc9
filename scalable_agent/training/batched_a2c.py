"""Makes actors and learner take turns, as batched A2C does (section 5.1).

Acting is the loop of `actor` with a wait in it: an environment that has
finished its unroll acts again only after the update on the unrolls of all.
"""

import numpy as np
import tree


class Rendezvous:
  """Holds environments back until all of a pool are between two unrolls.

  This is what makes the actor-critic batched and synchronous (A2C): every
  unroll is from one version of the weights. The learner trains that version
  next, unless --policy_lag holds weights back.
  """

  def __init__(self, num_environments, wait_for_update):
    """Initializes the rendezvous.

    Args:
      num_environments: N.
      wait_for_update: A function of a number of updates; it blocks until there
        have been so many, such as `Published.wait`.
    """
    self._num_environments = num_environments
    self._wait_for_update = wait_for_update
    self._held = []
    self._rounds = 0

  def pass_on(self, is_done, inputs):
    """Returns the environments that may act now.

    Args:
      is_done: bool [K], which have just finished an unroll.
      inputs: A nest of arrays [K, ...] for some environments.

    Returns:
      The nest of those that are within an unroll, [<= K, ...]. Once the last of
      the pool has finished its unroll and the learner has trained, the nest of
      all, [N, ...]. None if nobody may act.
    """
    select = lambda which: tree.map_structure(lambda a: a[which], inputs)
    if not is_done.any():
      return inputs
    self._held.append((np.count_nonzero(is_done), select(is_done)))
    if sum(count for count, _ in self._held) < self._num_environments:
      return None if is_done.all() else select(~is_done)
    held = [nest for _, nest in self._held]
    self._held = []
    self._rounds += 1
    self._wait_for_update(self._rounds)
    return tree.map_structure(lambda *a: np.concatenate(a), *held)
