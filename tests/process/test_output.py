"""What is printed where nobody reads it, or the disk is full."""

import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = (
    'import sys\n'
    'from scalable_agent.process import output\n'
    'for i in range(3):\n'
    '  output.say(f"line {i}")\n'
    '  sys.stdin.readline()\n'
    'print("went on", file=sys.stderr)\n')


def _start(stdout):
  return subprocess.Popen(
      [sys.executable, '-c', _PROGRAM], cwd=_ROOT, stdin=subprocess.PIPE,
      stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_a_reader_that_is_gone_ends_nothing():
  with _start(subprocess.PIPE) as process:
    assert process.stdout.readline() == 'line 0\n'
    process.stdout.close()
    _, errors = process.communicate('\n\n\n', timeout=30.)
  assert (process.returncode, errors) == (0, 'went on\n')


def test_a_full_disk_ends_nothing():
  with open('/dev/full', 'wb') as full, _start(full) as process:
    _, errors = process.communicate('\n\n\n', timeout=30.)
  assert errors.startswith('went on\n')
