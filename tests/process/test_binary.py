"""How binaries end that are asked for help, or interrupted."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from scalable_agent.process import binary
binary.run(lambda argv: sys.exit(3))
"""
_WITH_FLAGS = """
import sys
from absl import flags
from scalable_agent.process import binary
flags.DEFINE_integer('size', 1, '')
flags.DEFINE_bool('fast', True, '')
flags.DEFINE_multi_string('each', [], '')
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


def test_letters_that_the_output_does_not_have_are_no_failure():
  """As an en dash in Latin-1, which stands for a score that is missing."""
  program = """
from scalable_agent.process import binary
binary.run(lambda argv: print('\u2013 caf\u00e9'))
"""
  result = subprocess.run(
      [sys.executable, '-c', program], capture_output=True, timeout=60,
      check=False, env=dict(os.environ, PYTHONIOENCODING='latin-1'))
  assert result.returncode == 0, result.stderr
  assert result.stdout == b'\\u2013 caf\xe9\n'


def test_ctrl_c_needs_no_traceback():
  result = _run(program=_INTERRUPTED)
  assert (result.returncode, result.stderr) == (130, '')


@pytest.mark.parametrize('arguments, said', [
    (['--size=3', '--{file}'], ['--size=3 has no effect, since --{file} ']),
    (['--size', '3', '--nofast', '--{file}'], ['--size has', '--nofast has']),
    (['--size=3', '--flagfile', '{name}'],
     ['--size=3 has no effect, since --flagfile {name} comes after it']),
    (['--{file}', '--size=3'], []),
    (['--size=3', '--{file}', '--size=4'], []),
    (['--size=5', '--{file}'], []),  # As in the file.
    (['--each=1', '--{file}'], []),  # They add up.
    (['--size=3', '--', '--{file}'], [])])
def test_a_flag_that_a_flag_file_overrides_is_said(tmp_path, arguments, said):
  name = tmp_path / 'a.flags'
  name.write_text('# A comment.\n--size=5\n--fast\n\n--each=2\n')
  formatted = [each.format(file=f'flagfile={name}', name=name)
               for each in arguments]
  result = _run(*formatted, program=_WITH_FLAGS)
  assert result.returncode == 3
  assert result.stderr.count('has no effect') == len(said)
  for text in said:
    assert text.format(file=f'flagfile={name}', name=name) in result.stderr
