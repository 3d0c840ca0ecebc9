"""Runs the `main` of a binary."""

import sys

from absl import app
from absl import flags

_HELP = ('help', 'helpshort', 'helpfull', 'helpxml')


def run(main):
  """Runs `main` as absl's `app.run` does, with other exit codes.

  A request for help exits with 0. Ctrl-C exits with 130 and without a
  traceback, unless `main` handles it.
  """
  app.define_help_flags()
  for name in _HELP:
    flag = flags.FLAGS[name]
    flag.parse = _succeeding(flag.parse)
  try:
    app.run(main)
  except KeyboardInterrupt:
    sys.exit(130)


def _succeeding(parse):
  """Returns a function that does the same, and exits with 0 where it exits."""

  def parse_and_succeed(argument):
    try:
      parse(argument)
    except SystemExit:
      sys.exit(0)

  return parse_and_succeed
