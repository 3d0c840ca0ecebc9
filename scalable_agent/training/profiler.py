"""Traces some updates of a run with TensorFlow's profiler."""

import os
import shlex
import threading

from absl import logging
import tensorflow as tf

from scalable_agent.process import errors
from scalable_agent.process import threads


def annotate(name):
  """Returns a context manager that shows its block in a trace as `name`."""
  return tf.profiler.experimental.Trace(name)


class Profiler:
  """Writes a trace of what all threads do in a range of updates.

  Its methods are called by the thread that makes the updates.
  """

  def __init__(self, config, steps):
    """Initializes the profiler, and starts it if the range begins here.

    If the run has made the first of these updates, as where the same command
    goes on with it, a warning says that there will be no trace.

    Args:
      config: A `config.Config` with `profile_updates`.
      steps: Updates made so far, an int.
    """
    self._first, self._last = config.updates_to_profile
    self._logdir = config.logdir
    self._is_running = False
    if steps > self._first:
      logging.warning(
          'No trace is written (--profile_updates=%s), since the run goes on '
          'after update %d.', config.profile_updates, steps)
    self.reach(steps)

  def reach(self, steps):
    """Starts or stops the trace if `steps`, updates made so far, are a bound.
    """
    if steps == self._first:
      self._start()
    elif steps == self._last:
      self.close()

  def _start(self):
    threads.show_names({threading.current_thread(): 'learner'})
    try:
      tf.profiler.experimental.start(self._logdir)
      self._is_running = True
    except tf.errors.OpError as e:
      logging.warning('No trace can be written (--profile_updates): %s',
                      errors.first_line(e))

  def close(self):
    """Writes the trace, if there is one that was begun."""
    if not self._is_running:
      return
    self._is_running = False
    try:
      tf.profiler.experimental.stop()
    except tf.errors.OpError as e:
      logging.warning('The trace cannot be written (--profile_updates): %s',
                      errors.first_line(e))
      return
    logging.info('Wrote a trace below %s. To look at it: pip install xprof; '
                 'xprof --logdir=%s', os.path.join(
                     self._logdir, 'plugins', 'profile'),
                 shlex.quote(self._logdir))
