"""The log directory that is attacked, and what is checked after each start."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from typing import NamedTuple, Optional

from tests.chaos import faults
from tests.chaos import logs
from tests.chaos import oracle
from tests.chaos import program as program_lib
from tests.chaos import snapshot
from tests.chaos import words

SAVE_SECONDS = .4
LOG_SECONDS = .15
_KEEP = 3
# A level that takes no processor time, and a network of a few kilobytes.
FLAGS = (
    '--level_name=synthetic:step_ms=2,size=4,episode_steps=20',
    '--num_actors=4', '--environment_threads=1', '--batch_size=2',
    '--unroll_length=5', '--intra_op_threads=1',
    f'--save_checkpoint_secs={SAVE_SECONDS}', f'--keep_checkpoints={_KEEP}',
    f'--log_interval_secs={LOG_SECONDS}',
    # A run that resumes would otherwise go on with those of a round before.
    '--task=-1', '--replay_host=', '--replay_proportion=0')
FOREVER = 1_000_000_000
# Rounds on one log directory, whose logs are read again after each.
_MAX_ROUNDS = 40
KILLED, STOPPED, REFUSED = {-signal.SIGKILL}, {0}, {1}


class Start(NamedTuple):
  """A start of the experiment that has ended.

  Attributes:
    before: A `snapshot.Snapshot` of its log directory before.
    after: One of afterwards.
    code: Its exit code, or None if it was killed because it did not end.
    errors: What it wrote to stderr.
    first: Frames of the first checkpoint that was seen, or None.
    completed: Frames of the newest one that was seen, or None.
  """
  before: snapshot.Snapshot
  after: snapshot.Snapshot
  code: Optional[int]
  errors: str
  first: Optional[int]
  completed: Optional[int]


class Arena:
  """Where rounds take place.

  Attributes:
    directory: A directory for everything.
    logdir: The log directory that most rounds are about.
    found: The violations of this round, a list of `words.Violation`.
    errors: What the starts of this round wrote to stderr, a list.
    can_mount: Whether small file systems can be mounted.
    can_make_unwritable: Whether a directory can be closed to this user.
    start_seconds: How long the first start took until it trained.
  """

  def __init__(self, directory):
    """Initializes the arena in an empty directory. `prepare` comes next."""
    self.directory = os.path.abspath(directory)
    os.makedirs(self.directory, exist_ok=True)
    self.logdir = os.path.join(self.directory, 'run')
    self.found = []
    self.errors = []
    self.can_mount = faults.can_mount(self.directory)
    self.can_make_unwritable = faults.can_make_unwritable(self.directory)
    self.start_seconds = 5.
    self._template = os.path.join(self.directory, 'template')
    self._rounds_left = _MAX_ROUNDS

  def failing_saves(self, count):
    """The flags that let so many saves in a row fail."""
    return [f'--max_failed_saves={count}'] if _can_fail_saves() else []

  def prepare(self):
    """Trains until there is a log directory worth attacking."""

    def act(program):
      program.wait_for_training()
      self.start_seconds = program.seconds
      program.wait_until(lambda: len(snapshot.pairs(program.names())) >= 3, 20)
      program.wait_for_save(20)
      program.signal(signal.SIGTERM)

    self.start(act, STOPPED)
    if snapshot.take(self.logdir).whole:
      shutil.copytree(self.logdir, self._template)

  @property
  def is_prepared(self):
    """Whether `prepare` made a log directory."""
    return os.path.isdir(self._template)

  def reset(self):
    """Takes a fresh copy of the log directory that `prepare` made."""
    shutil.rmtree(self.logdir, ignore_errors=True)
    if self.is_prepared:
      shutil.copytree(self._template, self.logdir)
    self._rounds_left = _MAX_ROUNDS

  def copy_to(self, path):
    """Copies what `prepare` made to a place that does not exist yet."""
    shutil.copytree(self._template, path)

  def begin_round(self):
    """Forgets the round before."""
    self.found, self.errors = [], []
    self._rounds_left -= 1
    if self._rounds_left < 0:
      self.reset()

  def end_round(self, name):
    """Keeps the evidence if there were violations, and starts over then."""
    if not self.found:
      return
    kept = os.path.join(self.directory, 'violations', name)
    shutil.rmtree(kept, ignore_errors=True)
    os.makedirs(kept)
    if os.path.isdir(self.logdir):
      shutil.copytree(self.logdir, os.path.join(kept, 'logdir'))
    for i, errors in enumerate(self.errors):
      with open(os.path.join(kept, f'stderr-{i}'), 'w') as f:
        f.write(errors)
    with open(os.path.join(kept, 'violations'), 'w') as f:
      f.writelines(f'{rule}: {detail}\n' for rule, detail in self.found)
    self.reset()

  def violated(self, rule, detail):
    """Notes a violation."""
    self.found.append(words.Violation(rule, detail))

  @contextlib.contextmanager
  def program(self, *arguments, logdir=None, limits=None, whole=(),
              total=FOREVER):
    """Yields a `program_lib.Program` on the log directory, or another."""
    logdir = logdir or self.logdir
    damaged = set(snapshot.pairs(_names(logdir))) - set(whole)
    with program_lib.Program(
        logdir, *FLAGS, f'--total_environment_frames={total}', *arguments,
        limits=limits, ignored=damaged) as program:
      try:
        yield program
      finally:
        self.errors.append(program.errors())

  def observe(self, act, *arguments, logdir=None, **options):
    """Starts the experiment, lets `act` treat it, and waits for its end.

    Args:
      act: A function of a `program_lib.Program`. The program has to end after
        it by itself.
      *arguments: Further flags.
      logdir: A log directory in place of the arena's.
      **options: See `program`.

    Returns:
      A `Start`.
    """
    logdir = logdir or self.logdir
    before = snapshot.take(logdir)
    with self.program(*arguments, logdir=logdir, whole=before.whole,
                      **options) as program:
      act(program)
      code = program.wait()
      errors = program.errors()
      if not program.leaves_nothing_running():
        self.violated('processes', 'some that it had started go on')
    return Start(before, snapshot.take(logdir), code, errors,
                 program.first, program.completed)

  def start(self, act, expected, *arguments, damaged=(), **options):
    """As `observe`, for training, and checks all that can be of every start.

    Args:
      act: See `observe`.
      expected: Exit codes that are right, a set, where the log directory can be
        used at all.
      *arguments: See `observe`.
      damaged: Names of the logs that were damaged before.
      **options: See `observe`.
    """
    start = self.observe(act, *arguments, **options)
    self.found += check(start, expected, damaged)
    return start


def check(start, expected, damaged=()):
  """Returns the violations of a training run, a list.

  Args:
    start: A `Start`.
    expected: Exit codes that are right, a set, where the log directory can be
      used at all.
    damaged: Names of the logs that were damaged before.
  """
  before, after, code, errors, first, completed = start
  if oracle.must_refuse(before):
    return (words.check_lines(errors) +
            words.check_exit(code, REFUSED, errors) +
            oracle.check_unchanged(before, after))
  found = words.check_lines(errors) + words.check_exit(code, expected, errors)
  found += oracle.check_resumed(before, errors)
  ended_by_itself = code in (0, 1)
  if words.trained(errors):
    resumed = words.resumed_frames(errors) or 0
    if max(after.whole, default=0) > resumed:
      found += oracle.check_set_aside(before, after, errors)
      # One that is killed in a save has not removed the oldest yet.
      found += oracle.check_count(after, _KEEP + (not ended_by_itself))
    found += oracle.check_kept(before, after, resumed, damaged)
    found += oracle.check_leftovers(
        None if ended_by_itself else before, after)
    if not before.whole and first != 0 and logs.has_any(after):
      found.append(words.Violation(
          'first save', f'the first checkpoint is of frame {first}'))
    if code == 0 and before.whole != after.whole:
      found += oracle.check_stopped(after)
  known = [number for number in (*before.whole, completed)
           if number is not None]
  return (found + oracle.check_saved(after, max(known, default=None)) +
          check_logs(after, ended_by_itself and words.trained(errors),
                     damaged))


def check_logs(after, ended_by_itself, damaged=()):
  """Returns what is wrong with the logs that a start left, a list.

  Args:
    after: A `snapshot.Snapshot`.
    ended_by_itself: Whether it trained, and then ended by itself.
    damaged: Names of the logs that were damaged before.
  """
  found = oracle.check_episodes(after, ended_by_itself)
  found += oracle.check_saved_first(after)
  if snapshot.METRICS not in damaged:
    found += oracle.check_metrics(after, ended_by_itself)
    found += oracle.check_line_of_checkpoint(after)
    found += oracle.check_covered(after)
  return found


def _names(logdir):
  try:
    return os.listdir(logdir)
  except FileNotFoundError:
    return []


@functools.lru_cache
def _can_fail_saves():
  """Whether the experiment that is attacked has a limit of failed saves."""
  return '--max_failed_saves' in subprocess.run(
      [sys.executable, '-m', 'scalable_agent.experiment', '--helpfull'],
      env=program_lib.environ(), stdin=subprocess.DEVNULL, capture_output=True,
      cwd='/', text=True, timeout=program_lib.START_SECONDS,
      check=False).stdout
