"""Threads whose errors are raised where they are looked for."""

import threading


class Ended(Exception):
  """What a thread raises to end because it is to: no error."""


class ActorThreads:
  """Runs a function per pool, or what else can be closed, each in a thread."""

  def __init__(self, pools, function):
    """Starts the threads.

    Args:
      pools: A list of `environments.Pool`s, or others that `close` closes.
      function: A function of one of them that runs until it raises.
    """
    self._pools = pools
    self._error = None
    self._closing = False
    self._threads = [
        threading.Thread(target=self._run, args=(function, pool),
                         name=f'actor-{i}', daemon=True)
        for i, pool in enumerate(pools)]
    for thread in self._threads:
      thread.start()

  def _run(self, function, pool):
    try:
      function(pool)
    except Ended:
      pass
    except BaseException as e:  # Raised in the main thread by `check`.
      if not self._closing:
        self._error = e

  def check(self):
    """Raises what ended a thread, if it was an error."""
    if self._error is not None:
      raise self._error

  def close(self):
    """Closes the pools and waits for the threads.

    What else they wait for, such as a queue, must be closed before.
    """
    self._closing = True
    for pool in self._pools:
      pool.close()
    for thread in self._threads:
      thread.join()
