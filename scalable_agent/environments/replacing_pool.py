"""Replaces the environments of worker processes that died or are stuck."""

import collections
import time

from absl import logging
import numpy as np

from scalable_agent.environments import process_pool

_KILL_GRACE_SECONDS = 10.0
# Added to the seed of what is started anew, once per time.
_SEED_STEP = 1_000_003
_NUM_SEEDS = 2**31 - 1


class ReplacingProcessPool(process_pool.ProcessPool):
  """A `ProcessPool` that outlives its workers.

  If a worker ends, raises or does not answer in time, the pool makes its
  environments anew in another process. The first output of each has `is_first`
  set. The pool ignores an action that was meant for the old environment. If the
  factory's arguments have a `seed`, the new environment gets another one: with
  the same seed it might die the same way again.

  An environment that fails before its first output is not replaced, nor is one
  that keeps failing: then the pool raises `PoolError`, as `ProcessPool` does at
  the first failure.

  Attributes:
    num_replaced: Workers replaced so far.
  """

  def __init__(self, factory, kwargs_per_environment, num_processes=None,
               step_timeout_seconds=600., maximum_losses=5,
               loss_window_seconds=3600., **kwargs):
    """Starts the processes and makes all environments.

    Args:
      factory: See `ProcessPool`, also for what is not named here.
      kwargs_per_environment: Likewise.
      num_processes: Likewise, but by default one per environment.
      step_timeout_seconds: A worker without an answer for so long is stuck; the
        time includes the start of an episode, and the making of what is new.
      maximum_losses: How often a worker may be replaced within the window.
      loss_window_seconds: Length of the window.
      **kwargs: See `ProcessPool`.

    Raises:
      PoolError: An environment cannot be made, or they differ.
      ValueError: A number is out of range.
    """
    kwargs_per_environment = list(kwargs_per_environment)
    count = len(kwargs_per_environment)
    self.num_replaced = 0
    self._step_timeout = step_timeout_seconds
    self._maximum_losses = maximum_losses
    self._loss_window = loss_window_seconds
    self._loss_times = collections.defaultdict(collections.deque)
    self._lost = {}
    self._has_begun = np.zeros(count, np.bool_)
    # When an environment is stuck; infinity where it has nothing to do.
    self._deadline = np.full(count, time.monotonic() + step_timeout_seconds)
    # New environments where the old one's next action is still to come, and
    # those of them whose first output is there.
    self._owes_action = np.zeros(count, np.bool_)
    self._is_early = np.zeros(count, np.bool_)
    super().__init__(factory, kwargs_per_environment, num_processes or count,
                     **kwargs)

  def _step(self, ids):
    # A worker may be lost while a message to another one is delivered.
    ignored = self._owes_action[ids]
    self._owes_action[ids] = False
    early = ids[self._is_early[ids]]
    self._is_early[ids] = False
    if len(early):
      self._add_ready(early)
    ids = ids[~ignored]
    self._deadline[ids] = time.monotonic() + self._step_timeout
    super()._step(ids)

  def _add_info(self, worker, info):
    super()._add_info(worker, info)
    if self._arrays is not None:
      self._begin(worker)

  def _add_ready(self, ids):
    self._has_begun[ids] = True
    self._deadline[ids] = np.inf
    is_early = self._owes_action[ids]
    self._is_early[ids] = is_early
    if not is_early.all():
      super()._add_ready(ids[~is_early])

  def _poll(self, timeout):
    left = max(0., self._deadline.min() - time.monotonic())
    if timeout is not None:
      left = min(left, timeout)
    super()._poll(None if left == np.inf else left)
    # No sooner, for what was polled may have more to say of what is lost.
    self._find_stuck()
    while self._lost:
      self._replace(*self._lost.popitem())

  def _find_stuck(self):
    now = time.monotonic()
    for owner in np.unique(self._owner[self._deadline <= now]):
      worker = self._workers[owner]
      self._lose(worker, '{}: no answer within {:g} s{}'.format(
          self._describe(worker.ids), self._step_timeout, worker.last_words()))

  def _lose(self, worker, text):
    self._lost.setdefault(worker, text)

  def _replace(self, worker, text):
    ids = np.arange(worker.ids.start, worker.ids.stop)
    if not self._has_begun[ids].all():
      super()._lose(worker, text)
    index = self._owner[ids[0]]
    now = time.monotonic()
    times = self._loss_times[index]
    while times and times[0] < now - self._loss_window:
      times.popleft()
    if len(times) >= self._maximum_losses:
      super()._lose(worker, '{} losses within {:g} s, the last: {}'.format(
          len(times) + 1, now - times[0], text))
    times.append(now)
    logging.warning('%s. Starting it anew.', text)
    self.num_replaced += 1

    self._end(worker)
    self._forget(ids)
    self._deadline[ids] = now + self._step_timeout
    for i in ids:
      if 'seed' in self._kwargs[i]:
        seed = (self._kwargs[i]['seed'] + _SEED_STEP) % _NUM_SEEDS
        self._kwargs[i] = dict(self._kwargs[i], seed=seed)
    self._workers[index] = process_pool.WorkerProcess(
        worker.ids, self._memory_fd)
    self._introduce(self._workers[index])

  def _end(self, worker):
    """Ends a worker for good: its successor will write to the same memory."""
    for channel in (worker.control, worker.output):
      if channel in self._selector.get_map():
        self._selector.unregister(channel)
    worker.kill()
    worker.has_ended(time.monotonic() + _KILL_GRACE_SECONDS)
    worker.hang_up()

  def _forget(self, ids):
    """Drops what is known of the episodes of environments, int [K]."""
    ready = [(since, chunk[~np.isin(chunk, ids)])
             for since, chunk in self._ready]
    self._ready = collections.deque(
        (since, chunk) for since, chunk in ready if len(chunk))
    self._num_ready = sum(len(chunk) for _, chunk in self._ready)
    self._owes_action[ids] = self._awaiting[ids]
    self._is_early[ids] = False
    self._is_first[ids] = True
    self._episode_return[ids] = 0.
    self._episode_step[ids] = 0
