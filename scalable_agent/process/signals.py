"""Turns signals that end a process into a `Stop` that it can ask.

    with stop_on_signals('saving and stopping') as stop:
      while not stop.is_set():
        ...

Python's own `KeyboardInterrupt` is lost where it happens to be raised while an
object is deleted or a weak reference dies, of which TensorFlow makes thousands.
"""

import contextlib
import os
import queue as queue_lib
import signal
import threading
import time

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A Ctrl-C this long after the first signal ends the process at once. One that
# comes sooner may be the same, sent to the process and to its group.
_INSISTING_SECONDS = 2.


def name_of(number):
  """Returns what a signal is called, as in 'SIGKILL', by its number."""
  try:
    return signal.Signals(number).name
  except ValueError:
    return f'signal {number}'


class Interrupted(BaseException):
  """A signal says stop, see `Stop.interrupting`."""


class Stop:
  """Whether to stop, for all threads.

  A `threading.Event` will not do: a signal handler that sets it waits for ever
  if it interrupts the main thread where that holds the event's lock.

  Attributes:
    signal: The `signal.Signals` that said stop, None if none did.
    listen: A function that makes sure that signals reach this object, after
      others may have taken their handlers; for the main thread.
  """

  def __init__(self):
    self.signal = None
    self.listen = lambda: None
    self._is_set = False
    self._interrupts = False
    # A signal handler may call its `put`, whatever it interrupts.
    self._wake = queue_lib.SimpleQueue()

  def set(self):
    """Says stop."""
    self._is_set = True
    self._wake.put(None)

  def is_set(self):
    """Returns whether anybody has said stop."""
    return self._is_set

  def wait(self, timeout=None):
    """Waits `timeout` seconds or for ever; returns `is_set()`."""
    if not self._is_set:
      try:
        self._wake.get(
            timeout=None if timeout is None else min(
                timeout, threading.TIMEOUT_MAX))
        self._wake.put(None)  # For others that wait.
      except queue_lib.Empty:
        pass
    return self._is_set

  @contextlib.contextmanager
  def interrupting(self):
    """Has the signal that says stop raise `Interrupted` inside the block.

    For the main thread, where it waits for long and cannot look at `is_set`.
    Python may lose the exception, as the module says; the stop is set even so.

    Raises:
      Interrupted: Also if the stop is set already.
    """
    self._interrupts = True
    try:
      if self._is_set:
        raise Interrupted()
      yield
    finally:
      self._interrupts = False

  def interrupt(self):
    """Raises `Interrupted` where that is wanted; for signal handlers."""
    if self._interrupts:
      self._interrupts = False
      raise Interrupted()

  @property
  def exit_status(self):
    """What a shell says of a process that the signal has ended, an int."""
    return 128 + (self.signal or 0)


@contextlib.contextmanager
def stop_on_signals(intention='stopping'):
  """Yields a `Stop` that the first SIGINT, SIGTERM or SIGHUP sets.

  A signal that comes again changes nothing, but for a SIGINT that comes two
  seconds later: it ends the process at once, with status 130. If one came, all
  are ignored after the block, for the process is about to end. A SIGHUP that is
  ignored from the start, as `nohup` has it, stays so.

  Args:
    intention: What standard error says is being done then.
  """
  stop = Stop()
  previous = _handlers()
  first_time = None

  def on_signal(signum, unused_frame):
    nonlocal first_time
    now = time.monotonic()
    if first_time is None:
      first_time = now
      stop.signal = signal.Signals(signum)
      stop.set()
      _say(f'{stop.signal.name}: {intention}. To end at once instead, press '
           f'Ctrl-C after {_INSISTING_SECONDS:.0f} seconds.')
      stop.interrupt()
    elif (signum == signal.SIGINT and
          now - first_time >= _INSISTING_SECONDS):
      _say('SIGINT again: ending at once, without finishing.')
      os._exit(128 + signal.SIGINT)

  def listen():
    for s in previous:
      signal.signal(s, on_signal)

  stop.listen = listen
  listen()
  try:
    yield stop
  finally:
    for s, handler in previous.items():
      # Python gives up handlers when it ends, but leaves ignored signals so.
      signal.signal(s, handler if first_time is None else signal.SIG_IGN)


@contextlib.contextmanager
def end_on_signals():
  """Has SIGINT, SIGTERM and SIGHUP end the process at once, inside the block.

  A SIGHUP that is ignored from the start, as `nohup` has it, stays so.
  """
  previous = _handlers()
  try:
    for s in previous:
      signal.signal(s, signal.SIG_DFL)
    yield
  finally:
    for s, handler in previous.items():
      signal.signal(s, handler)


def _handlers():
  """Returns a dict of signal to handler, without a SIGHUP that is ignored."""
  handlers = {s: signal.getsignal(s) for s in _SIGNALS}
  return {s: handler for s, handler in handlers.items()
          if s != signal.SIGHUP or handler != signal.SIG_IGN}


def _say(line):
  # Not through Python's buffers, which the signal may have interrupted.
  with contextlib.suppress(OSError):
    os.write(2, f'{line}\n'.encode())
