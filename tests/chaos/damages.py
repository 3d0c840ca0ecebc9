"""Rounds that begin with damaged files."""

import os

from tests.chaos import arena as arena_lib
from tests.chaos import damage
from tests.chaos import endings
from tests.chaos import oracle
from tests.chaos import snapshot
from tests.chaos import words


def state_file(arena, rng):
  """The file `checkpoint` is damaged."""
  return _damaged(arena, rng, damage.damage_state(arena.logdir, rng))


def newest(arena, rng):
  """Some of the newest checkpoints are damaged, and not all."""
  numbers = snapshot.pairs(os.listdir(arena.logdir))
  bad = numbers[-rng.randint(1, max(len(numbers) - 1, 1)):]
  text = damage.damage_checkpoints(arena.logdir, bad, rng)
  if rng.random() < .3:
    text += ', ' + damage.damage_state(arena.logdir, rng)
  flags = ()
  if rng.random() < .5:
    # The first save is then of more frames than the damaged ones.
    flags = ('--save_checkpoint_secs=1000',)
    text += ', saved at the end'
  return _damaged(arena, rng, text, flags=flags)


def all_damaged(arena, rng):
  """Every checkpoint is damaged, or there is none, and logs are there."""
  if rng.random() < .3:
    text = damage.remove_checkpoints(arena.logdir)
  else:
    text = damage.damage_checkpoints(
        arena.logdir, snapshot.pairs(os.listdir(arena.logdir)), rng)
  text = _damaged(arena, rng, text)
  arena.reset()
  return text


def cut_logs(arena, rng):
  """The ends of the logs are cut off."""
  names = rng.choice((
      [snapshot.METRICS], [snapshot.EPISODES],
      [snapshot.METRICS, snapshot.EPISODES]))
  text = ', '.join(damage.cut_log(arena.logdir, name, rng) for name in names)
  text = _damaged(arena, rng, text, names)
  arena.reset()
  return text


def leftovers(arena, rng):
  """What killed saves leave is there."""
  return _damaged(arena, rng, damage.leave_temporaries(arena.logdir, rng))


def no_file(arena, rng):
  """A directory is where a file should be: refused, or no matter."""
  name = rng.choice(('checkpoint', 'config.json', snapshot.METRICS,
                     snapshot.EPISODES))
  text = damage.put_directory(arena.logdir, name)
  end, codes, word = endings.choose(rng)
  start = arena.observe(end)
  if start.code == 1 and not words.trained(start.errors):
    word = 'refused'
    arena.found += words.check_lines(start.errors)
    arena.found += words.check_exit(1, arena_lib.REFUSED, start.errors)
    arena.found += oracle.check_unchanged(start.before, start.after)
  else:
    arena.found += arena_lib.check(
        start, codes, (snapshot.METRICS, snapshot.EPISODES))
  arena.reset()
  return f'{text}: {word}'


def _damaged(arena, rng, text, logs=(), flags=()):
  end, codes, word = endings.choose(rng)
  arena.start(end, codes, *flags, damaged=logs)
  return f'{text}; then {word}'
