"""What tests ask of processes."""

import pathlib
import time

# An end to waits that should be short; the machine may be busy.
LONG = 30.0


def is_running(pid):
  """Whether there is such a process, and it is no zombie."""
  try:
    status = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except OSError:
    return False
  return status.rsplit(')', 1)[1].split()[0] != 'Z'


def wait_until(condition, seconds=LONG):
  """Waits until a function returns true, which it has to."""
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.01)
