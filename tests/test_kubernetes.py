"""The script that starts a job in a container of launch/kubernetes.yaml."""

import os
import pathlib
import signal
import subprocess
import textwrap
import time

import psutil
import pytest

_FILE = pathlib.Path(__file__).resolve().parents[1] / 'launch/kubernetes.yaml'
# As the program: told to stop, it saves and exits with 0.
_PYTHON = """#!/bin/bash
trap 'echo saved; exit 0' TERM
echo "$@"
[ "$JOB_ENDS" ] && exit "$JOB_ENDS"
while true; do sleep .05; done
"""


def _scripts():
  """Returns what comes after `- |` and before the script's name, a list."""
  return [textwrap.dedent(part.partition('            - job\n')[0])
          for part in _FILE.read_text().split('            - |\n')[1:]]


def _start(tmp_path, script, **environ):
  (tmp_path / 'python').write_text(_PYTHON)
  (tmp_path / 'python').chmod(0o755)
  return subprocess.Popen(
      ['bash', '-c', script, 'job', '--flagfile=/a b', '--task=3'],
      stdout=subprocess.PIPE, text=True,
      env=dict(os.environ, PATH=f'{tmp_path}:{os.environ["PATH"]}', **environ))


def test_learner_and_actors_start_alike():
  learner, actor = _scripts()
  assert learner == actor


@pytest.mark.parametrize('code', [0, 1, 130])
def test_a_job_that_ends_by_itself_has_its_own_code(tmp_path, code):
  process = _start(tmp_path, _scripts()[0], JOB_ENDS=str(code))
  output, _ = process.communicate(timeout=60)
  assert process.returncode == code
  assert output == '-m scalable_agent.experiment --flagfile=/a b --task=3\n'


def test_a_job_that_is_stopped_saves_and_is_not_done(tmp_path):
  process = _start(tmp_path, _scripts()[0])
  assert process.stdout.readline()
  deadline = time.monotonic() + 60.
  while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
    assert time.monotonic() < deadline
    time.sleep(.01)
  process.send_signal(signal.SIGTERM)
  output, _ = process.communicate(timeout=60)
  assert (process.returncode, output) == (143, 'saved\n')
