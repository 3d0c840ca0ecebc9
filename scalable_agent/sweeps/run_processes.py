"""Starts runs of the experiment as processes, and restarts those that crash.

    runs = [ManagedRun('pong', logdir, 200_000_000, prepare, is_done), ...]
    run_all(runs, environs=[{}, {}], stop=stop, on_change=print)

Each process holds a lock on a file in the log directory for as long as it
lives, even if the process that started it is gone. So no two programs start
processes for one run. A process that trains also has the lock of its run, which
holds wherever it was started from.
"""

import contextlib
import ctypes
import functools
import math
import os
import signal
import subprocess
import time

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.files import locks
from scalable_agent.files import log_file
from scalable_agent.process import errors
from scalable_agent.process import signals
from scalable_agent.process import timing
from scalable_agent.training import logdir as logdir_lib

MAX_RETRIES = 2
_LOCK_FILE = 'launcher.lock'
_POLL_SECONDS = .2
_WAIT_SECONDS = .05
# How long to wait before a run is tried again that could not be started, or
# crashed twice without a newer checkpoint: a disk may be full for a while.
_REST_SECONDS = 30.
# How long a run that cannot be started rests in all before it has failed: as
# long as one that trains bears a full disk.
_UNSTARTABLE_SECONDS = 1200.
# How long files may be unreadable before this program gives up.
_UNREADABLE_SECONDS = 300.
# How long a process may take to end once it is told to: more than a save.
_GRACE_SECONDS = 300.
# From Linux's <sys/prctl.h>. `prctl` is looked up here, since little is allowed
# between fork and exec.
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


def _end_with_parent():
  """Has the kernel send SIGTERM to this process when its parent ends."""
  _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _file_error(error):
  """Returns the OSError that an error is, or comes from; else None."""
  return next((e for e in (error, error.__cause__) if isinstance(e, OSError)),
              None)


class ManagedRun:
  """A run, and the processes that it takes, one after the other.

  Attributes:
    name: What to call it.
    logdir: Its log directory.
    total_frames: Environment frames it is to take.
    state: 'waiting', 'running', 'elsewhere' (a process that somebody else
      started works on it), 'done', or 'failed'.
    crashes: Unexpected ends in a row, with no newer checkpoint in between.
    is_told: Whether its process has been told to end, and has not ended yet.
  """

  def __init__(self, name, logdir, total_frames, prepare, is_done,
               is_trained=lambda: False, ends_with_parent=False):
    """Initializes the run; starts nothing.

    Args:
      name: What to call it.
      logdir: The run's directory, made if need be.
      total_frames: Environment frames the run is to take.
      prepare: A function without arguments that returns the command of the
        process that begins or resumes the run, a list of strings. It is called
        before each start, where nobody else works on the run. Where it raises
        ConfigError, the run has failed: another start would find the same,
        unless the reason is an OSError.
      is_done: A function without arguments that says whether nothing is left
        to do. Where it raises ConfigError, the run has failed too.
      is_trained: A function as `is_done`. Whether all frames are trained on. A
        process that then exits with 0 is not started again, even if an
        evaluation failed.
      ends_with_parent: Whether the run saves and ends if this process is
        killed; otherwise it goes on.
    """
    self.name = name
    self.logdir = logdir
    self.total_frames = total_frames
    self.crashes = 0
    self.is_told = False
    self._crash_frames = 0
    self._prepare = prepare
    self._is_done = is_done
    self._is_trained = is_trained
    self._before = _end_with_parent if ends_with_parent else None
    self._process = None
    self._told = None
    self._start_error = ''
    self._rests_until = -math.inf
    self._rested_seconds = 0.
    self._unreadable = None
    self.state = 'done' if is_done() else 'waiting'

  @property
  def output_path(self):
    """The file that takes what the processes print."""
    return os.path.join(self.logdir, 'output.log')

  def last_words(self):
    """The last line that a process printed, or why none could be started."""
    if self._start_error:
      return f'It cannot be started: {self._start_error}'
    lines = log_file.whole_lines_backwards(self.output_path)
    return next(filter(bytes.strip, lines), b'').decode(errors='replace')

  def failure(self):
    """Says of a run that has failed why, without its name."""
    if self._start_error:
      return f'cannot be started: {self._start_error}'
    # It had no last words then.
    number = -self._process.returncode
    killed = (f', the last time killed by {signals.name_of(number)}'
              if number > 0 else '')
    return (f'crashed {self.crashes} times{killed} (see {self.output_path}): '
            f'{self.last_words()}')

  @property
  def is_active(self):
    """Whether a process works on it, whoever started that."""
    return self.state in ('running', 'elsewhere')

  @property
  def rests(self):
    """Whether it is too early to try again."""
    return time.monotonic() < self._rests_until

  def _rest(self):
    self._rests_until = time.monotonic() + _REST_SECONDS

  def start(self, environ=None):
    """Starts a process, unless there is one already, or nothing to do.

    Where files cannot be written, the run rests. It has failed once it has
    rested for many minutes without a start.

    Args:
      environ: Environment variables for the process beside those of this one.
    """
    try:
      self._start_error = ''
      self._start(environ or {})
      self._rested_seconds = 0.
    except (OSError, config_lib.ConfigError) as e:
      error = _file_error(e)
      if not error:
        self._fail(e)
        return
      self._start_error = (
          f'{error.filename or self.logdir}: {errors.first_line(error)}.')
      logging.warning('%s: %s', self.name, self.last_words())
      # Time in which others keep it from another try does not count.
      if self._rested_seconds >= _UNSTARTABLE_SECONDS:
        self.state = 'failed'
      self._rested_seconds += _REST_SECONDS
      self._rest()

  def _fail(self, error):
    self._start_error = str(error)
    self.state = 'failed'

  def _start(self, environ):
    os.makedirs(self.logdir, exist_ok=True)
    lock = self._acquire()
    if lock is None:
      self.state = 'elsewhere'
      return
    try:
      if self._is_done():
        self.state = 'done'
        return
      command = self._prepare()
      self._told = None
      with open(self.output_path, 'ab') as output:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=dict(os.environ, **environ), preexec_fn=self._before,
            # A signal to this process' group reaches the run once, through
            # `terminate`.
            start_new_session=True,
            # From here on the process holds the lock.
            pass_fds=[lock])
    finally:
      os.close(lock)
    self.state = 'running'

  def _is_elsewhere(self):
    return any(locks.is_held(os.path.join(self.logdir, name))
               for name in (logdir_lib.LOCK_FILE, _LOCK_FILE))

  def _acquire(self):
    """Returns the lock's file descriptor, None if somebody else has the run."""
    if self._is_elsewhere():
      return None
    try:
      return locks.acquire(os.path.join(self.logdir, _LOCK_FILE))
    except locks.Held:
      return None

  def poll(self):
    """Takes note if the process has ended.

    Where files cannot be read, as on a network file system for a while, the
    state stays as it is until the next call.

    Raises:
      OSError: They could not be read for minutes.
    """
    try:
      self._poll()
      self._unreadable = None
    except (OSError, config_lib.ConfigError) as e:
      error = _file_error(e)
      if not error:
        self._fail(e)
      elif self._unreadable is None:
        self._unreadable = timing.Waited()
        logging.warning(
            '%s: its files cannot be read now, and are read again: %s.',
            self.name, errors.first_line(error))
      elif self._unreadable.seconds() >= _UNREADABLE_SECONDS:
        raise error

  def _poll(self):
    if self.state == 'elsewhere':
      if not self._is_elsewhere():
        self.state = 'done' if self._is_done() else 'waiting'
    elif self.state == 'running':
      if self._process.poll() is None:
        self._kill_if_late()
        return
      code = self._process.returncode
      if self._is_done() or (
          code == 0 and not self.is_told and self._is_trained()):
        self.state = 'done'
      # A process that has just begun does not listen yet.
      elif self.is_told and code in (0, -signal.SIGTERM):
        self.state = 'waiting'
      else:
        self._count_crash()
      self.is_told = False

  def _count_crash(self):
    try:
      frames = checkpoint_files.newest_frames(self.logdir)
    except OSError:
      frames = self._crash_frames
    self.crashes = 1 if frames > self._crash_frames else self.crashes + 1
    if self.crashes > 1:
      self._rest()
    self._crash_frames = frames
    self.state = 'waiting' if self.crashes <= MAX_RETRIES else 'failed'

  def terminate(self):
    """Has the process, if there is one, save and end; kills it if it does
    not."""
    if self.state == 'running' and not self.is_told:
      self.is_told, self._told = True, timing.Waited()
      self._process.terminate()

  def _kill_if_late(self):
    if self._told and self._told.seconds() >= _GRACE_SECONDS:
      logging.warning(
          '%s has not ended %g s after it was told to, and is killed. What it '
          'has not saved is lost.', self.name, _GRACE_SECONDS)
      self._told = None
      self._process.kill()

  def wait(self):
    """Waits for the process, if there is one."""
    if self.state == 'running':
      while self._process.poll() is None:
        self._kill_if_late()
        time.sleep(_WAIT_SECONDS)
      self.is_told = False
      self.state = 'waiting'
      with contextlib.suppress(OSError, config_lib.ConfigError):
        if self._is_done():
          self.state = 'done'


def run_all(runs, environs, stop, on_change=lambda run: None,
            on_poll=lambda: None, rank=lambda run: 0):
  """Runs processes until each run is done or has failed.

  Of those of equal rank, runs that have crashed are tried again after those
  that wait.

  Args:
    runs: A list of `ManagedRun`s.
    environs: A list of dicts of environment variables, one for each process
      that may run at a time, see `ManagedRun.start`. No two processes that run
      at the same time get the same entry.
    stop: A `signals.Stop` that ends the processes and this function.
    on_change: Called with a run whose state has changed.
    on_poll: Called several times a second.
    rank: A function of a run; of those that wait, the one of the lowest rank is
      started first.
  """
  queue = [run for run in runs if run.state == 'waiting']
  active, places = [], {}

  def changing(run, action):
    before = run.state
    action()
    if run.state != before:
      on_change(run)

  try:
    while (queue or active) and not stop.is_set():
      while sum(run.state == 'running' for run in active) < len(environs):
        ready = [run for run in queue if not run.rests]
        if not ready:
          break
        run = min(ready, key=rank)
        queue.remove(run)
        # First, so that it ends with the others if it cannot be shown.
        active.append(run)
        taken = {places.get(other) for other in active
                 if other.state == 'running'}
        places[run] = min(set(range(len(environs))) - taken)
        changing(run, functools.partial(run.start, environs[places[run]]))
      on_poll()
      stop.wait(_POLL_SECONDS)
      for run in active:
        changing(run, run.poll)
      queue.extend(run for run in active if run.state == 'waiting')
      active = [run for run in active if run.is_active]
  finally:
    for run in active:
      run.terminate()
    for run in active:
      changing(run, run.wait)
