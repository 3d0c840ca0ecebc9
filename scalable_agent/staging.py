"""From unrolls to batches on the learner's devices.

    actor -> TrajectoryQueue -> source -> StagingArea (time major, on device)
      -> learner

Every source has the methods of the plain one, which is the queue itself:

    get(count)                  returns a `Batch` of so many unrolls
    publish(weights)            takes the newest weights
    update(keys, priorities)    takes what an update has found
    filling()                   says how far replay is, while there is no batch
    take_gauges()               returns values to log
    close()                     wakes all that wait

The staging area's thread calls `get`, the training loop's thread the others.

Both ends are bounded: a full queue blocks the actors, and one batch is prepared
while the learner trains on another, which adds one update of policy lag.
"""

import collections
import queue as queue_lib
import threading

import numpy as np
import tree

from scalable_agent import trajectories
from scalable_agent.process import aligned_arrays
from scalable_agent.process import threads
from scalable_agent.process import timing


class Closed(threads.Ended):
  """The queue or the staging area was closed."""


class TrajectoryQueue:
  """A bounded first-in first-out queue between actors and learner."""

  def __init__(self, capacity):
    """Initializes the queue with `capacity`, in unrolls."""
    if capacity < 1:
      raise ValueError(f'The queue capacity is {capacity}, expected 1 or more.')
    self._capacity = capacity
    self._items = collections.deque()
    self._closed = False
    lock = threading.Lock()
    self._not_full = threading.Condition(lock)
    self._enough = threading.Condition(lock)
    self._wanted = 1

  def __len__(self):
    return len(self._items)

  def put(self, item, wait=True):
    """Adds an item.

    Args:
      item: What to add.
      wait: Whether to wait while the queue is full.

    Returns:
      Whether the item was added, which is always so if this waits.

    Raises:
      Closed: The queue is closed, or was while waiting.
    """
    with self._not_full:
      while len(self._items) >= self._capacity and not self._closed:
        if not wait:
          return False
        self._not_full.wait()
      if self._closed:
        raise Closed('The trajectory queue is closed.')
      self._items.append(item)
      if len(self._items) >= self._wanted:
        self._enough.notify_all()
      return True

  def get_many(self, count):
    """Removes and returns the oldest items, waiting for them.

    One thread at a time may call this.

    Args:
      count: How many, an int.

    Raises:
      Closed: The queue is closed, or was while waiting.
      ValueError: `count` is larger than the capacity and could never be had.
    """
    if count > self._capacity:
      raise ValueError(
          f'{count} unrolls asked of a queue that holds {self._capacity}.')
    with self._enough:
      self._wanted = count
      while len(self._items) < self._wanted and not self._closed:
        self._enough.wait()
      if self._closed:
        raise Closed('The trajectory queue is closed.')
      items = [self._items.popleft() for _ in range(count)]
      self._not_full.notify_all()
      return items

  def get(self, count):
    """Returns a `Batch` of the oldest unrolls, as `get_many` does."""
    return trajectories.new_batch(self.get_many(count))

  def next_batch(self):
    """Marks a batch complete: later unrolls are trained on one update later.

    The thread that calls `get` calls this. A batch may take several calls of
    `get`.
    """

  def publish(self, weights):
    """A queue computes nothing with the newest weights."""

  def update(self, keys, priorities):
    """A queue has no priorities; those of a learner without any are None."""

  def filling(self):
    """Returns None: a queue needs no more than a batch."""

  def take_gauges(self):
    """Returns a dict of values to log."""
    return dict(queue_size=len(self))

  def close(self):
    """Wakes all that wait; every call from now on raises `Closed`."""
    with self._not_full:
      self._closed = True
      self._items.clear()
      self._not_full.notify_all()
      self._enough.notify_all()


class LagLimitedQueue(TrajectoryQueue):
  """A queue that drops the unrolls that would be trained on too late."""

  def __init__(self, capacity, max_lag, version):
    """Initializes the queue.

    Args:
      capacity: In unrolls.
      max_lag: The most updates from the beginning of an unroll to its training.
      version: The update that the learner's weights are from when it trains on
        the first batch.
    """
    super().__init__(capacity)
    self._max_lag = max_lag
    self._version = version
    self._num_dropped = 0
    self._dropping = threading.Lock()

  def get(self, count):
    """Returns a `Batch` of the oldest unrolls that are young enough.

    Args:
      count: How many, an int.

    Raises:
      Closed, ValueError: As `get_many`.
    """
    unrolls = []
    while len(unrolls) < count:
      taken = self.get_many(count - len(unrolls))
      young = [unroll for unroll in taken
               if self._version - unroll.policy_version <= self._max_lag]
      unrolls += young
      with self._dropping:
        self._num_dropped += len(taken) - len(young)
    return trajectories.new_batch(unrolls)

  def next_batch(self):
    """See base class."""
    self._version += 1

  def take_gauges(self):
    """Returns a dict of values to log, since the last call."""
    with self._dropping:
      count, self._num_dropped = self._num_dropped, 0
    return dict(super().take_gauges(), dropped_unrolls=count)


def stack_time_major(unrolls):
  """Joins unrolls along the batch.

  Args:
    unrolls: A list of B `ActorOutput`s, one unroll each.

  Returns:
    One `ActorOutput` of NumPy arrays, time major: see its documentation.
  """
  def stack(axis, nests):
    # A map over so many nests would compare the structure of each.
    leaves = zip(*map(tree.flatten, nests), strict=True)
    return tree.unflatten_as(
        nests[0], [_stack(arrays, axis) for arrays in leaves])

  return trajectories.ActorOutput(
      level_name=[unroll.level_name for unroll in unrolls],
      agent_state=stack(0, [unroll.agent_state for unroll in unrolls]),
      env_outputs=stack(1, [unroll.env_outputs for unroll in unrolls]),
      agent_outputs=stack(1, [unroll.agent_outputs for unroll in unrolls]),
      policy_version=np.array([unroll.policy_version for unroll in unrolls]),
      # Where there is one, the batch has no other unroll.
      gradient=unrolls[0].gradient)


def _stack(arrays, axis):
  """As `np.stack`, into memory that needs no further copy."""
  first = np.asarray(arrays[0])
  shape = first.shape[:axis] + (len(arrays),) + first.shape[axis:]
  return np.stack(
      arrays, axis, out=aligned_arrays.empty(shape, first.dtype))


def join(batch):
  """Returns the `Batch` of a source with its unrolls joined in one."""
  return batch._replace(unrolls=stack_time_major(batch.unrolls))


class StagingArea:
  """Prepares the next batch on the devices while the current one trains.

  It takes unrolls for one batch at a time, and only once the batch before was
  taken out: more would make the data older, and the learner no faster.
  """

  def __init__(self, source, batch_size, place, times=None):
    """Starts the thread that stages.

    Args:
      source: Where batches come from; see the module.
      batch_size: Unrolls per batch, B.
      place: A function from a `Batch` of NumPy arrays to what `get` is to
        return, such as the same on a device.
      times: None, or a `timing.StageTimes`.
    """
    self._source = source
    self._batch_size = batch_size
    self._place = place
    self._times = times or timing.StageTimes()
    self._staged = queue_lib.SimpleQueue()
    self._is_free = threading.Semaphore()
    self._thread = threading.Thread(
        target=self._run, name='staging', daemon=True)
    self._stopped = threading.Event()
    self._thread.start()

  def _run(self):
    while True:
      self._is_free.acquire()
      try:
        if self._stopped.is_set():
          raise Closed('The staging area is closed.')
        self._staged.put(self._next())
      except BaseException as e:  # Handed to the thread that calls `get`.
        self._staged.put(e)
        return

  def _next(self):
    # When this returns, nothing here keeps the unrolls alive.
    with self._times.stage('staging_wait'):
      batch = self._source.get(self._batch_size)
    with self._times.stage('staging_copy'):
      return self._place(join(batch))

  def get(self, timeout=None):
    """Returns the next batch, waiting for it.

    Args:
      timeout: Seconds to wait, None for ever.

    Raises:
      TimeoutError: There was none in time.
      Closed: The source or the staging area was closed.
      Exception: What the source or `place` raised.
    """
    try:
      result = self._staged.get(timeout=timeout)
    except queue_lib.Empty:
      raise TimeoutError(f'No batch within {timeout} s.') from None
    if isinstance(result, BaseException):
      self._staged.put(result)
      raise result
    self._is_free.release()
    return result

  def close(self):
    """Closes the source and ends the thread."""
    self._stopped.set()
    self._source.close()
    self._is_free.release()
    self._thread.join()
