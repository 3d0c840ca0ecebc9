r"""Runs rounds of attack, and ends with a table and 1 if a promise was broken.

    python -m tests.chaos.run --rounds=300 --seed=0
    python -m tests.chaos.run --rounds=20 --only=kill_in_save,second

It attacks the package that PYTHONPATH names, or the one beside it.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

from tests.chaos import arena as arena_lib
from tests.chaos import rounds


def _parse(arguments):
  names = [name for name, _, _ in rounds.KINDS]
  parser = argparse.ArgumentParser(
      prog='python -m tests.chaos.run', description=__doc__.split('\n')[0])
  parser.add_argument('--rounds', type=int, default=300)
  parser.add_argument('--seed', type=int, default=0,
                      help='of the first round; the next have the next')
  parser.add_argument('--dir', help='directory for everything, new or empty')
  parser.add_argument('--only', default=','.join(names),
                      help='kinds of round: ' + ', '.join(names))
  options = parser.parse_args(arguments)
  options.only = options.only.split(',')
  unknown = set(options.only) - set(names)
  if unknown:
    parser.error(f'no such kinds: {", ".join(sorted(unknown))}')
  return options


def run_round(arena, name, kind, seed):
  """Runs one round, prints how it went, and returns its violations, a list."""
  arena.begin_round()
  start = time.monotonic()
  try:
    text = kind(arena, random.Random(seed))
  except Exception as e:  # The other rounds are to go on.
    traceback.print_exc()
    arena.violated('not carried out', repr(e))
    text = ''
  found = arena.found
  print(f'seed {seed:4d} {name:16s} '
        f'{"VIOLATED" if found else "kept":8s} '
        f'{time.monotonic() - start:5.1f} s  {text}', flush=True)
  for rule, detail in found:
    print(f'    {rule}: {detail}', flush=True)
  arena.end_round(f'seed-{seed}-{name}')
  return found


def _choose(names, seed):
  """Returns name and function of a kind of round."""
  kinds = [kind for kind in rounds.KINDS if kind[0] in names]
  return random.Random(f'kind {seed}').choices(
      [kind[:2] for kind in kinds], [weight for _, _, weight in kinds])[0]


def _table(results):
  """Returns lines: each kind, its rounds, and the rules that it broke.

  Args:
    results: A list of triples of kind's name, seed and list of violations.
  """
  kinds = collections.defaultdict(list)
  for name, seed, found in results:
    kinds[name].append((seed, found))
  yield f'{"kind":16s} {"rounds":>6s} {"violated":>8s}'
  for name, runs in sorted(kinds.items()):
    yield (f'{name:16s} {len(runs):6d} '
           f'{sum(bool(found) for _, found in runs):8d}')
    seeds = collections.defaultdict(list)
    for seed, found in runs:
      for rule in dict.fromkeys(rule for rule, _ in found):
        seeds[rule].append(str(seed))
    for rule, those in seeds.items():
      yield f'    {rule}: {len(those)}, seeds {" ".join(those)}'


def main(arguments=None):
  """Returns 1 if a promise was broken, 0 otherwise."""
  options = _parse(arguments)
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  directory = options.dir or tempfile.mkdtemp(prefix='chaos-')
  arena = arena_lib.Arena(directory)
  for able, what in ((arena.can_mount, 'mount small file systems'),
                     (arena.can_make_unwritable, 'make directories read-only')):
    if not able:
      print(f'Cannot {what} here: rounds do without.')
  results = []
  arena.begin_round()
  arena.prepare()
  results.append(('prepare', options.seed, arena.found))
  for violation in arena.found:
    print(f'preparing: {violation.rule}: {violation.detail}')
  arena.end_round('prepare')
  if not arena.is_prepared:
    print(f'No run can be begun; {directory}/violations says more.')
    return 1
  for seed in range(options.seed, options.seed + options.rounds):
    name, kind = _choose(options.only, seed)
    results.append((name, seed, run_round(arena, name, kind, seed)))
  print(*_table(results), sep='\n')
  if any(found for _, _, found in results):
    print(f'What was found is in {directory}/violations.')
    return 1
  if not options.dir:
    shutil.rmtree(directory)
  return 0


if __name__ == '__main__':
  # So that what was taken away is given back, and no run is left behind.
  signal.signal(signal.SIGTERM, lambda *unused_args: sys.exit(143))
  sys.exit(main())
