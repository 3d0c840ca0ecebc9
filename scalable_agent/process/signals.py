"""Turns Ctrl-C and SIGTERM into an event, so that a process can stop itself.

Python's own `KeyboardInterrupt` is lost where it happens to be raised while an
object is deleted or a weak reference dies, of which TensorFlow makes thousands.
"""

import contextlib
import signal
import threading

from absl import logging


@contextlib.contextmanager
def stop_on_signals(intention='stopping'):
  """Yields an event that the first SIGINT or SIGTERM sets.

  A second signal does what it would have done without this.

  Args:
    intention: What the log says is being done then.
  """
  stop = threading.Event()
  signals = (signal.SIGINT, signal.SIGTERM)
  previous = {s: signal.getsignal(s) for s in signals}

  def restore():
    for s, handler in previous.items():
      signal.signal(s, handler)

  def on_signal(signum, unused_frame):
    stop.set()
    restore()
    logging.info('%s: %s.', signal.Signals(signum).name, intention)

  for s in signals:
    signal.signal(s, on_signal)
  try:
    yield stop
  finally:
    restore()
