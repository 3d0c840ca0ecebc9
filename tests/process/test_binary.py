"""How binaries end that are asked for help, or interrupted."""

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from scalable_agent.process import binary
binary.run(lambda argv: sys.exit(3))
"""
_INTERRUPTED = """
import os, signal, time
from scalable_agent.process import binary

# Where it is ignored, as in a job that a shell started in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

def main(argv):
  os.kill(os.getpid(), signal.SIGINT)
  time.sleep(60)

binary.run(main)
"""


def _run(*arguments, program=_PROGRAM):
  return subprocess.run(
      [sys.executable, '-c', program, *arguments], capture_output=True,
      text=True, timeout=60, check=False)


@pytest.mark.parametrize('flag', ['--help', '--helpfull', '--helpshort',
                                  '--helpxml'])
def test_help_is_no_failure(flag):
  result = _run(flag)
  assert result.returncode == 0 and result.stdout


def test_everything_else_is_as_it_was():
  assert _run().returncode == 3
  assert _run('--nohelp').returncode == 3
  wrong = _run('--no_such_flag=1')
  assert wrong.returncode == 1 and 'no_such_flag' in wrong.stderr


def test_ctrl_c_needs_no_traceback():
  result = _run(program=_INTERRUPTED)
  assert (result.returncode, result.stderr) == (130, '')
