"""The table of many runs: what it says, and where it cannot be written."""

import errno
import io
import re
import subprocess
import sys
import time

import pytest

from scalable_agent.sweeps import display
from scalable_agent.sweeps import progress
from scalable_agent.sweeps import run_processes

pytestmark = pytest.mark.usefixtures('bounded')


def _make_run(tmp_path, frames=None, total=150_000):
  logdir = tmp_path / 'run'
  logdir.mkdir(exist_ok=True)
  if frames:
    (logdir / 'metrics.jsonl').write_text(f'{{"frames": {frames}}}\n')
  return run_processes.ManagedRun(
      'run', str(logdir), total, lambda: [], lambda: False)


@pytest.mark.parametrize('frames, total, text', [
    (2_080, 150_000, '2.08k 1%'), (75_000, 150_000, '75k 50%'),
    (12_300_000, 200_000_000, '12.3M 6%')])
def test_frames_can_be_read_of_short_runs_too(
    tmp_path, capsys, frames, total, text):
  with display.Display([_make_run(tmp_path, frames, total)], 'run'):
    pass
  assert text in ' '.join(capsys.readouterr().out.split())


def test_logs_are_read_once_for_all_columns(tmp_path, monkeypatch):
  """Every second, of runs that write long ones."""
  read = []

  def read_progress(logdir):
    read.append(logdir)
    return progress.Progress(7, 1., None)

  monkeypatch.setattr(progress, 'read', read_progress)
  runs = []
  for name in 'ab':
    runs.append(_make_run(tmp_path))
    runs[-1].name, runs[-1].logdir, runs[-1].state = name, name, 'running'
  with display.Display(runs, 'run'):
    pass
  assert read == ['a', 'b']


@pytest.mark.parametrize('total, text', [
    (10**18, r', \d+d\d\dh left'), (2000, r', \d+s left')])
def test_the_time_that_is_left_may_be_any(
    tmp_path, monkeypatch, capsys, total, text):
  run = _make_run(tmp_path, total=total)
  run.state = 'running'
  frames = iter([0, 1000])
  monkeypatch.setattr(
      progress, 'read',
      lambda unused: progress.Progress(next(frames), 1., None))
  with display.Display([run], 'run') as shown:
    shown._make()
    time.sleep(.1)
  assert re.search(text, capsys.readouterr().out)


def test_no_time_is_left_for_a_run_that_has_failed(
    tmp_path, monkeypatch, capsys):
  run = _make_run(tmp_path, total=2000)
  run.state = 'running'
  failed = _make_run(tmp_path, total=10**12)
  failed.name, failed.logdir, failed.state = 'failed', 'failed', 'failed'
  frames = iter([0, 1000])
  monkeypatch.setattr(
      progress, 'read', lambda logdir: progress.Progress(
          7 if logdir == 'failed' else next(frames), 1., None))
  with display.Display([run, failed], 'run') as shown:
    shown._make()
    time.sleep(.1)
  assert re.search(r', \d+s left', capsys.readouterr().out)


class _FullDisk(io.StringIO):
  num_writes = 0

  def write(self, text):
    self.num_writes += 1
    raise OSError(errno.ENOSPC, 'No space left on device')


def test_a_full_disk_below_the_output_stops_nothing(tmp_path, monkeypatch):
  run = _make_run(tmp_path)
  disk = _FullDisk()
  monkeypatch.setattr(sys, 'stdout', disk)
  with display.Display([run], 'run') as shown:
    shown.on_change(run)
    assert disk.num_writes == 1
    shown.on_poll()
  assert disk.num_writes == 2  # The table at the end is tried all the same.


_PROGRAM = '''
import sys
from scalable_agent.sweeps import display, run_processes
run = run_processes.ManagedRun("run", sys.argv[1], 1, list, lambda: False)
sys.stdin.read()
with display.Display([run], "run") as shown:
  shown.on_change(run)
print("after it")
sys.exit(7)
'''


def test_a_reader_that_is_gone_stops_nothing(tmp_path):
  with subprocess.Popen(
      [sys.executable, '-c', _PROGRAM, str(tmp_path)], stdin=subprocess.PIPE,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
    program.stdout.close()
    _, error = program.communicate('')
  assert (program.returncode, error) == (7, '')
