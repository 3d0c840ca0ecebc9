"""Rounds that take something from a run: space, files, the directory."""

import os
import resource
import shutil
import signal

from tests.chaos import arena as arena_lib
from tests.chaos import endings
from tests.chaos import faults
from tests.chaos import oracle
from tests.chaos import program as program_lib
from tests.chaos import words


def _fault(arena, rng, make_fault, logdir=None):
  """Takes something from a run for a while, and it ends then or later.

  Args:
    arena: An `arena_lib.Arena`.
    rng: A `random.Random`.
    make_fault: A function of a `program_lib.Program` that returns a context
      manager, which yields None or a list of what must not be.
    logdir: A log directory in place of the arena's.

  Returns:
    A few words on it.
  """
  seconds = rng.uniform(1.5, 2.5)
  # What happens before all is well again, if anything does.
  signum = rng.choice((None, None, None, signal.SIGTERM, signal.SIGKILL))

  def act(program):
    if not (program.train_for(rng.uniform(0, .5)) and
            program.wait_for_save(20)):
      return
    mark, saved = len(program.errors()), program.completed
    with make_fault(program) as made:
      program.wait_until(program.ended, seconds)
      failed = program.completed == saved
      said = program.errors()[mark:]
      ended = program.ended()
      if signum:
        program.signal(signum)
        program.wait_until(program.ended, program_lib.STOP_SECONDS)
    if made:
      arena.violated('made anew', ', '.join(made))
    if not ended and 'frames/s' not in said:
      arena.violated('goes on', 'no progress meanwhile')
    # A turn of the wheel may end in a save and in a line of each log.
    most = seconds / arena_lib.SAVE_SECONDS + (
        2 * seconds / arena_lib.LOG_SECONDS) + 10
    arena.found += words.check_warnings(said, int(failed), int(most))
    if not signum and not program.ended():
      if not program.wait_for_save(15):
        arena.violated('retry', 'no save after all was well again')
      program.signal(signal.SIGTERM)

  start = arena.observe(act, *arena.failing_saves(1000), logdir=logdir)
  expected = {None: arena_lib.STOPPED, signal.SIGKILL: arena_lib.KILLED,
              # It is right to say that the last save failed.
              signal.SIGTERM: arena_lib.STOPPED | arena_lib.REFUSED}[signum]
  arena.found += arena_lib.check(start, expected)
  if start.code == 0:
    arena.found += oracle.check_stopped(start.after)
  return f'for {seconds:.1f} s' + (f', {signum.name} then' if signum else '')


def disk_full(arena, rng):
  """No space left: on a small file system, or by a limit on file sizes."""
  if not arena.can_mount or rng.random() < .5:
    limit = rng.choice((0, 1000, 20_000))
    text = _fault(arena, rng, lambda program: faults.limited(
        program, resource.RLIMIT_FSIZE, limit, False))
    return f'files of {limit} bytes {text}'
  disk = os.path.join(arena.directory, 'disk')
  with faults.small_disk(disk, 8):
    logdir = os.path.join(disk, 'run')
    arena.copy_to(logdir)
    text = _fault(arena, rng, lambda program: faults.full_disk(disk), logdir)
  return f'a full disk {text}'


def descriptors(arena, rng):
  """No file can be opened any more."""
  count, lowers_hard = rng.choice((3, 10, None)), rng.random() < .5

  def starve(program):
    limit = count or len(os.listdir(f'/proc/{program.pid}/fd'))
    return faults.limited(
        program, resource.RLIMIT_NOFILE, limit, lowers_hard)

  text = _fault(arena, rng, starve)
  return f'{count or "as many as are open"}, {lowers_hard=} {text}'


def few_descriptors(arena, rng):
  """A start with a low limit of open files: it trains, or says why not."""
  soft = rng.choice((24, 32, 48, 64, 128))
  hard = rng.choice((soft, 4096))
  end, codes, word = endings.choose(rng)
  start = arena.observe(
      end, limits={resource.RLIMIT_NOFILE: (soft, hard)})
  if start.code == 1 and not words.trained(start.errors):
    arena.found += words.check_exit(1, arena_lib.REFUSED, start.errors)
    arena.found += words.check_lines(start.errors)
    word = 'refused'
  else:
    arena.found += arena_lib.check(start, codes)
  return f'{soft} of {hard}: {word}'


def unwritable(arena, rng):
  """Nothing can be made in the log directory for a while."""
  if not arena.can_make_unwritable:
    return 'left out: not possible here'
  return _fault(arena, rng, lambda program: faults.unwritable(program.logdir))


def away(arena, rng):
  """The log directory is renamed, and renamed back."""
  return _fault(arena, rng, lambda program: faults.away(program.logdir))


def failed_saves(arena, rng):
  """Saves fail until the run gives up, which it says in one line."""
  kind = rng.choice(('size', 'unwritable', 'deleted'))
  if kind == 'unwritable' and not arena.can_make_unwritable:
    kind = 'size'

  def act(program):
    if not (program.train_for(0) and program.wait_for_save(20)):
      return
    if kind == 'deleted':
      # At once, where removing its files one by one would race with a save.
      os.rename(program.logdir, program.logdir + '.gone')
      shutil.rmtree(program.logdir + '.gone')
      program.wait_until(program.ended, 20)
      return
    fault = (faults.unwritable(program.logdir) if kind == 'unwritable' else
             faults.limited(program, resource.RLIMIT_FSIZE, 0, False))
    with fault:
      program.wait_until(program.ended, 20)

  start = arena.observe(act, *arena.failing_saves(3))
  arena.found += words.check_lines(start.errors)
  arena.found += words.check_exit(start.code, arena_lib.REFUSED, start.errors)
  if kind != 'deleted':
    arena.found += arena_lib.check_logs(start.after, False)
    arena.found += oracle.check_saved(start.after, start.completed)
  elif start.after.files:
    arena.violated('made anew', ', '.join(sorted(start.after.files)))
  arena.reset()
  return kind
