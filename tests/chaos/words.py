"""What a process says and how it ends, and the promises about that."""

import re
from typing import NamedTuple

_RESUMING = re.compile(r'Resuming from (.*)ckpt-(\d+)$', re.MULTILINE)
_WARNING = re.compile(r'^[WE]\d{4} .*$', re.MULTILINE)


class Violation(NamedTuple):
  """A promise that was broken.

  Attributes:
    rule: Which one, a few words.
    detail: What was found.
  """
  rule: str
  detail: str


def resumed_frames(errors):
  """Frames of the checkpoint that a start says it resumes from, or None."""
  match = _RESUMING.search(errors)
  return int(match.group(2)) if match else None


def trained(errors):
  """Whether a start came as far as training."""
  return 'Agent: ' in errors


def warnings(errors):
  """Returns the lines that warn of something, a list."""
  return _WARNING.findall(errors)


def _last_line(errors):
  # What follows is the stacks of a process that did not end.
  said = errors.partition('Fatal Python error: Aborted')[0]
  return (said.strip().splitlines() or [''])[-1]


def check_lines(errors):
  """No traceback, and one line of error at the most."""
  found = []
  if 'Traceback' in errors:
    found.append(Violation(
        'traceback', f'the last line is: {_last_line(errors)}'))
  told = [line for line in errors.splitlines() if line.startswith('Error: ')]
  if len(told) > 1:
    found.append(Violation('one line', f'{len(told)} lines of error: {told}'))
  return found


def check_exit(code, expected, errors):
  """The exit code is one of those expected; 1 comes with its line.

  Args:
    code: Of the process, negative for a signal, None if it did not end.
    expected: The codes that are right, a set.
    errors: What the process wrote to stderr.
  """
  last = _last_line(errors)
  if code is None:
    return [Violation('hang', f'did not end in time; the last line is: {last}')]
  if code not in expected:
    return [Violation(
        'exit code', f'{code}, expected one of {sorted(expected)}; the last '
        f'line is: {last}')]
  if code == 1 and not last.startswith('Error: '):
    return [Violation('one line', f'ended with 1 and the line: {last}')]
  return []


def check_warnings(errors, at_least, at_most):
  """What went wrong is told in lines of their own, once each.

  Args:
    errors: What the process wrote while it went wrong.
    at_least: How many warnings there have to be.
    at_most: How many there may be.
  """
  count = len(warnings(errors))
  if at_least <= count <= at_most:
    return []
  return [Violation(
      'warnings', f'{count} of them, expected {at_least} to {at_most}')]


def check_second(code, seconds, errors, holder, host, limit_seconds):
  """A second run is told at once who holds the log directory.

  Args:
    code: Its exit code, None if it did not end.
    seconds: How long it took to end.
    errors: What it wrote to stderr.
    holder: Process id of the first run.
    host: Name of the machine of the first run.
    limit_seconds: How long it may take.
  """
  found = check_exit(code, {1}, errors) + check_lines(errors)
  if found:
    return [Violation('second run', f'{rule}: {detail}')
            for rule, detail in found]
  line = _last_line(errors)
  if not re.search(rf'\b{holder}\b', line) or host not in line:
    found.append(Violation(
        'second run', f'is not told process {holder} of {host}: {line}'))
  if seconds > limit_seconds:
    found.append(Violation('second run', f'took {seconds:.1f} s to be refused'))
  return found
