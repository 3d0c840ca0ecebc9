"""Replaces the environments of worker processes that died or are stuck."""

import collections
import math
import time

from absl import logging

from scalable_agent.environments.pools import process_pool
from scalable_agent.process import timing

_KILL_GRACE_SECONDS = 10.0
# A limit may be infinite, which no system call takes.
_LONGEST_WAIT_SECONDS = 60.
# Added to an environment's seed each time it is made anew. More than a run has
# environments.
_SEED_STEP = 15_485_863
_NUM_SEEDS = 2**31 - 1


class ReplacingProcessPool(process_pool.ProcessPool):
  """A `ProcessPool` that outlives its workers.

  If a worker ends, raises or does not answer in time, the pool makes its
  environments anew in another process: all of them, also those that only share
  the process with the one that failed. The others go on meanwhile, and `recv`
  does not wait for the new ones to reach its minimum. The first output of each
  new one has `is_first` set. The pool ignores an action that was meant for the
  old environment. If the factory's arguments have a `seed`, the new environment
  gets another one: with the same seed it might die the same way again.

  Some failures end the use of the pool, and it raises `PoolError`, as
  `ProcessPool` does at the first failure:
    an environment that the pool begins with fails before its first output,
    it keeps failing,
    it returns what it must not, see `contract`.

  Attributes:
    num_replaced: Workers replaced so far.
  """

  def __init__(self, factory, kwargs_per_environment, num_processes=None,
               step_timeout_seconds=600., maximum_losses=5,
               loss_window_seconds=3600., start_timeout_seconds=None,
               **kwargs):
    """Starts the processes and makes all environments.

    Args:
      factory: See `ProcessPool`, also for what is not named here.
      kwargs_per_environment: Likewise.
      num_processes: Likewise, but by default one per environment.
      step_timeout_seconds: A worker that owes an answer and gives none for so
        long is stuck. To make an environment, and to make its first output, are
        an answer each.
      maximum_losses: How often a worker may be replaced within the window.
      loss_window_seconds: Length of the window.
      start_timeout_seconds: As `step_timeout_seconds`, for the making and the
        first outputs of the environments that the pool begins with; None for
        the same.
      **kwargs: See `ProcessPool`.

    Raises:
      PoolError: An environment cannot be made, or they differ.
      ValueError: A number is out of range.
    """
    kwargs_per_environment = list(kwargs_per_environment)
    count = len(kwargs_per_environment)
    self.num_replaced = 0
    self._step_timeout = step_timeout_seconds
    self._start_timeout = start_timeout_seconds
    self._maximum_losses = maximum_losses
    self._loss_window = loss_window_seconds
    self._loss_times = collections.defaultdict(collections.deque)
    self._lost = {}
    self._standstill = timing.Standstill()
    # Nothing is stuck before that time of the monotonic clock.
    self._next_check = time.monotonic() + min(
        step_timeout_seconds, start_timeout_seconds or math.inf)
    # Workers that are making environments anew; some may have done so.
    self._new = set()
    # New environments for which the old one's next action is still to come; and
    # those of them that have their first output.
    self._owing_ids = set()
    self._early_ids = set()
    super().__init__(factory, kwargs_per_environment, num_processes or count,
                     **kwargs)

  def _step(self, ids):
    super()._step(self._take_owed(ids) if self._owing_ids else ids)

  def _take_owed(self, ids):
    """Returns those whose action is not meant for an old environment."""
    self._ready.extend(i for i in ids if i in self._early_ids)
    self._early_ids.difference_update(ids)
    others = [i for i in ids if i not in self._owing_ids]
    self._owing_ids.difference_update(ids)
    return others

  def _add_info(self, worker, info):
    super()._add_info(worker, info)
    if self._arrays is not None:
      self._begin(worker)

  def _add_ready(self, ids):
    if self._owing_ids:
      self._early_ids.update(self._owing_ids.intersection(ids))
      ids = [i for i in ids if i not in self._owing_ids]
    super()._add_ready(ids)

  def _count_absent(self):
    count = 0
    for worker in list(self._new):
      if worker.has_begun:
        self._new.remove(worker)
      else:
        count += len([i for i in worker.ids if not self._awaiting[i]])
    return count

  def _poll(self, timeout):
    self._forgive_standstill()
    left = self._next_check - time.monotonic()
    longest = max(0., min(left, _LONGEST_WAIT_SECONDS))
    has_more = super()._poll(
        longest if timeout is None else min(timeout, longest))
    # Only after the poll: what a worker says itself tells more than that it is
    # stuck.
    if left <= 0:
      self._find_stuck()
    while self._lost:
      self._replace(*self._lost.popitem())
    return has_more

  def _forgive_standstill(self):
    """Postpones time limits: the workers may have been stopped as well."""
    standstill = self._standstill.take()
    if standstill:
      self._next_check += standstill
      for worker in self._workers:
        worker.owes_since += standstill

  def _find_stuck(self):
    now = time.monotonic()
    self._next_check = now + self._step_timeout
    for worker in self._workers:
      if not worker.num_owed:
        continue
      due = worker.owes_since + self._timeout_of(worker)[0]
      if due > now:
        self._next_check = min(self._next_check, due)
      else:
        self._lose(worker, self._describe_stuck(worker))

  def _timeout_of(self, worker):
    """Returns its limit in seconds, and what sets it."""
    if (worker.has_begun or worker in self._new or
        self._start_timeout is None):
      return self._step_timeout, '--environment_timeout_secs'
    return self._start_timeout, '--environment_start_timeout_secs'

  def _describe_stuck(self, worker):
    ids, shared = worker.ids, ''
    if worker.info is not None and len(ids) > 1:
      shared = f', in a process with environments {ids[0]} to {ids[-1]}'
      ids = [int(self._arrays.stepping[ids[0]])]
    seconds, flag = self._timeout_of(worker)
    return (f'{self._describe(ids)}{shared}: no answer within {seconds:g} s '
            f'({flag}){worker.last_words()}')

  def _lose(self, worker, text):
    self._lost.setdefault(worker, text)

  def _replace(self, worker, text):
    ids = worker.ids
    if not worker.has_begun and worker not in self._new:
      self._fail(text)
    index = self._owner[ids[0]]
    now = time.monotonic()
    times = self._loss_times[index]
    while times and times[0] < now - self._loss_window:
      times.popleft()
    if len(times) >= self._maximum_losses:
      self._fail(f'{len(times) + 1} losses within {now - times[0]:g} s, the '
                 f'last: {text}')
    times.append(now)
    logging.warning('%s. Starting it anew.', text)
    self.num_replaced += 1

    self._end(worker)
    self._forget(ids)
    for i in ids:
      if 'seed' in self._kwargs[i]:
        seed = (self._kwargs[i]['seed'] + _SEED_STEP) % _NUM_SEEDS
        self._kwargs[i] = dict(self._kwargs[i], seed=seed)
    new = self._workers[index] = self._start_worker(worker.ids)
    self._new.add(new)
    self._introduce(new)

  def _end(self, worker):
    """Ends a worker for good: its successor will write to the same memory."""
    self._new.discard(worker)
    for channel in (worker.control, worker.output):
      if channel in self._selector.get_map():
        self._selector.unregister(channel)
    worker.kill()
    worker.has_ended(time.monotonic() + _KILL_GRACE_SECONDS)
    worker.hang_up()

  def _forget(self, ids):
    """Drops what is known of some environments, a range of ids."""
    self._ready = collections.deque(i for i in self._ready if i not in ids)
    self._owing_ids.difference_update(ids)
    self._owing_ids.update(i for i in ids if self._awaiting[i])
    self._early_ids.difference_update(ids)
