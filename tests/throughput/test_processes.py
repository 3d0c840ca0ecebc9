"""Tests of `processes`: what a measurement starts ends, however that ends."""

import concurrent.futures
import contextlib
import faulthandler
import operator
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from scalable_agent.process import errors
from scalable_agent.throughput import processes
from tests.environments import processes as processes_lib

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def _benchmark():
  """Starts a measurement with two learners; yields it and all processes."""
  benchmark = subprocess.Popen(
      # In the background of a script, which the tests may run in, ctrl-C is
      # ignored.
      ['env', '--default-signal=INT', sys.executable, '-m',
       'scalable_agent.benchmark', '--part=replay', '--learners=2',
       '--measure_secs=300'], cwd=_ROOT, start_new_session=True,
      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE, text=True)
  find = psutil.Process(benchmark.pid).children
  started = []
  try:
    # With the replay job, and what looks after their semaphores.
    processes_lib.wait_until(lambda: len(find()) >= 4, 120)
    started = find()
    yield benchmark, started
  finally:
    for process in [benchmark, *started]:
      with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    benchmark.communicate()


def test_a_process_that_is_killed_is_said():
  with pytest.raises(errors.Failure, match='^A process that measures has died'):
    with processes.executor(1) as executor:
      executor.submit(os._exit, 9).result()


@pytest.mark.parametrize('seconds', [0, 5])
def test_ctrl_c_ends_a_measurement_without_complaint(seconds):
  """Which a terminal sends to all processes, also to those that just begin."""
  with _benchmark() as (benchmark, started):
    time.sleep(seconds)
    os.killpg(benchmark.pid, signal.SIGINT)
    _, errors = benchmark.communicate(timeout=60)
    assert benchmark.returncode == 130
    assert 'Traceback' not in errors, errors
    _, alive = psutil.wait_procs(started, 60)
    assert not alive


def test_what_a_measurement_has_started_ends_if_it_is_killed():
  with _benchmark() as (benchmark, started):
    benchmark.kill()
    _, alive = psutil.wait_procs(started, 60)
    assert not alive


@pytest.mark.usefixtures('bounded')
def test_processes_begin_together_and_are_prepared():
  with processes.executor(2, faulthandler.enable) as executor:
    futures = [executor.submit(_meet) for _ in range(2)]
    answers = [future.result() for future in futures]
  assert [is_prepared for _, is_prepared in answers] == [True, True]
  assert len({pid for pid, _ in answers}) == 2


def _meet():
  processes.meet()
  return os.getpid(), faulthandler.is_enabled()


@pytest.mark.usefixtures('bounded')
def test_an_error_ends_what_others_do():
  with pytest.raises(ZeroDivisionError):
    with processes.executor(2) as executor:
      futures = [executor.submit(time.sleep, 600),
                 executor.submit(operator.truediv, 1, 0)]
      for future in concurrent.futures.as_completed(futures):
        future.result()


@pytest.mark.usefixtures('bounded')
def test_a_server_ends_with_its_block():
  with processes.serving(_add, 1, 2) as (pid, answer):
    assert answer == 3 and processes_lib.is_running(pid)
  assert not processes_lib.is_running(pid)


@pytest.mark.usefixtures('bounded')
def test_a_server_that_is_lost_ends_who_waits_for_it():
  with pytest.raises(errors.Failure, match='^A process that measures has died'):
    with processes.serving(_add, 1, 2) as (pid, _):
      with processes.executor(1) as executor:
        future = executor.submit(time.sleep, 600)
        os.kill(pid, signal.SIGKILL)
        future.result()


@pytest.mark.usefixtures('bounded')
def test_a_server_that_never_comes_up_is_said():
  with pytest.raises(errors.Failure, match='^A process that measures has died'):
    with processes.serving(operator.methodcaller('close')):
      pytest.fail('There is nobody to measure.')


def _add(a, b, connection):
  connection.send(a + b)
  with contextlib.suppress(EOFError):
    connection.recv()
