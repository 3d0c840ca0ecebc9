"""Runs the `main` of a binary."""

import sys

from absl import app
from absl import flags

_HELP = ('help', 'helpshort', 'helpfull', 'helpxml')


def run(main):
  """As absl's `app.run`, but who asks for help is answered with exit code 0."""
  app.define_help_flags()
  for name in _HELP:
    flag = flags.FLAGS[name]
    flag.parse = _succeeding(flag.parse)
  app.run(main)


def _succeeding(parse):
  """Returns a function that does the same, and exits with 0 where it exits."""

  def parse_and_succeed(argument):
    try:
      parse(argument)
    except SystemExit:
      sys.exit(0)

  return parse_and_succeed
