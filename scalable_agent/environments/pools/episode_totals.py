"""Keeps the running totals of the episodes of a pool."""

import numpy as np

from scalable_agent.environments import StepOutputInfo


class EpisodeTotals:
  """The return and the steps of the current episode of N environments."""

  def __init__(self, num_environments):
    self._is_first = np.ones(num_environments, np.bool_)
    self._return = np.zeros(num_environments, np.float32)
    self._step = np.zeros(num_environments, np.int32)

  def add(self, ids, reward, done):
    """Adds an output of some environments.

    Args:
      ids: int32 [K], distinct.
      reward: float32 [K].
      done: bool [K].

    Returns:
      Their `StepOutputInfo`, and the `is_first` and `is_last` of a
      `PoolOutput`, arrays [K].
    """
    is_first = self._is_first[ids]
    is_later = ~is_first
    info = StepOutputInfo(self._return[ids] + reward,
                          self._step[ids] + is_later)
    self._return[ids] = info.episode_return
    self._step[ids] = info.episode_step
    ended = ids[done]
    if len(ended):
      self._return[ended] = 0.
      self._step[ended] = 0
      self._is_first[ended] = False  # A first output has `done` set, too.
    return info, is_first, done & is_later

  def begin_anew(self, ids):
    """Takes note that there are new environments, int [K]."""
    self._is_first[ids] = True
    self._return[ids] = 0.
    self._step[ids] = 0
