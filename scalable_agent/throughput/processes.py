"""Starts the processes of a measurement, which end with this one.

They ignore a terminal's Ctrl-C; the process that started them ends them.
"""

import concurrent.futures
import contextlib
import multiprocessing
from multiprocessing import connection as connection_lib
from multiprocessing import resource_tracker
import os
import signal
import threading

from scalable_agent.process import errors

_CONTEXT = multiprocessing.get_context('spawn')
# How long processes wait for each other.
_MEETING_SECONDS = 300.
_LOST = ('A process that measures has died. If it was killed, the machine or '
         'the container may have run out of memory.')

_meeting = None  # The barrier of an executor, in its processes.


@contextlib.contextmanager
def executor(count, prepare=None):
  """Yields an executor of processes that have all begun.

  An error within the `with` block ends them, whatever they do.

  Args:
    count: How many processes.
    prepare: None, or a function that each calls before it loads anything else.

  Raises:
    Failure: One of them has died.
  """
  barrier = _CONTEXT.Barrier(count)
  with concurrent.futures.ProcessPoolExecutor(
      count, _CONTEXT, _begin, (barrier, prepare)) as processes:
    with _ended_on_errors():
      with _keeping_interrupts():
        begun = [processes.submit(meet) for _ in range(count)]
      try:
        for future in begun:
          future.result()
        yield processes
      except concurrent.futures.BrokenExecutor as e:
        raise errors.Failure(_LOST) from e


def _begin(barrier, prepare):
  global _meeting
  _meeting = barrier
  threading.Thread(target=_end_with_parent, daemon=True).start()
  if prepare:
    prepare()


def _end_with_parent():
  # An executor's process would wait for ever for its next call.
  multiprocessing.parent_process().join()
  os._exit(1)


def meet():
  """Waits until all processes of the executor call this."""
  _meeting.wait(_MEETING_SECONDS)


@contextlib.contextmanager
def serving(function, *args):
  """Runs a function in a process of its own, until the `with` block ends.

  If that process ends before the block does, the processes of executors are
  ended too: they might wait for it for ever.

  Args:
    function: A function that sends something over a connection, and returns
      when that has ended.
    *args: Its arguments before the connection.

  Yields:
    The process id, and what the function has sent.

  Raises:
    Failure: It has ended before it sent anything.
  """
  connection, theirs = _CONTEXT.Pipe()
  process = _CONTEXT.Process(target=_serve, args=(function, theirs))
  with _keeping_interrupts():
    process.start()
  theirs.close()
  try:
    with _ended_on_errors(), _ending_others(process):
      try:
        connection.send(args)
        answer = connection.recv()
      except (EOFError, OSError) as e:
        raise errors.Failure(_LOST) from e
      yield process.pid, answer
  finally:
    connection.close()
    process.join()


@contextlib.contextmanager
def _ending_others(process):
  """Ends all processes if this one ends before the block."""
  is_over = threading.Event()

  def watch():
    connection_lib.wait([process.sentinel])
    if not is_over.is_set():
      _end_all()

  threading.Thread(target=watch, daemon=True).start()
  try:
    yield
  finally:
    is_over.set()


def _serve(function, connection):
  function(*connection.recv(), connection)


@contextlib.contextmanager
def _keeping_interrupts():
  """Processes that are started in the block never get Ctrl-C.

  This process gets it at the end of the block.
  """
  resource_tracker.ensure_running()  # Its start would let Ctrl-C through.
  previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, previous)


@contextlib.contextmanager
def _ended_on_errors():
  """Ends all processes if the block raises, as it does on Ctrl-C."""
  try:
    yield
  except BaseException:
    # Otherwise an executor waits until they are done.
    _end_all()
    raise


def _end_all():
  for process in multiprocessing.active_children():
    process.terminate()
