"""Rounds that kill or signal a run, and the end of most other rounds."""

import signal
import time

from tests.chaos import arena as arena_lib
from tests.chaos import program as program_lib
from tests.chaos import snapshot

# What asks a run to save and stop.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_INSIST_SECONDS = 2.


def choose(rng):
  """Returns how to end a run: a function of it, exit codes, and a word."""
  seconds = rng.uniform(0, 1.5)
  signum = rng.choice((signal.SIGKILL, signal.SIGTERM))

  def act(program):
    if program.train_for(seconds):
      program.signal(signum)

  codes = (arena_lib.KILLED if signum == signal.SIGKILL
           else arena_lib.STOPPED)
  return act, codes, signum.name


def kill(arena, rng):
  """SIGKILL at a random time, also while the program starts."""
  early = rng.random() < .3
  seconds = rng.uniform(0, arena.start_seconds if early else 2.)

  def act(program):
    if early:
      time.sleep(seconds)
    elif not program.train_for(seconds):
      return
    program.send(rng, signal.SIGKILL)

  arena.start(act, arena_lib.KILLED)
  return f'{seconds:.2f} s after {"start" if early else "training began"}'


def kill_in_save(arena, rng):
  """SIGKILL within milliseconds of the first trace of a save."""
  seconds, delay = rng.uniform(0, 1.), rng.choice((0, rng.uniform(0, .006)))
  caught = []

  def act(program):
    if program.train_for(seconds):
      caught.append(program.wait_for_temporary(5))
      time.sleep(delay)
      program.signal(signal.SIGKILL)

  start = arena.start(act, arena_lib.KILLED)
  left = snapshot.temporaries(start.after.files)
  return (f'{1000 * delay:.1f} ms after it began, leaving {len(left)} '
          'temporary files' if any(caught) else 'no save seen')


def kill_and_restart(arena, rng):
  """SIGKILL, and a new start while its environments may still be there."""
  seconds = rng.uniform(0, 1.)
  end, codes, word = choose(rng)
  with arena.program() as program:
    if not program.train_for(seconds):
      arena.violated('start', 'did not train')
    program.signal(signal.SIGKILL)
    program.wait()
    arena.start(end, codes)
  return f'then {word}'


def signal_twice(arena, rng):
  """Two signals that ask to stop, milliseconds apart, to group or process."""
  first, second = rng.choice(SIGNALS), rng.choice(SIGNALS)
  seconds, delay = rng.uniform(0, 1.), rng.choice((0, rng.uniform(0, .05)))
  sent = []

  def act(program):
    if program.train_for(seconds):
      sent.append(program.send(rng, first))
      time.sleep(delay)
      sent.append(program.send(rng, second))

  arena.start(act, arena_lib.STOPPED)
  return (f'{first.name}, {1000 * delay:.1f} ms, {second.name}, to '
          f'{" and ".join(sent)}')


def signal_often(arena, rng):
  """SIGTERM or SIGHUP again and again until the process has ended."""
  delay = rng.choice((.001, .01, .1))
  sent = []

  def act(program):
    if program.train_for(rng.uniform(0, 1.)):
      deadline = time.monotonic() + program_lib.STOP_SECONDS
      while not program.ended() and time.monotonic() < deadline:
        program.signal(rng.choice((signal.SIGTERM, signal.SIGHUP)))
        sent.append(1)
        time.sleep(delay)

  arena.start(act, arena_lib.STOPPED)
  return f'{len(sent)} times, every {1000 * delay:g} ms'


def insist(arena, rng):
  """SIGINT after a signal, once two seconds are over or before that.

  The process is held between the two signals: it would have ended otherwise.
  """
  first = rng.choice(SIGNALS)
  late = rng.random() < .6
  delay = _INSIST_SECONDS + .3 if late else rng.uniform(.1, 1.2)
  held = []

  def act(program):
    if program.train_for(rng.uniform(0, 1.)):
      program.signal(first)
      program.wait_until(lambda: first.name in program.errors(), 5, 0)
      program.signal(signal.SIGSTOP)
      held.extend(program.names())
      time.sleep(delay)
      program.signal(signal.SIGINT)
      program.signal(signal.SIGCONT)

  start = arena.observe(act)
  arena.found += arena_lib.check(start, {0, 130} if late else arena_lib.STOPPED)
  newest = max(start.after.whole, default=None)
  if (late and start.code == 0 and
      newest != max(snapshot.pairs(held), default=None)):
    arena.violated('insisting', f'SIGINT {delay:.1f} s after {first.name} '
                   'changed nothing')
  return f'{first.name}, {delay:.1f} s, SIGINT: {start.code}'


def signal_early(arena, rng):
  """A signal while the program starts, which may end it as signals do."""
  signum = rng.choice(SIGNALS)
  seconds = rng.uniform(0, arena.start_seconds)

  def act(program):
    time.sleep(seconds)
    program.signal(signum)

  start = arena.observe(act)
  if ('Level: ' not in start.errors and
      start.errors.endswith('KeyboardInterrupt\n')):
    # Python's own word for it, before the program's first line ran.
    start = start._replace(errors='')
  arena.found += arena_lib.check(start, {0, -signum, 128 + signum})
  return f'{signum.name} after {seconds:.1f} s: {start.code}'
