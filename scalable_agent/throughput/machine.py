"""What a machine has, how busy it is, and how fast something is done."""

import collections
import contextlib
import time

import psutil

from scalable_agent.machine import cores as machine_cores

Measured = collections.namedtuple('Measured', 'rate core_seconds')
Measured.__doc__ = """How fast something is done.

  rate: Frames per second.
  core_seconds: CPU time of a frame, of all processes.
"""


def cpu_seconds(process):
  """Returns the CPU time of a `psutil.Process` so far, in seconds."""
  times = process.cpu_times()
  return times.user + times.system


class Usage:
  """CPU time of this process and those it started, from now on."""

  def __init__(self):
    self._start = time.perf_counter(), self._cpu_seconds()

  def _cpu_seconds(self):
    this, seconds = psutil.Process(), 0.
    for process in [this, *this.children(recursive=True)]:
      with contextlib.suppress(psutil.Error):
        seconds += cpu_seconds(process)
    return seconds

  def cores(self):
    """Cores in use on average."""
    wall, cpu = self._start
    return (self._cpu_seconds() - cpu) / (time.perf_counter() - wall)


def repeat(work, seconds):
  """Does something again and again, for some seconds.

  Args:
    work: A function without arguments that returns the frames it has done.
    seconds: How long, at the least.

  Returns:
    Frames per second.
  """
  frames, start = 0, time.perf_counter()
  while time.perf_counter() - start < seconds:
    frames += work()
  return frames / (time.perf_counter() - start)


def measure(work, seconds):
  """Measures how fast something is done, after a fifth of the time to warm up.

  Args:
    work: As for `repeat`.
    seconds: To measure for.

  Returns:
    A `Measured`.
  """
  work()
  repeat(work, seconds / 5)
  usage = Usage()
  rate = repeat(work, seconds)
  return Measured(rate, usage.cores() / rate)


def describe():
  """Returns what figures depend on, a dict of `cores`, `gpus`, `tensorflow`."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  return dict(
      cores=machine_cores.count(),
      gpus=[tf.config.experimental.get_device_details(gpu).get('device_name')
            for gpu in tf.config.list_physical_devices('GPU')],
      tensorflow=tf.__version__)
