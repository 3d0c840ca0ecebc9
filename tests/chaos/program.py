"""Starts, watches and signals the experiment, as a shell or a batch system."""

import glob
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

from tests.chaos import logs
from tests.chaos import snapshot
from tests.chaos import words

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_POLL_SECONDS = .003
_TAIL_BYTES = 1 << 14
# What a process may take that has to load TensorFlow on a busy machine.
START_SECONDS = 120.
# From a signal to the end of the process.
STOP_SECONDS = 15.


def environ():
  """The environment of a process, which tells where it hangs on SIGABRT."""
  # TensorFlow may find that there is no GPU after the line that is to be last.
  return {'PYTHONPATH': _ROOT, **os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3',
          'PYTHONFAULTHANDLER': '1', 'CUDA_VISIBLE_DEVICES': '-1'}


def start_process(arguments, stderr):
  """Starts an interpreter that runs the experiment in a session of its own.

  Args:
    arguments: A list of the experiment's flags.
    stderr: A descriptor that it writes to.

  Returns:
    A `subprocess.Popen`.
  """
  return subprocess.Popen(
      [sys.executable, '-m', 'scalable_agent.experiment', *arguments],
      cwd='/', stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
      stderr=stderr, env=environ(), start_new_session=True)


class Program:
  """`python -m scalable_agent.experiment` in a session of its own.

  Attributes:
    logdir: Its log directory, a string.
    pid: Of the process, which is that of its group and session too.
    first: Frames of the first checkpoint that was seen complete, or None.
    completed: Frames of the newest one.
  """

  def __init__(self, logdir, *arguments, limits=None, ignored=()):
    """Starts the process.

    Args:
      logdir: Its log directory.
      *arguments: Its flags.
      limits: A dict of `resource.RLIMIT_*` to pairs of soft and hard limit.
      ignored: Numbers of checkpoints that are no saves, since they are damaged.
    """
    self.logdir = str(logdir)
    self.first = self.completed = None
    self._ignored = set(ignored)
    self._left_before = snapshot.temporaries(self.names())
    # `nohup` and a shell's background have them ignored, which is inherited.
    previous = {signum: signal.signal(signum, signal.SIG_DFL)
                for signum in (signal.SIGINT, signal.SIGHUP)}
    # Not a file, for which a limit of file sizes would hold too.
    self._stderr, stderr = os.pipe()
    self._process = start_process(
        [f'--logdir={self.logdir}', *arguments], stderr)
    os.close(stderr)
    for signum, handler in previous.items():
      signal.signal(signum, handler)
    self.pid = self._process.pid
    self._started = time.monotonic()
    self.limit(limits or {})
    self._over = threading.Event()
    self._errors = bytearray()
    self._threads = [threading.Thread(target=target, daemon=True)
                     for target in (self._watch, self._read)]
    for thread in self._threads:
      thread.start()

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    for pid in self.processes():
      _kill(pid, signal.SIGKILL)
    self._process.wait()
    self._over.set()
    for thread in self._threads:
      thread.join()
    os.close(self._stderr)

  def _read(self):
    while True:
      some = os.read(self._stderr, 1 << 16)
      if not some:
        return
      self._errors += some

  def _watch(self):
    while not self._over.wait(_POLL_SECONDS):
      names = self.names()
      if not self._temporaries(names):
        # TensorFlow writes the second file before it removes its directory.
        seen = set(snapshot.pairs(names)) - self._ignored
        if seen and self.first is None:
          self.first = max(seen)
        self.completed = max(
            seen | {self.completed} - {None}, default=None)

  def _temporaries(self, names):
    return snapshot.temporaries(names) - self._left_before

  def names(self):
    """What is in the log directory, a list of names."""
    try:
      return os.listdir(self.logdir)
    except OSError:
      return []

  def errors(self):
    """What it has written to stderr."""
    return self._errors.decode(errors='replace')

  @property
  def seconds(self):
    """Since its start."""
    return time.monotonic() - self._started

  def frames(self):
    """Frames of the last line of metrics.jsonl, 0 if there is none."""
    try:
      with open(os.path.join(self.logdir, snapshot.METRICS), 'rb') as f:
        f.seek(0, os.SEEK_END)
        f.seek(max(f.tell() - _TAIL_BYTES, 0))
        tail = f.read()
    except OSError:
      return 0
    return logs.last_frames(snapshot.Snapshot({snapshot.METRICS: tail}))

  def limit(self, limits):
    """Sets resource limits of the process, as `Program` takes them."""
    for name, values in limits.items():
      try:
        resource.prlimit(self.pid, name, values)
      except (ProcessLookupError, PermissionError):
        if not self.ended():
          raise

  def processes(self):
    """Ids of the process and what it has started, without zombies."""
    found = []
    for path in glob.glob('/proc/[0-9]*/stat'):
      try:
        with open(path) as f:
          state, _, _, session = f.read().rpartition(')')[2].split()[:4]
      except (FileNotFoundError, ProcessLookupError):
        continue
      if int(session) == self.pid and state not in 'ZX':
        found.append(int(path.split('/')[2]))
    return sorted(found)

  def ended(self):
    """Whether the process has ended."""
    return self._process.poll() is not None

  def wait_until(self, condition, seconds=START_SECONDS, poll_seconds=.02):
    """Waits until `condition()` is true.

    Args:
      condition: A function without arguments.
      seconds: How long to wait.
      poll_seconds: Between two calls of it.

    Returns:
      Whether it was true in time and before the process ended.
    """
    deadline = time.monotonic() + seconds
    while not condition():
      if self.ended() or time.monotonic() > deadline:
        return False
      time.sleep(poll_seconds)
    return True

  def wait_for_training(self):
    """Waits until it has logged something of this start; returns if so."""
    before = self.frames()
    return self.wait_until(lambda: (
        words.trained(self.errors()) and self.frames() > before))

  def train_for(self, seconds):
    """Waits until it trains, and so many seconds more. Returns if it does."""
    return (self.wait_for_training() and
            not self.wait_until(self.ended, seconds) and not self.ended())

  def wait_for_temporary(self, seconds):
    """Waits until a save or write is under way; returns whether one was."""
    return self.wait_until(
        lambda: self._temporaries(self.names()), seconds, 0)

  def wait_for_save(self, seconds):
    """Waits until a newer save is complete; returns whether one was."""
    before = self.completed or 0
    return self.wait_until(lambda: (self.completed or 0) > before, seconds)

  def signal(self, signum):
    """Sends a signal to the process alone."""
    _kill(self.pid, signum)

  def signal_group(self, signum):
    """Sends a signal to the process and all that it has started."""
    try:
      os.killpg(self.pid, signum)
    except ProcessLookupError:
      pass

  def send(self, rng, signum):
    """Sends a signal to process, group or both. Returns to which, a word."""
    to = rng.choice(('process', 'group', 'both'))
    if to != 'group':
      self.signal(signum)
    if to != 'process':
      self.signal_group(signum)
    return to

  def wait(self, seconds=STOP_SECONDS):
    """Returns the exit code; None if it hangs, whose stacks `errors` has."""
    try:
      return self._process.wait(seconds)
    except subprocess.TimeoutExpired:
      self.signal(signal.SIGCONT)
      self.signal(signal.SIGABRT)
      time.sleep(1)
      self.signal_group(signal.SIGKILL)
      self._process.wait()
      return None

  def leaves_nothing_running(self, seconds=10.):
    """Waits until all that it has started has ended; returns whether so."""
    deadline = time.monotonic() + seconds
    while self.processes():
      if time.monotonic() > deadline:
        return False
      time.sleep(.05)
    return True


def _kill(pid, signum):
  try:
    os.kill(pid, signum)
  except ProcessLookupError:
    pass
