"""Rounds about test mode, which changes nothing but its scores."""

import os
import time

from tests.chaos import arena as arena_lib
from tests.chaos import damage
from tests.chaos import endings
from tests.chaos import oracle
from tests.chaos import program as program_lib
from tests.chaos import snapshot
from tests.chaos import words


def run(arena, *arguments, act=None, expected=frozenset(arena_lib.STOPPED),
          logdir=None):
  """Runs test mode, and checks that it takes the newest, and changes nothing.

  Args:
    arena: An `arena_lib.Arena`.
    *arguments: Flags.
    act: See `arena_lib.Arena.observe`.
    expected: Exit codes that are right where there is a checkpoint.
    logdir: A log directory in place of the arena's.
  """
  start = arena.observe(
      act or (lambda program: program.wait(program_lib.START_SECONDS)),
      '--mode=test', *arguments, logdir=logdir)
  whole = max(start.before.whole, default=None)
  arena.found += words.check_lines(start.errors)
  arena.found += words.check_exit(
      start.code, arena_lib.REFUSED if whole is None else expected,
      start.errors)
  if whole is not None and f'ckpt-{whole} of' not in start.errors:
    arena.violated('tested', f'another checkpoint than ckpt-{whole}')
  arena.found += oracle.check_unchanged(
      start.before, start.after, {'test_scores.json'})


def signals(arena, rng):
  """Test mode ends as signals end programs, whatever number of them."""
  first = rng.choice(endings.SIGNALS)
  again = rng.choice((first, rng.choice(endings.SIGNALS)))

  def act(program):
    if program.wait_until(lambda: 'episode 1 of' in program.errors()):
      program.send(rng, first)
      time.sleep(rng.uniform(0, .02))
      program.send(rng, again)

  run(arena, '--test_num_episodes=1000000', act=act,
      expected={128 + first, 128 + again})
  return f'{first.name}, {again.name}'


def damaged(arena, rng):
  """Test mode on a damaged log directory, which it leaves as it is."""
  numbers = snapshot.pairs(os.listdir(arena.logdir))
  bad = numbers[-rng.randint(1, 3):] if rng.random() < .6 else []
  texts = []
  if bad:
    texts.append(damage.damage_checkpoints(arena.logdir, bad, rng))
  if not bad or rng.random() < .5:
    texts.append(damage.damage_state(arena.logdir, rng))
  run(arena, '--test_num_episodes=2')
  arena.reset()
  return ', '.join(texts)
