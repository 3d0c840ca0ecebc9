"""Runs threads whose errors are raised in the thread that checks them."""

import contextlib
import threading


class Ended(Exception):
  """Raised in a thread that is to end; it is no error."""


def show_names(names):
  """Gives all threads their names in the operating system too.

  So `top -H`, debuggers and traces show them. Linux keeps 15 characters.

  Args:
    names: A dict of thread to the name to show instead of its own.
  """
  for thread in threading.enumerate():
    name = names.get(thread, thread.name)
    with contextlib.suppress(OSError):  # It may have ended.
      with open(f'/proc/self/task/{thread.native_id}/comm', 'w') as f:
        f.write(name[:15])


class CheckedThreads:
  """Runs a function of each of several objects, such as pools, in a thread."""

  def __init__(self, targets, function, name='actor'):
    """Starts the threads.

    Args:
      targets: A list of objects with `close`, such as `environments.Pool`s.
      function: A function of one of them that runs until it raises.
      name: What the threads are called, before a number.
    """
    self._targets = targets
    self._error = None
    self._closing = False
    self._threads = [
        threading.Thread(target=self._run, args=(function, target),
                         name=f'{name}-{i}', daemon=True)
        for i, target in enumerate(targets)]
    for thread in self._threads:
      thread.start()

  def _run(self, function, target):
    try:
      function(target)
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
    """Closes what the functions were given, and waits for the threads.

    Whatever else they wait for, such as a queue, must be closed before.
    """
    self._closing = True
    for target in self._targets:
      target.close()
    for thread in self._threads:
      thread.join()
