"""What tests ask of processes, and of pools of them."""

import contextlib
import pathlib
import time

from scalable_agent.environments.pools import process_pool

# An end to waits that should be short; the machine may be busy.
LONG = 30.0
# What a `ProcessPool` has to be told.
LIMITS = dict(step_timeout_seconds=600., start_timeout_seconds=600.)


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


def make_pool(factory, kwargs, **options):
  """Makes a `ProcessPool` of fakes, in a process each unless options differ.

  Args:
    factory: A function of `tests.fakes`.
    kwargs: A list of its arguments for each environment.
    **options: See `ProcessPool`.

  Returns:
    A `ProcessPool`.
  """
  options = dict(LIMITS, num_processes=len(kwargs)) | options
  return process_pool.ProcessPool('tests.fakes:' + factory, kwargs, **options)


@contextlib.contextmanager
def closed_pools():
  """Yields `make_pool` with the kwargs first, whose pools are closed at the end.
  """
  with contextlib.ExitStack() as stack:

    def make(kwargs, factory='counting', **options):
      pool = make_pool(factory, kwargs, **options)
      stack.callback(pool.close)
      return pool

    yield make
