"""Starts runs of the experiment as processes, and restarts those that crash.

    runs = [ManagedRun('pong', logdir, command, is_done), ...]
    run_all(runs, parallel=2, stop=stop, on_change=print)

Each process holds a lock on a file in the log directory for as long as it
lives, even if the process that started it is gone. So no two programs start
processes for one run. A process that trains also has the lock of its run, which
holds wherever it was started from.
"""

import collections
import json
import math
import os
import subprocess
import time

from scalable_agent.process import locks
from scalable_agent.process import log_lines
from scalable_agent.training import checkpoint_files
from scalable_agent.training import logdir as logdir_lib

MAX_RETRIES = 2
_LOCK_FILE = 'launcher.lock'
RECENT_EPISODES = 100
_POLL_SECONDS = .2
_TAIL_BYTES = 1 << 16

Progress = collections.namedtuple(
    'Progress', 'frames fps mean_return num_episodes')
Progress.__doc__ = """How far a run is, each None if it has not said.

  frames: Environment frames.
  fps: Environment frames per second.
  mean_return: Of the last episodes, at most `RECENT_EPISODES`.
  num_episodes: How many episodes that is.
"""


def is_trained(config):
  """Whether a `config.Config`'s newest checkpoint has all of its frames."""
  return checkpoint_files.newest_frames(config.logdir) >= config.total_environment_frames


def is_tested(config):
  """Whether a `config.Config`'s newest checkpoint has been tested enough."""
  try:
    with open(os.path.join(config.logdir, 'test_scores.json')) as f:
      scores = json.load(f)
    return (scores['frames'] == checkpoint_files.newest_frames(config.logdir) and
            scores['levels'][config.level_name]['num_episodes'] >=
            config.test_num_episodes)
  except (OSError, ValueError, KeyError, TypeError, RecursionError):
    return False


def _last_lines(path):
  try:
    with open(path, 'rb') as f:
      f.seek(0, os.SEEK_END)
      start = max(f.tell() - _TAIL_BYTES, 0)
      f.seek(start)
      lines = f.read().split(b'\n')
  except OSError:
    return []
  # The first may be the end of a line, the last has not ended yet.
  return lines[1 if start else 0:-1]


def read_progress(logdir):
  """Reads the ends of what a run logs, and returns its `Progress`."""
  metrics = None
  for line in reversed(_last_lines(os.path.join(logdir, 'metrics.jsonl'))):
    metrics = log_lines.parse_metrics(line)
    if metrics:
      break
  metrics = metrics or {}
  fps = metrics.get('fps')
  episodes = map(log_lines.parse_episode,
                 _last_lines(os.path.join(logdir, 'episodes.csv')))
  returns = [episode.episode_return for episode in episodes
             if episode and math.isfinite(episode.episode_return)]
  returns = returns[-RECENT_EPISODES:]
  return Progress(
      metrics.get('frames'), fps if isinstance(fps, float) else None,
      sum(returns) / len(returns) if returns else None, len(returns))


class ManagedRun:
  """A run, and the processes that it takes, one after the other.

  Attributes:
    name: What to call it.
    logdir: Its log directory.
    state: 'waiting', 'running', 'elsewhere' (a process that somebody else
      started works on it), 'done', or 'failed'.
    crashes: Processes that ended before the run was done.
  """

  def __init__(self, name, logdir, command, is_done):
    """Initializes the run; starts nothing.

    Args:
      name: What to call it.
      logdir: The run's directory, made if need be.
      command: A list of strings, the process that begins or resumes the run.
      is_done: A function without arguments that says whether nothing is left
        to do.
    """
    self.name = name
    self.logdir = logdir
    self.crashes = 0
    self._command = command
    self._is_done = is_done
    self._process = None
    self.state = 'done' if is_done() else 'waiting'

  @property
  def output_path(self):
    """The file that takes what the processes print."""
    return os.path.join(self.logdir, 'output.log')

  def last_words(self):
    """The last line that a process printed."""
    lines = [line for line in _last_lines(self.output_path) if line.strip()]
    return lines[-1].decode(errors='replace') if lines else ''

  def start(self):
    """Starts a process, unless there is one already, or nothing to do."""
    os.makedirs(self.logdir, exist_ok=True)
    lock = self._acquire()
    if lock is None:
      self.state = 'elsewhere'
      return
    try:
      if self._is_done():
        self.state = 'done'
        return
      with open(self.output_path, 'ab') as output:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
            # A signal to this process' group reaches the run once, through
            # `terminate`.
            start_new_session=True,
            # The lock is the process' from here on.
            pass_fds=[lock])
    finally:
      os.close(lock)
    self.state = 'running'

  def _acquire(self):
    """Returns the lock's file descriptor, None if somebody else has the run."""
    if locks.is_held(os.path.join(self.logdir, logdir_lib.LOCK_FILE)):
      return None
    try:
      return locks.acquire(os.path.join(self.logdir, _LOCK_FILE))
    except locks.Held:
      return None

  def poll(self):
    """Takes note if the process has ended."""
    if self.state == 'elsewhere':
      lock = self._acquire()
      if lock is not None:
        os.close(lock)
        self.state = 'done' if self._is_done() else 'waiting'
    elif self.state == 'running' and self._process.poll() is not None:
      if self._is_done():
        self.state = 'done'
        return
      self.crashes += 1
      self.state = 'waiting' if self.crashes <= MAX_RETRIES else 'failed'

  def terminate(self):
    """Lets the process, if there is one, save and end."""
    if self.state == 'running':
      self._process.terminate()

  def wait(self):
    """Waits for the process, if there is one."""
    if self.state == 'running':
      self._process.wait()
      self.state = 'done' if self._is_done() else 'waiting'


def run_all(runs, parallel, stop, on_change=lambda run: None,
            on_poll=lambda: None):
  """Runs processes until each run is done or has failed.

  Runs that have crashed are tried again after those that wait.

  Args:
    runs: A list of `ManagedRun`s.
    parallel: Processes at a time.
    stop: A `signals.Stop` that ends the processes and this function.
    on_change: Called with a run whose state has changed.
    on_poll: Called several times a second.
  """
  queue = collections.deque(run for run in runs if run.state == 'waiting')
  active = []

  def changing(run, action):
    before = run.state
    action()
    if run.state != before:
      on_change(run)

  while (queue or active) and not stop.is_set():
    while queue and sum(run.state == 'running' for run in active) < parallel:
      run = queue.popleft()
      changing(run, run.start)
      active.append(run)
    on_poll()
    stop.wait(_POLL_SECONDS)
    for run in active:
      changing(run, run.poll)
    queue.extend(run for run in active if run.state == 'waiting')
    active = [run for run in active if run.state in ('running', 'elsewhere')]
  for run in active:
    run.terminate()
  for run in active:
    changing(run, run.wait)
