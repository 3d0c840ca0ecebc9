"""Runs the `main` of a binary."""

import contextlib
import io
import sys

from absl import app
from absl import flags
from absl import logging

_HELP = ('help', 'helpshort', 'helpfull', 'helpxml')


def run(main):
  """Runs `main` as absl's `app.run` does, with other exit codes.

  A request for help exits with 0. Ctrl-C exits with 130 and without a
  traceback, unless `main` handles it. A flag that a flag file overrides is a
  warning. Where standard output has no letter of some kind, it gets the
  letter's number.
  """
  # Tests may put something else there.
  if isinstance(sys.stdout, io.TextIOWrapper):
    # Raised after the change, if what was a file has become a pipe.
    with contextlib.suppress(OSError):
      sys.stdout.reconfigure(errors='backslashreplace')
  app.define_help_flags()
  for name in _HELP:
    flag = flags.FLAGS[name]
    flag.parse = _succeeding(flag.parse)

  def warn_and_run(argv):
    for given, file in _overridden(sys.argv[1:]):
      logging.warning(
          '%s has no effect, since %s comes after it and sets that flag too. '
          'Put it behind the flag file.', given, file)
    return main(argv)

  try:
    app.run(warn_and_run)
  except KeyboardInterrupt:
    sys.exit(130)


def _overridden(arguments):
  """Returns pairs of an argument and of the flag file that overrides it.

  Args:
    arguments: Of the command line, a list, which could be parsed.
  """
  given, overridden = {}, {}
  for i, argument in enumerate(arguments):
    if argument in ('--', '-'):
      break
    name = _name(argument)
    if argument.lstrip('-').partition('=')[0] == 'flagfile':
      file = arguments[i:i + (1 if '=' in argument else 2)]
      for line in flags.FLAGS.read_flags_from_files(file):
        before = given.get(_name(line), line)
        if before != line:
          overridden[_name(line)] = before, ' '.join(file)
    elif name and not isinstance(flags.FLAGS[name], flags.MultiFlag):
      given[name] = argument
      overridden.pop(name, None)
  return list(overridden.values())


def _name(argument):
  """Returns the name of the flag that an argument sets, or None."""
  if not argument.startswith('-'):
    return None
  name = argument.lstrip('-').partition('=')[0]
  if name not in flags.FLAGS and name.startswith('no'):
    name = name[2:]
  return name if name in flags.FLAGS else None


def _succeeding(parse):
  """Returns a function that does the same, and exits with 0 where it exits."""

  def parse_and_succeed(argument):
    try:
      parse(argument)
    except SystemExit:
      sys.exit(0)

  return parse_and_succeed
