"""How fast something is done, and how many cores it takes."""

import subprocess
import sys
import time

import psutil
import pytest

from scalable_agent.throughput import machine
from tests import clocks


@pytest.fixture
def clock(monkeypatch):
  """The time that is measured."""
  return clocks.Clock(monkeypatch, machine)


def test_the_first_call_is_no_part_of_the_rate(clock):
  """It compiles."""
  calls = []

  def work():
    clock.now += 1 / 1024 if calls else 8.
    calls.append(None)
    return 3

  assert machine.measure(work, 1.).rate == 3 * 1024
  assert len(calls) > 1 + 1024  # Some more were to warm up.


def test_processes_that_were_started_take_cores_too(clock):
  this = psutil.Process()
  before, usage = machine.cpu_seconds(this), machine.Usage()
  with subprocess.Popen([sys.executable, '-c', 'while True: pass']) as process:
    try:
      deadline = time.monotonic() + 60.
      while machine.cpu_seconds(psutil.Process(process.pid)) < .3:
        assert time.monotonic() < deadline
        time.sleep(.02)
      clock.now += 1.
      cores = usage.cores()
      assert cores - (machine.cpu_seconds(this) - before) > .2
      clock.now += 1000.
      assert usage.cores() < .1
    finally:
      process.kill()
