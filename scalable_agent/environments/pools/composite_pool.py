"""Makes one pool of several, such as one for each level of a suite.

A thread that drives many small pools pays Python's cost once per pool, and many
threads wait for each other's turn at the interpreter. Instead, one thread
receives from the members in turn, and the policy gets one batch from all of
them.
"""

import collections

import numpy as np

from scalable_agent import environments


class CompositePool(environments.Pool):
  """The environments of several pools as those of one.

  Members take turns: `recv` waits for those that were sent to longest ago, so
  that none is passed over, while the others step. A member that hangs holds up
  all, so members must be of a kind that does not hang, such as those of
  `atari`.
  """

  def __init__(self, pools, batch_size=0):
    """Initializes the pool.

    Args:
      pools: A list of `environments.Pool`s with the same actions and
        observations, closed by `close`. Each hands out all of its environments
        at a time.
      batch_size: The least environments that `recv` hands out, in whole
        members. 0 means all.

    Raises:
      PoolError: They differ in their actions or observations.
    """
    first = pools[0]
    for pool in pools:
      for name in ('num_actions', 'observation_spec'):
        mine, theirs = getattr(first, name), getattr(pool, name)
        if mine != theirs:
          raise environments.PoolError(
              f'{first.level_names[0]} and {pool.level_names[0]} cannot share '
              f'an agent: their {name} are {mine} and {theirs}.')
    self._pools = pools
    sizes = [pool.num_environments for pool in pools]
    self._first_ids = np.cumsum([0] + sizes[:-1])
    self.num_environments = sum(sizes)
    self.num_actions = first.num_actions
    self.observation_spec = first.observation_spec
    self.level_names = [name for pool in pools for name in pool.level_names]
    self._batch_size = batch_size or self.num_environments
    self._stepping = collections.deque(range(len(pools)))
    self._handed_out = []

  def recv(self):
    """See base class."""
    self._handed_out = []
    outputs = []
    count = 0
    while self._stepping and count < self._batch_size:
      member = self._stepping.popleft()
      output = self._pools[member].recv()
      count += len(output.ids)
      outputs.append(output._replace(ids=output.ids + self._first_ids[member]))
      self._handed_out.append((member, len(output.ids)))
    return _concatenate(outputs)

  def send(self, ids, actions):
    """See base class. Call with the `ids` of the last `recv`, in its order."""
    start = 0
    for member, size in self._handed_out:
      part = slice(start, start + size)
      self._pools[member].send(
          ids[part] - self._first_ids[member], actions[part])
      self._stepping.append(member)
      start += size
    self._handed_out = []

  def close(self):
    """See base class."""
    for pool in self._pools:
      pool.close()


def _concatenate(outputs):
  """Joins `PoolOutput`s along the environments."""
  steps = [output.step_output for output in outputs]
  infos = [step.info for step in steps]
  return environments.PoolOutput(
      ids=np.concatenate([output.ids for output in outputs]).astype(np.int32),
      step_output=environments.StepOutput(
          reward=np.concatenate([step.reward for step in steps]),
          info=environments.StepOutputInfo(*map(np.concatenate, zip(*infos))),
          done=np.concatenate([step.done for step in steps]),
          observation=tuple(map(
              np.concatenate, zip(*(step.observation for step in steps))))),
      is_first=np.concatenate([output.is_first for output in outputs]),
      is_last=np.concatenate([output.is_last for output in outputs]))
