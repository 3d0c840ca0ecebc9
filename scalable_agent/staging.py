"""From unrolls to batches on the learner's devices.

    actor -> TrajectoryQueue -> StagingArea (time major, on device) -> learner

Both ends are bounded: a full queue blocks the actors, and one batch is prepared
while the learner trains on another, which adds one step of policy lag.
"""

import collections
import queue as queue_lib
import threading

import numpy as np

from scalable_agent import nests
from scalable_agent import threads

ActorOutput = collections.namedtuple(
    'ActorOutput',
    'level_name agent_state env_outputs agent_outputs policy_version')
ActorOutput.__doc__ = """An unroll, or a batch of them.

Entry t of `agent_outputs` led to entry t of `env_outputs`; entry 0 of both
repeats the last of the unroll before.

  level_name: String; in a batch a list of B.
  agent_state: The core state before entry 0, [...]; in a batch [B, ...].
  env_outputs: A `StepOutput` of [T+1, ...] arrays; in a batch [T+1, B, ...].
  agent_outputs: An `AgentOutput` of [T+1, ...]; in a batch [T+1, B, ...].
  policy_version: int64, the learner step whose weights took the first action;
    in a batch an array [B].
"""


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

  def put(self, item):
    """Adds an item, waiting while the queue is full.

    Raises:
      Closed: The queue is closed, or was while waiting.
    """
    with self._not_full:
      while len(self._items) >= self._capacity and not self._closed:
        self._not_full.wait()
      if self._closed:
        raise Closed('The trajectory queue is closed.')
      self._items.append(item)
      if len(self._items) >= self._wanted:
        self._enough.notify_all()

  def get_many(self, count, minimum=None):
    """Removes and returns the oldest items, waiting for them.

    One thread at a time may call this.

    Args:
      count: How many, an int.
      minimum: How many will do, if there are no more; by default `count`.

    Raises:
      Closed: The queue is closed, or was while waiting.
      ValueError: `count` is larger than the capacity and could never be had.
    """
    if count > self._capacity:
      raise ValueError(
          f'{count} unrolls asked of a queue that holds {self._capacity}.')
    with self._enough:
      self._wanted = minimum or count
      while len(self._items) < self._wanted and not self._closed:
        self._enough.wait()
      if self._closed:
        raise Closed('The trajectory queue is closed.')
      items = [self._items.popleft()
               for _ in range(min(count, len(self._items)))]
      self._not_full.notify_all()
      return items

  def close(self):
    """Wakes all that wait; every call from now on raises `Closed`."""
    with self._not_full:
      self._closed = True
      self._items.clear()
      self._not_full.notify_all()
      self._enough.notify_all()


def stack_time_major(unrolls):
  """Makes a batch of unrolls.

  Args:
    unrolls: A list of B `ActorOutput`s, one unroll each.

  Returns:
    One `ActorOutput` of NumPy arrays, as its documentation says for a batch.
  """
  stack = lambda axis: lambda *arrays: np.stack(arrays, axis=axis)
  return ActorOutput(
      level_name=[unroll.level_name for unroll in unrolls],
      agent_state=nests.map_arrays(
          stack(0), *(unroll.agent_state for unroll in unrolls)),
      env_outputs=nests.map_arrays(
          stack(1), *(unroll.env_outputs for unroll in unrolls)),
      agent_outputs=nests.map_arrays(
          stack(1), *(unroll.agent_outputs for unroll in unrolls)),
      policy_version=np.array([unroll.policy_version for unroll in unrolls]))


class StagingArea:
  """Prepares the next batch on the devices while the current one trains."""

  def __init__(self, queue, batch_size, place):
    """Starts the thread that stages.

    Args:
      queue: The `TrajectoryQueue` to take unrolls from.
      batch_size: Unrolls per batch, B.
      place: A function from a batch (an `ActorOutput` of NumPy arrays) to what
        `get` is to return, such as the same on a device.
    """
    self._queue = queue
    self._batch_size = batch_size
    self._place = place
    self._staged = queue_lib.Queue(maxsize=1)
    self._thread = threading.Thread(
        target=self._run, name='staging', daemon=True)
    self._stopped = threading.Event()
    self._thread.start()

  def _run(self):
    while True:
      try:
        result = self._place(
            stack_time_major(self._queue.get_many(self._batch_size)))
      except BaseException as e:  # Handed to the thread that calls `get`.
        result = e
      while not self._stopped.is_set():
        try:
          self._staged.put(result, timeout=.1)
          break
        except queue_lib.Full:
          pass
      if self._stopped.is_set() or isinstance(result, BaseException):
        return

  def get(self, timeout=None):
    """Returns the next batch, waiting for it.

    Args:
      timeout: Seconds to wait, None for ever.

    Raises:
      TimeoutError: There was none in time.
      Closed: The queue was closed.
      Exception: What `place` raised.
    """
    try:
      result = self._staged.get(timeout=timeout)
    except queue_lib.Empty:
      raise TimeoutError(f'No batch within {timeout} s.') from None
    if isinstance(result, BaseException):
      self._staged.put(result)
      raise result
    return result

  def close(self):
    """Closes the queue and ends the thread."""
    self._queue.close()
    self._stopped.set()
    self._thread.join()
