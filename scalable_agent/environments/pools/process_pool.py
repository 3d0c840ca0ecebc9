"""Runs Python environments in worker processes, and makes them one pool.

Outputs and actions pass through shared memory, and a step of any number of
environments costs one small message per process each way. The processes are
started afresh (`worker.py`) and not forked: the pool's process has TensorFlow
loaded, with its threads and its accelerator, and the workers must not.

Linux only: the memory is a file without a name, the control channels are
sockets that keep message boundaries; nothing of either outlives the processes.
"""

import array
import collections
import json
import os
import selectors
import threading
import weakref

import numpy as np

from scalable_agent.environments import Pool
from scalable_agent.environments import PoolError
from scalable_agent.environments import PoolOutput
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.environments.pools import actions as actions_lib
from scalable_agent.environments.pools import start_notices
from scalable_agent.environments.pools import worker_messages
from scalable_agent.environments.pools import worker_process


class ProcessPool(Pool):
  """Runs environments in worker processes.

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
  """

  def __init__(self, factory, kwargs_per_environment, num_processes=None,
               minimum_batch_size=1, maximum_batch_size=None):
    """Starts the processes and makes all environments.

    Args:
      factory: 'package.module:function', imported by the workers.
      kwargs_per_environment: A list of N dicts that JSON can represent, the
        arguments of the factory for each environment.
      num_processes: Number of worker processes, at most N; by default one per
        available core. Each holds a run of consecutive environments, and steps
        one of them at a time.
      minimum_batch_size: See above; at most N.
      maximum_batch_size: Largest batch of `recv`; by default N.

    Raises:
      PoolError: An environment cannot be made, or they differ.
      ValueError: A number is out of range.
    """
    kwargs_per_environment = list(kwargs_per_environment)
    self.num_environments = len(kwargs_per_environment)
    num_processes = self._checked_num_processes(num_processes)
    self._minimum = minimum_batch_size
    self._maximum = maximum_batch_size or self.num_environments
    if not 1 <= self._minimum <= min(self._maximum, self.num_environments):
      raise ValueError(
          f'minimum_batch_size {self._minimum} is not between 1 and '
          f'{min(self._maximum, self.num_environments)}')
    self.level_names = [
        kwargs.get('level_name', factory) for kwargs in kwargs_per_environment]
    self._factory = factory
    self._kwargs = kwargs_per_environment
    self._make_bookkeeping()
    self._make_resources()
    try:
      self._start_workers(num_processes)
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
      PoolError: An environment died, or the pool is closed. A pool that lost
        an environment is of no further use, but has to be closed.
      ValueError: Nothing can become ready, all environments await an action.
    """
    with self._lock:
      self._check_usable()
      if self._num_awaiting == self.num_environments:
        raise ValueError('all environments await an action')
      # If messages were left for the next `recv`, batches could only become
      # smaller: those of a worker are never larger than what it was sent at a
      # time.
      has_more, is_due = True, self._is_due()
      while has_more or not is_due:
        has_more = self._poll(0 if is_due else None)
        is_due = self._is_due()
      ids = [self._ready.popleft()
             for _ in range(min(self._maximum, len(self._ready)))]
      for i in ids:
        self._awaiting[i] = True
      self._num_awaiting += len(ids)
      return self._make_output(ids)

  def send(self, ids, actions):
    """Steps environments.

    Args:
      ids: int32 [K], distinct environments that `recv` has handed out since
        their last step, in any order and from any number of calls.
      actions: int32 [K], indices into the action set.

    Raises:
      PoolError: An environment died, or the pool is closed.
      ValueError: The arguments are not as above; nothing is stepped.
    """
    with self._lock:
      self._check_usable()
      ids, actions = actions_lib.check(
          ids, actions, self._awaiting, self.num_actions)
      for i, action in zip(ids, actions):
        self._actions[i] = action
        self._awaiting[i] = False
      self._num_awaiting -= len(ids)
      self._step(ids)

  def close(self):
    """Ends all processes, which takes about two seconds for one that hangs.

    May be called twice, and by any thread: a `recv` that waits in another one
    raises `PoolError`.
    """
    with self._close_lock:
      if not self._closed:
        self._closed = True
        os.write(self._wake_fd, b'x')
    with self._lock:
      self._finalizer()
      self._arrays = self._actions = None

  def _checked_num_processes(self, num_processes):
    if not self.num_environments:
      raise ValueError('a pool needs an environment')
    if num_processes is None:
      return min(self.num_environments, len(os.sched_getaffinity(0)))
    if not 1 <= num_processes <= self.num_environments:
      raise ValueError(f'num_processes {num_processes} is not between 1 and '
                       f'{self.num_environments}')
    return num_processes

  def _make_bookkeeping(self):
    # A call is mostly about one or two environments. Its process has slept, so
    # that the caches are cold, and Python's lists touch less than NumPy does.
    self._awaiting = [False] * self.num_environments
    self._num_awaiting = 0
    self._owner = [None] * self.num_environments
    # Environments whose outputs wait to be handed out, the oldest first.
    self._ready = collections.deque()
    self._buffer = bytearray(worker_messages.MAXIMUM_MESSAGE_BYTES)
    self._arrays = self._actions = None
    self._error = None
    self._closed = False
    self._has_started = False
    self._notices = start_notices.StartNotices(self.num_environments)

  def _make_resources(self):
    # Reentrant, for a signal handler may close the pool that it interrupts.
    self._lock = threading.RLock()
    self._close_lock = threading.RLock()
    self._workers = []
    self._selector = selectors.DefaultSelector()
    wake_read_fd, self._wake_fd = os.pipe()
    self._selector.register(wake_read_fd, selectors.EVENT_READ)
    self._memory_fd = os.memfd_create('environments')
    self._finalizer = weakref.finalize(
        self, _release, os.getpid(), self._workers, self._selector,
        (wake_read_fd, self._wake_fd, self._memory_fd))

  def _start_workers(self, num_processes):
    bounds = [self.num_environments * i // num_processes
              for i in range(num_processes + 1)]
    for first, end in zip(bounds, bounds[1:]):
      self._owner[first:end] = [len(self._workers)] * (end - first)
      self._workers.append(self._start_worker(range(first, end)))
      self._introduce(self._workers[-1])
    while any(worker.info is None for worker in self._workers):
      self._poll(None)
    self._adopt_info([i for worker in self._workers for i in worker.info])
    self._arrays = worker_messages.map_arrays(
        self._memory_fd, self.num_environments, self.observation_spec)
    self._actions = memoryview(self._arrays.action)
    for worker in self._workers:
      self._begin(worker)

  def _start_worker(self, ids):
    try:
      return worker_process.WorkerProcess(ids, self._memory_fd)
    except OSError as e:
      self._fail(f'{self._describe(ids)}: a process cannot be started: '
                 f'{e.strerror or e}')

  def _introduce(self, worker):
    """Listens to a new worker, and asks it to make its environments."""
    # Not bound methods: the finaliser holds the selector, and must not hold
    # the pool.
    for channel, take in ((worker.control, ProcessPool._take_message),
                          (worker.output, ProcessPool._take_text)):
      self._selector.register(channel, selectors.EVENT_READ, (worker, take))
    ids = worker.ids
    self._deliver(worker, json.dumps({
        'factory': self._factory, 'kwargs': self._kwargs[ids.start:ids.stop],
        'first_id': ids.start, 'num_environments': self.num_environments,
    }).encode())

  def _begin(self, worker):
    """Asks a worker that has made its environments for the first outputs."""
    self._arrays.stepping[worker.ids.start] = worker.ids.start
    self._deliver(worker, json.dumps(
        worker_messages.specs_to_json(self.observation_spec)).encode(),
                  num_answers=len(worker.ids))

  def _step(self, ids):
    """Asks the workers to step environments, a list of ids."""
    ids_by_owner = {}
    for i in ids:
      ids_by_owner.setdefault(self._owner[i], []).append(i)
    # A worker may be replaced while a message to another one is delivered.
    messages = [(self._workers[owner], array.array('i', its_ids))
                for owner, its_ids in ids_by_owner.items()]
    for worker, its_ids in messages:
      self._deliver(worker, its_ids, num_answers=len(its_ids))

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
    if self._closed:
      raise PoolError('the pool is closed')
    if self._error:
      raise PoolError(self._error)

  def _poll(self, timeout):
    """Takes at most one message per worker.

    Args:
      timeout: Seconds to wait for one, or None.

    Returns:
      Whether one of these workers has more to say.
    """
    if not self._has_started:
      timeout = self._watch_start(timeout)
    try:
      events = self._selector.select(timeout)
    except (OSError, ValueError):
      if not self._closed:
        raise
      events = ()
    # A signal handler may have closed the pool, which the caller is to notice.
    self._check_usable()
    has_more = False
    for key, _ in events:
      worker, take = key.data
      has_more |= take(self, worker)
    return has_more

  def _watch_start(self, timeout):
    """Says now and then what has not started; returns how long to wait."""
    late = [i for worker in self._workers if not worker.has_begun
            for i in worker.ids]
    self._has_started = bool(self._workers) and not late
    if self._has_started:
      return timeout
    return self._notices.show(len(late), lambda: self._names(late), timeout)

  def _take_message(self, worker):
    """Takes a message; returns whether the worker owes more."""
    num_bytes = worker.receive_into(self._buffer)
    if num_bytes is None:
      return False
    if not num_bytes:
      self._lose(worker, f'{self._describe(worker.ids)}: the worker process '
                 f'{worker.describe_end()}')
      return False
    kind, content = self._buffer[:1], self._buffer[1:num_bytes]
    if kind == worker_messages.READY:
      ids = array.array('i', content).tolist()
      worker.has_begun = True
      worker.answer(len(ids))
      self._add_ready(ids)
    elif kind == worker_messages.ALIVE:
      worker.answer(0)
    elif kind == worker_messages.INFO:
      self._add_info(worker, json.loads(content))
    else:
      environment_id, text, is_complete, is_final = json.loads(content)
      ids = worker.ids if environment_id is None else [environment_id]
      if not is_complete:
        text = f'{self._describe(ids)}: {text}'
      if is_final:
        self._fail(text)
      self._lose(worker, text)
    return worker.num_owed > 0

  def _add_info(self, worker, info):
    worker.info = info
    worker.answer(1)

  def _add_ready(self, ids):
    self._ready.extend(ids)

  def _lose(self, unused_worker, text):
    """Deals with a worker that is, or will be, of no use; `text` says why."""
    self._fail(text)

  def _fail(self, text):
    """Ends the use of the pool."""
    self._error = text
    raise PoolError(text)

  def _take_text(self, worker):
    """Takes text; returns False, since nobody waits for more of it."""
    if not worker.read_output():
      self._selector.unregister(worker.output)
    return False

  def _is_due(self):
    """Whether there is enough to hand out, or no more to wait for."""
    num_ready = len(self._ready)
    if num_ready >= self._minimum:
      return True
    num_known = num_ready + self._num_awaiting + self._count_absent()
    return num_ready > 0 and num_known == self.num_environments

  def _count_absent(self):
    """Returns how many are neither ready, nor awaiting, nor being stepped."""
    return 0

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

  def _deliver(self, worker, message, num_answers=1):
    worker.owe(num_answers)
    # With hundreds of single steps under way both directions can fill up; to
    # take what has arrived keeps the worker, and so this, from blocking.
    while not worker.send(message):
      self._poll(0.01)


def _release(owner_pid, workers, selector, fds):
  """Ends the workers and closes everything; a forked copy owns nothing."""
  if os.getpid() != owner_pid:
    return
  selector.close()
  for fd in fds:
    os.close(fd)
  worker_process.end_all(workers)
