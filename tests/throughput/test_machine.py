"""How fast something is done, and how many cores it takes."""

import subprocess
import sys
import time

from scalable_agent.throughput import machine


def test_the_first_call_is_no_part_of_the_rate():
  """It compiles."""
  calls = []

  def work():
    time.sleep(.001 if calls else .3)
    calls.append(None)
    return 1

  assert machine.measure(work, .1).rate > 30


def test_processes_that_were_started_take_cores_too():
  usage = machine.Usage()
  with subprocess.Popen([sys.executable, '-c', 'while True: pass']) as process:
    try:
      time.sleep(1.)
      assert usage.cores() > .1
    finally:
      process.kill()
