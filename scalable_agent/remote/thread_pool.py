"""Calls functions in threads that are made when needed and end when idle.

A `concurrent.futures.ThreadPoolExecutor` would keep the threads of its busiest
moment until it is closed, and a call that hangs would keep Python from exiting.
"""

import asyncio
import collections
import threading

# How long a thread waits for work until it ends.
_IDLE_SECONDS = 10.


class _Worker:
  """What a thread and those who give it work share."""

  def __init__(self, task):
    self.task = task
    # Released when there is a task, or the thread is to end.
    self.given = threading.Lock()
    self.given.acquire()


class ThreadPool:
  """Calls functions that may block, for coroutines.

  Of idle threads the one that worked last gets the next function, so that the
  others end where fewer would do.
  """

  def __init__(self, max_threads, name):
    """Initializes the pool; makes no thread yet.

    Args:
      max_threads: An int; further functions wait for one of them.
      name: What the threads are called.
    """
    self._max_threads = max_threads
    self._name = name
    self._lock = threading.Lock()  # Guards what follows.
    self._threads = set()
    self._idle = []
    self._waiting = collections.deque()
    self._closed = False

  def __len__(self):
    """How many threads there are."""
    return len(self._threads)

  def call(self, function, *args):
    """Calls a function in a thread; returns an `asyncio.Future` to await.

    If the future is cancelled before a thread takes the function, it is not
    called.

    Raises:
      RuntimeError: The pool is closed, or it has no thread and the system has
        none left.
    """
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    task = loop, future, function, args
    with self._lock:
      if self._closed:
        raise RuntimeError('the thread pool is closed')
      if self._idle:
        worker = self._idle.pop()
        worker.task = task
        worker.given.release()
      elif len(self._threads) < self._max_threads:
        self._start_thread(task)
      else:
        self._waiting.append(task)
    return future

  def _start_thread(self, task):
    """Gives a task to a new thread or, if there is none left, to the next free.

    Raises:
      RuntimeError: None is left, and none will be free.
    """
    thread = threading.Thread(target=self._run, args=[_Worker(task)],
                              name=self._name, daemon=True)
    try:
      thread.start()
    except RuntimeError:
      if not self._threads:
        raise
      self._waiting.append(task)
    else:
      self._threads.add(thread)

  def _run(self, worker):
    task = worker.task
    while task:
      _do(*task)
      # Otherwise the finished task stays referenced while the thread idles.
      task = worker.task = None
      task = self._next(worker)

  def _next(self, worker):
    """Returns the next task of a worker; None if its thread is to end."""
    with self._lock:
      if self._waiting:
        return self._waiting.popleft()
      if self._closed:
        return self._leave()
      self._idle.append(worker)
    if not worker.given.acquire(timeout=_IDLE_SECONDS):
      with self._lock:
        if worker in self._idle:
          self._idle.remove(worker)
          return self._leave()
      worker.given.acquire()  # It was given a task at the last moment.
    with self._lock:
      return worker.task or self._leave()

  def _leave(self):
    """Takes note that the present thread ends; the caller holds the lock."""
    self._threads.remove(threading.current_thread())

  def close(self):
    """Waits for the calls, and ends the threads.

    The event loops of those who called must run until then.
    """
    with self._lock:
      self._closed = True
      threads = list(self._threads)
      while self._idle:
        self._idle.pop().given.release()
    for thread in threads:
      thread.join()


def _do(loop, future, function, args):
  """Calls a function, unless nobody waits for it any more."""
  if future.cancelled():
    return
  try:
    finish, outcome = _succeed, function(*args)
  except BaseException as e:  # For whoever awaits the future.
    finish, outcome = _fail, e
  loop.call_soon_threadsafe(finish, future, outcome)


def _succeed(future, result):
  if not future.cancelled():
    future.set_result(result)


def _fail(future, error):
  if not future.cancelled():
    future.set_exception(error)
