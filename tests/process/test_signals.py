"""Signals that end a process: once, doubled, ignored and insisting."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from scalable_agent.process import signals

pytestmark = pytest.mark.usefixtures('bounded')

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True, name='handlers')
def _handlers():
  """Python's own handlers before, and what was there afterwards."""
  before = {number: signal.getsignal(number) for number in _NUMBERS}
  signal.signal(signal.SIGINT, signal.default_int_handler)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  signal.signal(signal.SIGHUP, signal.SIG_DFL)
  yield before
  for number, handler in before.items():
    signal.signal(number, handler)


@pytest.mark.parametrize('number', _NUMBERS)
def test_a_signal_says_stop(number, capfd):
  with signals.stop_on_signals('saving') as stop:
    assert not stop.is_set() and stop.signal is None
    signal.raise_signal(number)
    assert stop.is_set() and stop.signal == number
    assert stop.exit_status == 128 + number
  assert f'{number.name}: saving.' in capfd.readouterr().err


@pytest.mark.parametrize('number', _NUMBERS)
def test_a_wait_that_cannot_look_is_interrupted_once(number):
  with signals.stop_on_signals() as stop:
    with pytest.raises(signals.Interrupted):
      with stop.interrupting():
        try:
          signal.raise_signal(number)
        finally:
          signal.raise_signal(number)  # It comes again while things are closed.
          closed = True
    assert stop.is_set() and closed
    # What begins too late ends at once, and outside nothing is interrupted.
    with pytest.raises(signals.Interrupted):
      with stop.interrupting():
        raise AssertionError
    signal.raise_signal(number)


@pytest.mark.parametrize('first', _NUMBERS)
def test_what_comes_again_changes_nothing(first):
  """Neither at once nor after the block, when the process is about to end."""
  with signals.stop_on_signals() as stop:
    signal.raise_signal(first)
    for number in _NUMBERS * 2:
      signal.raise_signal(number)
  for number in _NUMBERS:
    signal.raise_signal(number)
  assert stop.signal == first


def test_signals_until_the_process_is_gone_change_nothing():
  """Python gives up its handlers some time before that."""
  code = (
      'import os, subprocess\n'
      'from scalable_agent.process import signals\n'
      'with signals.stop_on_signals() as stop:\n'
      '  subprocess.Popen(["sh", "-c", f"while kill -TERM {os.getpid()}; do :; '
      'done"], stderr=subprocess.DEVNULL)\n'
      '  stop.wait()\n')
  for _ in range(3):
    result = subprocess.run([sys.executable, '-c', code], check=False,
                            stderr=subprocess.DEVNULL)
    assert result.returncode == 0


def test_without_a_signal_all_is_as_before():
  with signals.stop_on_signals() as stop:
    pass
  assert not stop.is_set()
  assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
  assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_library_that_takes_a_signal_does_not_keep_it():
  with signals.stop_on_signals() as stop:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop.listen()
    signal.raise_signal(signal.SIGTERM)
    assert stop.is_set()


def test_nohup_is_respected():
  signal.signal(signal.SIGHUP, signal.SIG_IGN)
  with signals.stop_on_signals() as stop:
    signal.raise_signal(signal.SIGHUP)
    assert not stop.is_set()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize('hangup', [signal.SIG_IGN, signal.SIG_DFL])
def test_signals_end_the_process_at_once_inside_a_block(hangup):
  handlers = lambda: [signal.getsignal(number) for number in _NUMBERS]
  signal.signal(signal.SIGHUP, hangup)
  with signals.stop_on_signals():
    before = handlers()
    with signals.end_on_signals():
      assert handlers() == [signal.SIG_DFL, signal.SIG_DFL, hangup]
    assert handlers() == before


@pytest.mark.parametrize('second, seconds, status', [
    (signal.SIGINT, 2.1, 130), (signal.SIGINT, 1.9, 0),
    (signal.SIGTERM, 2.1, 0)])
def test_only_ctrl_c_two_seconds_later_insists(second, seconds, status):
  """By a clock that jumps, in a process of its own."""
  code = (
      'import signal, time\n'
      'from scalable_agent.process import signals\n'
      'now = 1000.\n'
      'signals.time.monotonic = lambda: now\n'
      'with signals.stop_on_signals():\n'
      '  signal.raise_signal(signal.SIGTERM)\n'
      f'  now += {seconds}\n'
      f'  signal.raise_signal({int(second)})\n')
  result = subprocess.run([sys.executable, '-c', code], stderr=subprocess.PIPE,
                          text=True, check=False)
  assert result.returncode == status, result.stderr
  assert ('SIGINT again: ending at once' in result.stderr) == bool(status)


def test_all_threads_that_wait_wake_up():
  stop = signals.Stop()
  threads = [threading.Thread(target=stop.wait) for _ in range(3)]
  for thread in threads:
    thread.start()
  assert not stop.wait(.01)
  stop.set()
  for thread in threads:
    thread.join()
  assert stop.wait() and stop.wait(0)


def test_a_signal_may_come_wherever_the_main_thread_is():
  """A handler that took a lock would wait for the thread it interrupts."""
  with signals.stop_on_signals() as stop:
    def send():
      time.sleep(.1)
      os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    while not stop.wait(0.):
      pass
    thread.join()


@pytest.mark.parametrize('timeout', [float('inf'), 1e10, None])
def test_a_wait_may_be_as_long_as_one_likes(timeout):
  stop = signals.Stop()
  threading.Timer(.05, stop.set).start()
  assert stop.wait(timeout)
