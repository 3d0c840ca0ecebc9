"""Environments that die or hang, and what takes their place."""

import contextlib
import os
import pathlib
import signal
import tempfile
import time

import numpy as np
import pytest

from scalable_agent.environments import PoolError
from scalable_agent.environments import replacing_pool

_LONG = 30.

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture
def make_pool():
  pools = []

  def make(kwargs, factory='counting', **pool_kwargs):
    pools.append(replacing_pool.ReplacingProcessPool(
        'tests.fakes:' + factory, kwargs, **pool_kwargs))
    return pools[-1]

  yield make
  for pool in pools:
    pool.close()


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


@pytest.mark.parametrize('wait', [False, True])
def test_killed_while_an_action_is_awaited(make_pool, wait):
  """The action is ignored, whether it comes before or after the new output."""
  pool = make_pool([dict(identity=i, episode_length=1000) for i in range(2)])
  driver = _Driver(pool)
  pid = driver.recv(0)[-1]
  driver.recv(1)
  driver.step(0)
  os.kill(pid, signal.SIGKILL)
  deadline = time.monotonic() + _LONG
  while wait and (not pool._is_early[0]):
    driver.step(1)
    assert time.monotonic() < deadline
  output = driver.step(0, action=4)
  assert output[:8] == _FIRST + (0, 0)
  assert driver.step(0, action=4)[:8] == (
      4.25, 4.25, 1, False, False, False, 0, 1)


def test_killed_while_its_output_waits(make_pool):
  """What it left behind is not handed out as the new one's."""
  pool = make_pool([dict(identity=i, episode_length=100) for i in range(2)])
  driver = _Driver(pool)
  pid = driver.recv(0)[-1]
  driver.recv(1)
  pool.send([0], [3])
  deadline = time.monotonic() + _LONG
  while not pool._num_ready:
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
      'failing', step_timeout_seconds=5.)
  driver = _Driver(pool)
  driver.recv(0)
  driver.recv(1)
  driver.step(0)
  driver.step(0)
  driver.send(0)
  start = time.monotonic()
  while 0 not in driver.last:  # The other one goes on.
    driver.step(1)
    assert time.monotonic() - start < _LONG
  assert time.monotonic() - start >= 4.9
  assert driver.recv(0)[:6] == _FIRST
  assert 'environment 0 (sticky): no answer within 5 s' in caplog.text


def test_what_has_nothing_to_do_is_not_stuck(make_pool):
  pool = make_pool([dict(episode_length=100)], step_timeout_seconds=3.)
  driver = _Driver(pool)
  driver.recv(0)
  time.sleep(3.5)
  assert driver.step(0)[2] == 1
  assert pool.num_replaced == 0


def test_crash_loop(make_pool, caplog):
  """Ends with the environment's own last words."""
  pool = make_pool(
      [dict(level_name='cheesy', failure='exit', failing_step=1)], 'failing',
      maximum_losses=2)
  driver = _Driver(pool)
  driver.recv(0)
  with pytest.raises(PoolError) as info:
    for _ in range(10):
      driver.step(0)
  text = str(info.value)
  assert text.startswith('3 losses within ')
  assert 'environment 0 (cheesy): the worker process exited with status 23' in (
      text)
  assert 'emulator: out of cheese' in text
  assert caplog.text.count('Starting it anew') == 2
  with pytest.raises(PoolError, match='3 losses'):
    pool.recv()


def test_losses_are_forgiven_after_a_while(make_pool):
  pool = make_pool([dict(failure='exit', failing_step=1)], 'failing',
                   maximum_losses=1, loss_window_seconds=.01)
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
  assert [kwargs['seed'] for kwargs in pool._kwargs] == [999994, 7]


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


def test_chaos(make_pool):
  """Random kills: every environment's outputs stay in order all the time."""
  rng = np.random.default_rng(1)
  size = 4
  pool = make_pool([dict(identity=i, episode_length=7) for i in range(size)],
                   maximum_losses=100)
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
