"""Rounds about whole log directories: new, finished, in use, oddly named."""

import os
import shutil
import signal
import socket

from tests.chaos import arena as arena_lib
from tests.chaos import endings
from tests.chaos import oracle
from tests.chaos import program as program_lib
from tests.chaos import snapshot
from tests.chaos import tested
from tests.chaos import words

_SECOND_SECONDS = 20.


def fresh(arena, rng):
  """A run from its beginning, killed early or while it trains."""
  shutil.rmtree(arena.logdir)
  text = endings.kill(arena, rng)
  end, codes, word = endings.choose(rng)
  arena.start(end, codes)
  arena.reset()
  return f'{text}, then {word}'


def finish(arena, rng):
  """A run to its end, and the same command again."""
  done = max(snapshot.take(arena.logdir).whole, default=0)
  total = done + rng.randint(1, 1000)
  wait = lambda program: program.wait(program_lib.START_SECONDS)
  arena.start(wait, arena_lib.STOPPED, total=total)
  again = arena.start(wait, arena_lib.STOPPED, total=total)
  arena.found += oracle.check_nothing_to_do(again.before, again.after)
  return f'{total - done} frames'


def second(arena, rng):
  """A second run on the log directory of one that trains."""
  del rng
  host = socket.gethostname()

  def act(program):
    if not program.train_for(0):
      return
    # Another name of the same directory.
    other = os.path.join(arena.logdir, '..', os.path.basename(arena.logdir))
    with arena.program(logdir=other) as late:
      code = late.wait(program_lib.START_SECONDS / 4)
      arena.found += words.check_second(
          code, late.seconds, late.errors(), program.pid, host, _SECOND_SECONDS)
    before = program.frames()
    if not program.wait_until(lambda: program.frames() > before, 10):
      arena.violated('second run', 'the first does not go on')
    program.signal(signal.SIGTERM)

  arena.start(act, arena_lib.STOPPED)
  return ''


def odd_name(arena, rng):
  """A log directory whose name has characters that are patterns elsewhere."""
  name = rng.choice(('run[1]', 'what?', 'a*b', '[!x]', 'back\\slash', 'a b'))
  logdir = os.path.join(arena.directory, 'odd', name)
  os.makedirs(os.path.dirname(logdir))
  end, codes, word = endings.choose(rng)
  start = arena.observe(end, logdir=logdir)
  if start.code == 1:
    arena.found += words.check_exit(
        start.code, arena_lib.REFUSED, start.errors)
    arena.found += words.check_lines(start.errors)
    arena.found += oracle.check_unchanged(start.before, start.after)
    word = 'refused'
  else:
    arena.found += arena_lib.check(start, codes)
    arena.start(end, codes, logdir=logdir)
    tested.run(arena, '--test_num_episodes=2', logdir=logdir)
  shutil.rmtree(os.path.dirname(logdir))
  return f'{name}: {word}'
