"""Environments that die or hang, and what takes their place."""

import contextlib
import os
import pathlib
import re
import signal
import tempfile
import threading
import time

import numpy as np
import pytest

from scalable_agent.environments import PoolError
from scalable_agent.environments.pools import process_pool
from scalable_agent.environments.pools import worker_limits
from scalable_agent.environments.pools import worker_process
from scalable_agent.process import timing
from tests.environments import processes
from tests.environments.processes import is_running
from tests.environments.processes import LONG
from tests.environments.processes import wait_until

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture
def make_pool():
  with processes.closed_pools() as make:
    yield make


class _Clock:
  """In place of the module `time`, with a clock that jumps when told."""

  def __init__(self):
    self._jumped = 0.

  def monotonic(self):
    return time.monotonic() + self._jumped

  def sleep(self, seconds):
    time.sleep(seconds)

  def jump(self, seconds):
    self._jumped += seconds


@pytest.fixture
def clock(monkeypatch):
  """The time that limits are in."""
  clock = _Clock()
  for module in worker_limits, worker_process:
    monkeypatch.setattr(module, 'time', clock)
  return clock


class _Driver:
  """Receives and sends one output at a time, and keeps the last of each."""

  def __init__(self, pool):
    self._pool = pool
    self.last = {}

  def recv(self, i, action=None):
    """Receives until there is an output of `i`; others get actions at once.

    Returns:
      Reward, episode return, episode step, done, `is_first`, `is_last`, and the
      observed identity, step and process id.
    """
    while i not in self.last:
      output = self._pool.recv()
      step = output.step_output
      for k, j in enumerate(output.ids.tolist()):
        self.last[j] = (
            float(step.reward[k]), float(step.info.episode_return[k]),
            int(step.info.episode_step[k]), bool(step.done[k]),
            bool(output.is_first[k]), bool(output.is_last[k]),
            int(step.observation[0][k, 0]), int(step.observation[0][k, 1]),
            int(step.observation[1][k, 1]))
    return self.last.pop(i)

  def send(self, i, action=0):
    self._pool.send([i], [action])

  def step(self, i, action=0):
    self.send(i, action)
    return self.recv(i)


def _set_timeout(pool, seconds):
  """Sets the time limit of a pool; while processes start it is long."""
  pool._limits._step_timeout = seconds
  pool._limits._next_check = worker_limits.time.monotonic()


def _step_until(condition, driver, i):
  """Steps an environment until something is so."""
  deadline = time.monotonic() + LONG
  while not condition():
    driver.step(i)
    assert time.monotonic() < deadline


_FIRST = (0., 0., 0, True, True, False)


def test_killed_while_it_steps(make_pool):
  pool = make_pool([dict(identity=i, episode_length=100) for i in range(2)])
  driver = _Driver(pool)
  pid = driver.recv(0)[-1]
  driver.recv(1)
  for _ in range(3):
    driver.step(0)
    driver.step(1)
  os.kill(pid, signal.SIGSTOP)  # So that the step is sure to be under way.
  driver.send(0)
  os.kill(pid, signal.SIGKILL)
  output = driver.recv(0)
  assert output[:8] == _FIRST + (0, 0)
  assert output[-1] != pid
  assert driver.step(0)[:8] == (.25, .25, 1, False, False, False, 0, 1)
  # The other one has not noticed.
  assert driver.step(1)[:8] == (1., 2.5, 4, False, False, False, 1, 4)
  assert pool.num_replaced == 1


def test_a_successor_has_the_priority_of_the_thread_that_made_the_pool(
    make_pool):
  """Which that of the thread that acts may be above."""
  pools = []

  def make():
    os.nice(3)
    pools.append(make_pool([dict(identity=0, episode_length=100)]))

  thread = threading.Thread(target=make)
  thread.start()
  thread.join()
  driver = _Driver(pools[0])
  first = driver.recv(0)[-1]
  niceness = os.getpriority(os.PRIO_PROCESS, first)
  os.kill(first, signal.SIGKILL)
  second = driver.step(0)[-1]
  assert second != first
  assert os.getpriority(os.PRIO_PROCESS, second) == niceness
  assert niceness == os.getpriority(os.PRIO_PROCESS, 0) + 3


@pytest.mark.parametrize('wait', [False, True])
def test_killed_while_an_action_is_awaited(make_pool, wait):
  """The action is ignored, whether it comes before or after the new output."""
  pool = make_pool([dict(identity=i, episode_length=1000) for i in range(2)])
  driver = _Driver(pool)
  pid = driver.recv(0)[-1]
  driver.recv(1)
  driver.step(0)
  os.kill(pid, signal.SIGKILL)
  _step_until(lambda: pool._readiness._early or not wait, driver, 1)
  output = driver.step(0, action=4)
  assert output[:8] == _FIRST + (0, 0)
  assert driver.step(0, action=4)[:8] == (
      4.25, 4.25, 1, False, False, False, 0, 1)


def test_killed_again_while_an_action_is_awaited(make_pool):
  """What the second one left behind is not handed out as the third's."""
  pool = make_pool([dict(identity=i, episode_length=10**6) for i in range(2)])
  driver = _Driver(pool)
  first = driver.recv(0)[-1]
  driver.recv(1)
  driver.step(0)
  os.kill(first, signal.SIGKILL)
  _step_until(lambda: pool._readiness._early, driver, 1)
  second = pool._workers.owners[0]._process.pid
  os.kill(second, signal.SIGKILL)
  _step_until(lambda: pool.num_replaced == 2, driver, 1)
  output = driver.step(0, action=4)
  assert output[:8] == _FIRST + (0, 0)
  assert output[-1] not in (first, second)


def test_killed_while_its_output_waits(make_pool):
  """What it left behind is not handed out as the new one's."""
  pool = make_pool([dict(identity=i, episode_length=100) for i in range(2)])
  driver = _Driver(pool)
  pid = driver.recv(0)[-1]
  driver.recv(1)
  pool.send([0], [3])
  deadline = time.monotonic() + LONG
  while not pool._readiness._ready:
    pool._poll(.1)
    assert time.monotonic() < deadline
  os.kill(pid, signal.SIGKILL)
  while not pool.num_replaced:
    pool._poll(.1)
    assert time.monotonic() < deadline
  assert driver.recv(0)[:8] == _FIRST + (0, 0)


@pytest.mark.parametrize('failure', ['raise', 'exit', 'abort'])
def test_other_deaths(make_pool, failure):
  pool = make_pool(
      [dict(failure=failure, failing_step=3, episode_length=100)], 'failing')
  driver = _Driver(pool)
  driver.recv(0)
  outputs = [driver.step(0) for _ in range(7)]
  assert [output[2] for output in outputs] == [1, 2, 0, 1, 2, 0, 1]
  assert pool.num_replaced == 2


def test_stuck(make_pool, caplog):
  pool = make_pool(
      [dict(level_name='sticky', failure='hang', failing_step=3,
            episode_length=100), dict(failure='none', failing_step=1)],
      'failing')
  driver = _Driver(pool)
  driver.recv(0)
  driver.recv(1)
  driver.step(0)
  driver.step(0)
  driver.send(0)
  start = time.monotonic()
  _set_timeout(pool, 2.5)
  while not pool.num_replaced:  # The other one goes on.
    driver.step(1)
    assert time.monotonic() - start < LONG
  assert time.monotonic() - start >= 2.4
  _set_timeout(pool, 600.)
  while 0 not in driver.last:
    driver.step(1)
  assert driver.recv(0)[:6] == _FIRST
  assert 'environment 0 (sticky): no answer within 2.5 s' in caplog.text


def test_what_was_stopped_with_its_pool_is_not_stuck(
    make_pool, clock, monkeypatch):
  """As when a whole job is suspended: nobody looks, and nobody works."""
  monkeypatch.setattr(timing, 'time', clock)
  heartbeat = timing.Heartbeat()
  monkeypatch.setattr(timing, '_heartbeat', lambda: heartbeat)
  monkeypatch.setattr(timing, '_LONGEST_BEAT_SECONDS', .2)
  pool = make_pool([dict()])
  heartbeat.beat()
  driver = _Driver(pool)
  pid = driver.recv(0)[-1]
  os.kill(pid, signal.SIGSTOP)
  driver.send(0)
  _set_timeout(pool, 100.)
  clock.jump(600.)
  # The worker needs longer than the pool to wake up.
  threading.Timer(.3, os.kill, (pid, signal.SIGCONT)).start()
  assert driver.recv(0)[-1] == pid
  assert pool.num_replaced == 0


def test_what_has_nothing_to_do_is_not_stuck(make_pool, clock):
  pool = make_pool([dict(episode_length=100, seconds=.1)])
  driver = _Driver(pool)
  driver.recv(0)
  _set_timeout(pool, 100.)
  clock.jump(150.)
  assert driver.step(0)[2] == 1
  assert pool.num_replaced == 0


@pytest.mark.parametrize('failure, expected', [
    ('exit', r'environment 0 \(cheesy\): the worker process exited with status '
     r'23; it last printed: emulator: out of cheese \| emulator: good bye$'),
    ('raise', r"environment 0 \(cheesy\): KeyError: 'the engine\\nwent away' "
     r'\(.*fakes.py, line \d+, in step\)$')])
def test_crash_loop(make_pool, monkeypatch, caplog, failure, expected):
  """Ends with the environment's own last words, in one line."""
  monkeypatch.setattr(worker_limits, '_MAXIMUM_LOSSES', 2)
  pool = make_pool(
      [dict(level_name='cheesy', failure=failure, failing_step=1)], 'failing')
  driver = _Driver(pool)
  driver.recv(0)
  with pytest.raises(PoolError) as info:
    for _ in range(10):
      driver.step(0)
  assert re.match('3 losses within [0-9.]+ s, the last: ' + expected,
                  str(info.value))
  assert caplog.text.count('Starting it anew') == 2
  with pytest.raises(PoolError, match='3 losses'):
    pool.recv()
  with pytest.raises(PoolError, match='3 losses'):
    pool.send([0], [0])


def test_losses_are_forgiven_after_a_while(make_pool, monkeypatch):
  monkeypatch.setattr(worker_limits, '_MAXIMUM_LOSSES', 1)
  monkeypatch.setattr(worker_limits, '_LOSS_WINDOW_SECONDS', .01)
  pool = make_pool([dict(failure='exit', failing_step=1)], 'failing')
  driver = _Driver(pool)
  driver.recv(0)
  for _ in range(4):
    driver.step(0)
  assert pool.num_replaced == 4


@pytest.mark.parametrize('error, message', [
    ('pool', '^odd: no such level here$'), ('value', 'episode length of -1')])
def test_what_cannot_be_made_is_not_replaced(make_pool, error, message):
  with pytest.raises(PoolError, match=message):
    make_pool([dict(level_name='odd', error=error)], 'cannot_make')


def test_what_has_no_first_output_is_not_replaced(make_pool):
  pool = make_pool([{}], 'wrong_observation')
  with pytest.raises(PoolError, match='float64'):
    pool.recv()
  assert pool.num_replaced == 0


def test_a_new_environment_has_a_new_seed(make_pool):
  pool = make_pool([dict(seed=2**31 - 10), dict(seed=7)], 'seeded')
  driver = _Driver(pool)
  pids = [driver.recv(i)[-1] for i in range(2)]
  os.kill(pids[0], signal.SIGKILL)
  driver.step(0)
  assert [kwargs['seed'] for kwargs in pool._kwargs] == [
      process_pool._SEED_STEP - 9, 7]


def test_several_environments_in_a_process(make_pool):
  pool = make_pool([dict(identity=i, episode_length=100) for i in range(4)],
                   num_processes=2)
  driver = _Driver(pool)
  pids = [driver.recv(i)[-1] for i in range(4)]
  assert pids[0] == pids[1] != pids[2] == pids[3]
  for i in range(4):
    driver.step(i)
  os.kill(pids[0], signal.SIGKILL)
  assert [driver.step(i)[2] for i in range(4)] == [0, 0, 2, 2]


def test_what_shares_a_process_with_what_hangs_is_replaced_with_it(
    make_pool, caplog):
  """The other processes go on."""
  pool = make_pool(
      [dict(level_name=f'level {i}', failure='hang', episode_length=10**6,
            failing_step=3 if i == 1 else -1) for i in range(4)],
      'failing', num_processes=2)
  steps, num_first = np.zeros([4], int), np.zeros([4], int)
  _wait_for_first(pool)
  start = time.monotonic()
  while not pool.num_replaced:
    output = pool.recv()
    steps[output.ids] = output.step_output.info.episode_step
    if steps[1] == 2:  # No sooner: a busy machine lets others wait as long.
      _set_timeout(pool, 2.5)
    pool.send(output.ids, np.zeros_like(output.ids))
    time.sleep(.02)  # Leaves the cores to what is made anew.
    assert time.monotonic() - start < LONG
  assert steps[1] == 2 and min(steps[2:]) > 10
  before = steps.copy()
  _set_timeout(pool, 600.)
  while not num_first[:2].all():
    output = pool.recv()
    num_first[output.ids] += output.is_first
    steps[output.ids] = output.step_output.info.episode_step
    pool.send(output.ids, np.zeros_like(output.ids))
    time.sleep(.02)  # Leaves the cores to what is made anew.
  assert num_first.tolist() == [1, 1, 0, 0]
  assert min(steps[2:] - before[2:]) > 0
  assert ('environment 1 (level 1), in a process with environments 0 to 1: no '
          'answer within 2.5 s (--environment_timeout_secs)') in caplog.text


def _wait_for_first(pool):
  """Receives the first output of all, and only then sends them actions."""
  ids = []
  while len(ids) < pool.num_environments:
    ids += pool.recv().ids.tolist()
  pool.send(ids, [0] * len(ids))


def test_recv_does_not_wait_for_what_is_made_anew(make_pool):
  pool = make_pool([dict(seed=1, first_seed=1) for _ in range(3)],
                   'with_slow_successors', minimum_batch_size=3)
  output = pool.recv()
  pids = dict(zip(output.ids, output.step_output.observation[1][:, 1]))
  os.kill(pids[1], signal.SIGKILL)
  for _ in range(3):
    pool.send(output.ids, np.zeros_like(output.ids))
    output = pool.recv()
    assert sorted(output.ids) == [0, 2]
  assert pool.num_replaced == 1


def test_what_answers_one_by_one_is_not_stuck(make_pool, clock):
  """However many share a process, and however late the pool is asked."""
  pool = make_pool([dict(seconds=.05, episode_length=10**6)] * 5,
                   num_processes=1)
  driver = _Driver(pool)
  for i in range(5):
    driver.recv(i)
  _set_timeout(pool, 100.)
  num_steps = most_calls = 0
  while most_calls < 3:  # On a busy machine all may have come by the first.
    pool.send(range(5), [0] * 5)
    num_steps += 1
    num_left, num_calls = 5, 0
    while num_left:
      clock.jump(60.)
      num_left -= len(pool.recv().ids)
      num_calls += 1
    most_calls = max(most_calls, num_calls)
  pool.send(range(5), [0] * 5)
  num_steps += 1
  wait_until(lambda: (pool._arrays.episode_step == num_steps).all())
  clock.jump(150.)
  for i in range(5):
    assert driver.recv(i)[2] == num_steps
  assert pool.num_replaced == 0


def test_what_hangs_while_it_is_made(make_pool):
  with pytest.raises(PoolError, match=(
      r'^environments 0 to 1 \(tests.fakes:with_slow_successors\): no answer '
      r'within 0.5 s \(--environment_start_timeout_secs\)')):
    make_pool([dict(seed=2, first_seed=1)] * 2, 'with_slow_successors',
              num_processes=1, start_timeout_seconds=.5)


@pytest.mark.parametrize('factory', ['slow_to_make', 'slow_to_start'])
def test_the_limit_is_of_each_that_shares_a_process(make_pool, factory):
  """Not of all that are made, or begun, one after the other."""
  pool = make_pool([dict(seconds=.25)] * 22, factory, num_processes=1,
                   start_timeout_seconds=5.)
  assert sorted(pool.recv().ids) == list(range(22))


def test_a_broken_contract_ends_the_use_of_the_pool(make_pool):
  """A new environment would break it too."""
  pool = make_pool([dict(level_name='odd', part='reward', value='None',
                         breaking_step=2)], 'broken')
  driver = _Driver(pool)
  driver.recv(0)
  driver.step(0)
  for _ in range(2):
    with pytest.raises(PoolError) as info:
      driver.step(0)
    assert str(info.value) == (
        'environment 0 (odd): at step 2 the reward is None, expected a number')
  assert pool.num_replaced == 0


@pytest.mark.parametrize('is_forked', [False, True])
def test_processes_of_what_is_replaced_end(make_pool, is_forked):
  pool = make_pool([dict(is_forked=is_forked)], 'with_child')
  driver = _Driver(pool)
  *_, child, _, worker = driver.recv(0)
  os.kill(worker, signal.SIGKILL)
  *_, other_child, _, _ = driver.step(0)
  wait_until(lambda: not is_running(child))
  assert is_running(other_child)


def test_what_is_stuck_blocks_nobody_who_sends(make_pool):
  """Though there are more messages than its channel holds."""
  size = 1000
  pool = make_pool(
      [dict(failure='hang', failing_step=1 if i == 0 else -1,
            episode_length=100) for i in range(size)],
      'failing', num_processes=1)
  assert len(pool.recv().ids) == size
  start = time.monotonic()
  for i in range(size):
    pool.send([i], [0])
  assert pool._workers.owners[0]._unsent
  _set_timeout(pool, 1.)
  while not pool.num_replaced:
    pool._poll(.1)
    assert time.monotonic() - start < LONG
  _set_timeout(pool, 600.)
  output = pool.recv()
  assert len(output.ids) == size and output.is_first.all()


def test_nothing_is_left_behind(make_pool, monkeypatch, tmp_path):
  """Not even the temporary files of what was killed."""
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  pool = make_pool([dict(identity=i) for i in range(2)])
  driver = _Driver(pool)
  pids = [driver.recv(i)[-1] for i in range(2)]
  for directory in tmp_path.iterdir():
    (directory / 'dmlab_temp_folder').mkdir()
  assert len(list(tmp_path.iterdir())) == 2
  os.kill(pids[0], signal.SIGKILL)
  pids.append(driver.step(0)[-1])
  assert len(list(tmp_path.iterdir())) == 2
  pool.close()
  assert not list(tmp_path.iterdir())
  assert not any(pathlib.Path(f'/proc/{pid}').exists() for pid in pids)


def test_chaos(make_pool, monkeypatch):
  """Random kills: every environment's outputs stay in order all the time."""
  monkeypatch.setattr(worker_limits, '_MAXIMUM_LOSSES', 100)
  rng = np.random.default_rng(1)
  size = 4
  pool = make_pool([dict(identity=i, episode_length=7) for i in range(size)],
                   step_timeout_seconds=float('inf'))
  steps, pids, fresh = [None] * size, [None] * size, 0
  start = time.monotonic()
  while fresh < size + 10:
    assert time.monotonic() - start < 100
    output = pool.recv()
    info = output.step_output.info
    for k, i in enumerate(output.ids.tolist()):
      pid = int(output.step_output.observation[1][k, 1])
      assert output.step_output.observation[0][k, 0] == i
      assert output.is_first[k] == (info.episode_step[k] == 0)
      if output.is_first[k]:
        assert output.step_output.done[k] and not output.is_last[k]
        assert output.step_output.reward[k] == 0.
        assert pid != pids[i]
        fresh += 1
      else:
        assert pid == pids[i]
        assert info.episode_step[k] == steps[i] % 7 + 1
        assert output.step_output.done[k] == (info.episode_step[k] == 7)
      steps[i], pids[i] = int(info.episode_step[k]), pid
    if rng.random() < .02 and None not in pids:
      with contextlib.suppress(ProcessLookupError):  # It is dead already.
        os.kill(rng.choice(pids), signal.SIGKILL)
    pool.send(output.ids, np.zeros_like(output.ids))
  assert pool.num_replaced >= 10


def test_the_first_start_has_a_limit_of_its_own(make_pool):
  slow = [dict(seconds=1.5)]
  pool = make_pool(slow, 'slow_to_start', step_timeout_seconds=.5,
                   start_timeout_seconds=LONG)
  assert pool.recv().ids.tolist() == [0]
  assert pool.num_replaced == 0


def test_there_need_be_no_limit(make_pool):
  pool = make_pool([dict()], step_timeout_seconds=float('inf'),
                   start_timeout_seconds=float('inf'))
  assert pool.recv().ids.tolist() == [0]


def test_a_first_start_that_takes_too_long_ends_the_pool(make_pool):
  with pytest.raises(PoolError, match=r'no answer within 2 s '
                     r'\(--environment_start_timeout_secs\)'):
    # On a slow machine Python itself may take so long to start.
    make_pool([dict(seconds=1000.)], 'slow_to_start',
              step_timeout_seconds=LONG, start_timeout_seconds=2.).recv()
