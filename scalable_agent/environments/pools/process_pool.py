"""Runs Python environments in worker processes, and makes them one pool.

Outputs and actions pass through shared memory, and a step of any number of
environments costs one small message per process each way. The processes are
started afresh (`worker.py`) and not forked: the pool's process has TensorFlow
loaded, with its threads and its accelerator, and the workers must not.

Linux only: the memory is a file without a name, the control channels are
sockets that keep message boundaries; nothing of either outlives the processes.
"""

import array
import json
import threading

from absl import logging
import numpy as np

from scalable_agent.environments import Pool
from scalable_agent.environments import PoolError
from scalable_agent.environments import PoolOutput
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.environments.pools import actions as actions_lib
from scalable_agent.environments.pools import readiness
from scalable_agent.environments.pools import start_notices
from scalable_agent.environments.pools import worker_limits
from scalable_agent.environments.pools import worker_messages
from scalable_agent.environments.pools import workers as workers_lib
from scalable_agent.process import errors

# Added to an environment's seed each time it is made anew. More than a run has
# environments.
_SEED_STEP = 15_485_863
_NUM_SEEDS = 2**31 - 1


class ProcessPool(Pool):
  """Runs environments in worker processes, and outlives these.

  `recv` hands out whatever is ready, as dynamic batches: it waits for
  `minimum_batch_size` environments, or until nothing else is being stepped.

  The factory returns an environment with the attributes `num_actions`,
  `observation_spec` (a tuple of `ArraySpec`) and `level_name`, equal among all
  but for the name, and the methods

    initial() -> a tuple of arrays, the first observation.
    step(action: int) -> (reward: float, done: bool, observation). When done,
      the observation is the first one of the next episode.
    close()

  What they return is checked, see `contract`. Processes that they start end
  with them, unless those leave the process group.

  If a worker ends, raises or does not answer in time, the pool makes its
  environments anew in another process: all of them, also those that only share
  the process with the one that failed. The others go on meanwhile, and `recv`
  does not wait for the new ones to reach its minimum. The first output of each
  new one has `is_first` set. The pool ignores an action that was meant for the
  old environment. If the factory's arguments have a `seed`, the new environment
  gets another one: with the same seed it might die the same way again.

  Some failures end the use of the pool, and it raises `PoolError`:
    an environment that the pool begins with fails before its first output,
    it keeps failing,
    it returns what it must not, see `contract`.

  Attributes:
    num_replaced: Workers replaced so far.
  """

  def __init__(self, factory, kwargs_per_environment, *, num_processes,
               step_timeout_seconds, start_timeout_seconds,
               minimum_batch_size=1, maximum_batch_size=None):
    """Starts the processes and makes all environments.

    Args:
      factory: 'package.module:function', imported by the workers.
      kwargs_per_environment: A list of N dicts that JSON can represent, the
        arguments of the factory for each environment.
      num_processes: Number of worker processes, at most N. Each holds a run of
        consecutive environments, and steps one of them at a time.
      step_timeout_seconds: A worker that owes an answer and gives none for so
        long is stuck. To make an environment, and to make its first output, are
        an answer each.
      start_timeout_seconds: As `step_timeout_seconds`, for the making and the
        first outputs of the environments that the pool begins with.
      minimum_batch_size: See above; at most N.
      maximum_batch_size: Largest batch of `recv`; by default N.

    Raises:
      PoolError: An environment cannot be made, or they differ.
      ValueError: A number is out of range.
    """
    self._factory = factory
    self._kwargs = list(kwargs_per_environment)
    self.num_environments = len(self._kwargs)
    if not 1 <= num_processes <= self.num_environments:
      raise ValueError(f'num_processes {num_processes} is not between 1 and '
                       f'{self.num_environments}')
    self._minimum = minimum_batch_size
    self._maximum = maximum_batch_size or self.num_environments
    if not 1 <= self._minimum <= min(self._maximum, self.num_environments):
      raise ValueError(
          f'minimum_batch_size {self._minimum} is not between 1 and '
          f'{min(self._maximum, self.num_environments)}')
    self.level_names = [
        kwargs.get('level_name', factory) for kwargs in self._kwargs]
    self.num_replaced = 0
    self._readiness = readiness.Readiness(self.num_environments)
    self._arrays = self._actions = None
    self._error = None
    self._has_started = False
    self._notices = start_notices.StartNotices(self.num_environments)
    self._limits = worker_limits.WorkerLimits(
        step_timeout_seconds, start_timeout_seconds)
    # Reentrant, for a signal handler may close the pool that it interrupts.
    self._lock = threading.RLock()
    try:
      self._workers = workers_lib.Workers()
    except OSError as e:
      raise PoolError('environments cannot be given processes: '
                      f'{errors.first_line(e)}') from e
    try:
      self._start(num_processes)
    except BaseException:
      self.close()
      raise

  @property
  def has_started(self):
    """Whether there have been first outputs of all environments."""
    return self._has_started

  def recv(self):
    """Waits for ready environments, see the class and `Pool`.

    Returns:
      A `PoolOutput` of between 1 and `maximum_batch_size` environments.

    Raises:
      PoolError: The pool is of no further use, see the class, but has to be
        closed; or it is closed.
      ValueError: Nothing can become ready, all environments await an action.
    """
    with self._lock:
      self._check_usable()
      if self._readiness.all_await():
        raise ValueError('all environments await an action')
      # If messages were left for the next `recv`, batches could only become
      # smaller: those of a worker are never larger than what it was sent at a
      # time.
      has_more, is_due = True, self._readiness.is_due(self._minimum)
      while has_more or not is_due:
        has_more = self._poll(0 if is_due else None)
        is_due = self._readiness.is_due(self._minimum)
      return self._make_output(self._readiness.hand_out(self._maximum))

  def send(self, ids, actions):
    """Steps environments, and never waits for them.

    Args:
      ids: int32 [K], distinct environments that `recv` has handed out since
        their last step, in any order and from any number of calls.
      actions: int32 [K], indices into the action set.

    Raises:
      PoolError: As `recv`.
      ValueError: The arguments are not as above; nothing is stepped.
    """
    with self._lock:
      self._check_usable()
      ids, actions = actions_lib.check(
          ids, actions, self._readiness.awaiting, self.num_actions)
      for i, action in zip(ids, actions):
        self._actions[i] = action
      self._step(self._readiness.take_actions(ids))

  def close(self):
    """Ends all processes, which takes about two seconds for one that hangs.

    May be called twice, and by any thread: a `recv` that waits in another one
    raises `PoolError`.
    """
    self._workers.interrupt()
    with self._lock:
      self._workers.close()
      self._arrays = self._actions = None

  def _start(self, num_processes):
    bounds = [self.num_environments * i // num_processes
              for i in range(num_processes + 1)]
    for first, end in zip(bounds, bounds[1:]):
      self._start_worker(range(first, end))
    workers = self._workers.processes
    while any(worker.info is None for worker in workers):
      self._poll(None)
    self._adopt_info([i for worker in workers for i in worker.info])
    try:
      self._arrays = worker_messages.map_arrays(
          self._workers.memory_fd, self.num_environments,
          self.observation_spec)
    except OSError as e:
      self._fail(
          'there is no memory for the observations of '
          f'{self.num_environments} environments: {errors.first_line(e)}')
    self._actions = memoryview(self._arrays.action)
    for worker in workers:
      self._begin(worker)

  def _start_worker(self, ids):
    """Starts a worker, and asks it to make its environments."""
    try:
      worker = self._workers.start(ids)
    except OSError as e:
      self._fail(f'{self._describe(ids)}: a process cannot be started: '
                 f'{errors.first_line(e)}')
    self._workers.deliver(worker, json.dumps({
        'factory': self._factory, 'kwargs': self._kwargs[ids.start:ids.stop],
        'first_id': ids.start, 'num_environments': self.num_environments,
    }).encode())

  def _begin(self, worker):
    """Asks a worker that has made its environments for the first outputs."""
    self._arrays.stepping[worker.ids.start] = worker.ids.start
    specs = worker_messages.specs_to_json(self.observation_spec)
    self._workers.deliver(
        worker, json.dumps(specs).encode(), num_answers=len(worker.ids))

  def _step(self, ids):
    """Asks the workers to step environments, a list of ids."""
    ids_by_worker = {}
    for i in ids:
      ids_by_worker.setdefault(self._workers.owners[i], []).append(i)
    for worker, its_ids in ids_by_worker.items():
      self._workers.deliver(
          worker, array.array('i', its_ids), num_answers=len(its_ids))

  def _adopt_info(self, info):
    self.level_names = [level_name for level_name, _, _ in info]
    _, self.num_actions, specs = info[0]
    self.observation_spec = worker_messages.specs_from_json(specs)
    for i, (_, other_num_actions, other_specs) in enumerate(info):
      if (other_num_actions, other_specs) != (self.num_actions, specs):
        raise PoolError(
            f'{self._describe([i])} has {other_num_actions} actions and '
            f'observations {other_specs}, but {self._describe([0])} has '
            f'{self.num_actions} and {specs}')

  def _names(self, ids):
    names = list(dict.fromkeys(self.level_names[i] for i in ids))
    return ', '.join(names[:3] + ['...'] * (len(names) > 3))

  def _describe(self, ids):
    names = self._names(ids)
    if len(ids) == 1:
      return f'environment {ids[0]} ({names})'
    return f'environments {ids[0]} to {ids[-1]} ({names})'

  def _check_usable(self):
    self._workers.check_open()
    if self._error:
      raise PoolError(self._error)

  def _poll(self, timeout):
    """Takes at most one message per worker, and replaces those that are lost.

    Args:
      timeout: Seconds to wait for a message, or None.

    Returns:
      Whether one of these workers has more to say.
    """
    workers = self._workers.processes
    left = self._limits.seconds_left(workers)
    timeout = left if timeout is None else min(timeout, left)
    if not self._has_started:
      timeout = self._watch_start(timeout)
    has_more, lost = False, {}
    for worker, message in self._workers.poll(timeout):
      reason = self._take(worker, message)
      if reason:
        lost[worker] = reason
      has_more |= worker.num_owed > 0
    # Only after the poll: what a worker says itself tells more than that it is
    # stuck.
    if not left:
      for worker in self._limits.find_stuck(workers):
        lost.setdefault(worker, self._describe_stuck(worker))
    for worker, reason in lost.items():
      self._replace(worker, reason)
    return has_more

  def _watch_start(self, timeout):
    """Says now and then what has not started; returns how long to wait."""
    late = [i for worker in self._workers.processes if not worker.has_begun
            for i in worker.ids]
    self._has_started = not late
    if self._has_started:
      return timeout
    return self._notices.show(len(late), lambda: self._names(late), timeout)

  def _take(self, worker, message):
    """Takes a message. Returns why its worker is of no more use, or None."""
    if not message:
      return (f'{self._describe(worker.ids)}: the worker process '
              f'{worker.describe_end()}')
    kind, content = message[:1], message[1:]
    if kind == worker_messages.READY:
      ids = array.array('i', content).tolist()
      worker.has_begun = True
      worker.answer(len(ids))
      self._readiness.add(ids)
    elif kind == worker_messages.ALIVE:
      worker.answer(0)
    elif kind == worker_messages.INFO:
      worker.info = json.loads(content)
      worker.answer(1)
      if worker.is_successor:
        self._begin(worker)
    else:
      environment_id, text, is_complete, is_final = json.loads(content)
      ids = worker.ids if environment_id is None else [environment_id]
      if not is_complete:
        text = f'{self._describe(ids)}: {text}'
      if is_final:
        self._fail(text)
      return text
    return None

  def _describe_stuck(self, worker):
    ids, shared = worker.ids, ''
    if worker.info is not None and len(ids) > 1:
      shared = f', in a process with environments {ids[0]} to {ids[-1]}'
      ids = [int(self._arrays.stepping[ids[0]])]
    seconds, flag = self._limits.timeout_of(worker)
    return (f'{self._describe(ids)}{shared}: no answer within {seconds:g} s '
            f'({flag}){worker.last_words()}')

  def _replace(self, worker, reason):
    """Makes the environments of a lost worker anew, if there is any use."""
    if not worker.has_begun and not worker.is_successor:
      self._fail(reason)
    excess = self._limits.note_loss(worker)
    if excess:
      self._fail(f'{excess}, the last: {reason}')
    logging.warning('%s. Starting it anew.', reason)
    self.num_replaced += 1
    self._readiness.make_anew(worker.ids)
    for i in worker.ids:
      if 'seed' in self._kwargs[i]:
        seed = (self._kwargs[i]['seed'] + _SEED_STEP) % _NUM_SEEDS
        self._kwargs[i] = dict(self._kwargs[i], seed=seed)
    self._start_worker(worker.ids)

  def _fail(self, text):
    """Ends the use of the pool."""
    self._error = text
    raise PoolError(text)

  def _make_output(self, ids):
    ids, arrays = np.array(ids, np.int32), self._arrays
    take = lambda values: values.take(ids, axis=0)
    return PoolOutput(
        ids,
        StepOutput(
            take(arrays.reward),
            StepOutputInfo(take(arrays.episode_return),
                           take(arrays.episode_step)),
            take(arrays.done), tuple(map(take, arrays.observation))),
        take(arrays.is_first), take(arrays.is_last))
