"""Holds the worker processes of a `ProcessPool`, and carries its messages."""

import os
import selectors
import threading
import weakref

from scalable_agent.environments import PoolError
from scalable_agent.environments.pools import worker_messages
from scalable_agent.environments.pools import worker_process


class Workers:
  """Starts workers, and exchanges messages with all of them.

  What these say is the pool's concern.

  Attributes:
    processes: A list of `WorkerProcess`.
    owners: A dict of environment id to its `WorkerProcess`.
    memory_fd: The file descriptor of the memory that all of them share.
  """

  def __init__(self):
    self.processes = []
    self.owners = {}
    self.memory_fd = os.memfd_create('environments')
    # Of the thread that makes the pool. One that acts may start successors.
    self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
    self._buffer = bytearray(worker_messages.MAXIMUM_MESSAGE_BYTES)
    self._is_closed = False
    # Reentrant, for a signal handler may come in between.
    self._interrupt_lock = threading.RLock()
    self._selector = selectors.DefaultSelector()
    wake_read_fd, self._wake_fd = os.pipe()
    self._selector.register(wake_read_fd, selectors.EVENT_READ)
    self._finalizer = weakref.finalize(
        self, _release, os.getpid(), self.processes, self._selector,
        (wake_read_fd, self._wake_fd, self.memory_fd))

  def start(self, ids):
    """Starts a worker for a range of environments.

    If they have one already, that one is ended for good first: its successor
    will write to the same memory.

    Args:
      ids: The range; the same one each time.

    Returns:
      A `WorkerProcess`.

    Raises:
      OSError: No process can be started.
    """
    predecessor = self.owners.get(ids.start)
    if predecessor is not None:
      self._end(predecessor)
    worker = worker_process.WorkerProcess(
        ids, self.memory_fd, self._niceness,
        is_successor=predecessor is not None)
    if predecessor is None:
      self.processes.append(worker)
    else:
      self.processes[self.processes.index(predecessor)] = worker
    self.owners.update(dict.fromkeys(ids, worker))
    for channel in (worker.control, worker.output):
      self._selector.register(channel, selectors.EVENT_READ, worker)
    return worker

  def deliver(self, worker, message, num_answers=1):
    """Sends a message, for which the worker owes some answers.

    With hundreds of single steps under way the channel can be full. Then `poll`
    sends the message as soon as there is room.
    """
    worker.owe(num_answers)
    if not worker.send(message):
      self._selector.modify(
          worker.control, selectors.EVENT_READ | selectors.EVENT_WRITE, worker)

  def poll(self, timeout):
    """Waits for messages, and takes at most one per worker.

    Args:
      timeout: Seconds to wait for one.

    Returns:
      A list of pairs: a `WorkerProcess`, and its message, empty at the end.

    Raises:
      PoolError: It is closed, maybe meanwhile.
    """
    try:
      events = self._selector.select(timeout)
    except (OSError, ValueError):
      if not self._is_closed:
        raise
      events = ()
    # A signal handler may have closed it, which the caller is to notice.
    self.check_open()
    messages = []
    for key, mask in events:
      worker = key.data
      if key.fileobj is worker.output:
        if not worker.read_output():
          self._selector.unregister(worker.output)
        continue
      if mask & selectors.EVENT_WRITE and worker.flush():
        self._selector.modify(worker.control, selectors.EVENT_READ, worker)
      num_bytes = worker.receive_into(self._buffer)
      if num_bytes is not None:
        messages.append((worker, self._buffer[:num_bytes]))
    return messages

  def check_open(self):
    """Raises `PoolError` if it is closed, or about to be."""
    if self._is_closed:
      raise PoolError('the pool is closed')

  def interrupt(self):
    """Has `poll` raise from now on, also if it waits in another thread."""
    with self._interrupt_lock:
      if not self._is_closed:
        self._is_closed = True
        os.write(self._wake_fd, b'x')

  def close(self):
    """Ends all workers. May be called twice; `interrupt` comes before it."""
    self._finalizer()

  def _end(self, worker):
    for channel in (worker.control, worker.output):
      if channel in self._selector.get_map():
        self._selector.unregister(channel)
    worker.end_now()


def _release(owner_pid, processes, selector, fds):
  """Ends the workers and closes everything; a forked copy owns nothing."""
  if os.getpid() != owner_pid:
    return
  selector.close()
  for fd in fds:
    os.close(fd)
  worker_process.end_all(processes)
