"""What a run does when it is asked to stop."""

import contextlib
import signal
import threading

from absl import logging


@contextlib.contextmanager
def stop_on_signals():
  """Yields an event that the first SIGINT or SIGTERM sets.

  A second signal does what it would have done without this.
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
    logging.info('%s: saving and stopping.', signal.Signals(signum).name)

  for s in signals:
    signal.signal(s, on_signal)
  try:
    yield stop
  finally:
    restore()
