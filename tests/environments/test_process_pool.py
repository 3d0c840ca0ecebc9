import errno
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from scalable_agent.environments import PoolError
from scalable_agent.environments.pools import process_pool
from scalable_agent.environments.pools import start_notices
from scalable_agent.environments.pools import worker_messages
from tests.environments import processes
from tests.environments.processes import is_running
from tests.environments.processes import LONG
from tests.environments.processes import wait_until

_ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture
def make_pool():
  with processes.closed_pools() as make:
    yield make


def test_more_than_a_message_holds_is_refused(make_pool):
  """The worker would wait for it for ever."""
  with pytest.raises(PoolError, match=r'bytes are too many .*2 environments '
                     r'at once. Have more processes \(--environment_threads'):
    make_pool([dict(level_name=name * 1_000_000) for name in 'ab'],
              num_processes=1)


_earlier_children = set()


@pytest.fixture(autouse=True)
def _forget_earlier_children():
  """Other tests leave some, such as the resource tracker of multiprocessing."""
  _earlier_children.clear()
  _earlier_children.update(_workers_of(os.getpid()))


def _workers_of(parent_pid):
  """Returns the process ids of the workers of a process, zombies included."""
  pids = []
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    try:
      status = (path / 'stat').read_text()
    except OSError:
      continue
    if int(status.rsplit(')', 1)[1].split()[1]) == parent_pid:
      pids.append(int(path.name))
  return [pid for pid in pids if pid not in _earlier_children]


def _recv_all(pool, count=None):
  """Receives until `count` environments (all) came; returns the outputs."""
  outputs = []
  missing = pool.num_environments if count is None else count
  while missing:
    outputs.append(pool.recv())
    missing -= len(outputs[-1].ids)
  assert missing == 0
  return outputs


def _send_all(pool, outputs, action=0):
  for output in outputs:
    pool.send(output.ids, np.full_like(output.ids, action))


def _pids(outputs):
  return {int(pid) for output in outputs
          for pid in output.step_output.observation[1][:, 1]}


def _step_until_replaced(pool, caplog):
  """Steps until a worker is replaced; returns what the log says of it."""
  while not pool.num_replaced:
    output = pool.recv()
    pool.send(output.ids, np.zeros_like(output.ids))
  return _reason(caplog)


def _reason(caplog):
  """Returns why the one worker was replaced that was."""
  end = '. Starting it anew.'
  (message,) = [message for message in caplog.messages if message.endswith(end)]
  return message.removesuffix(end)


class _Model:
  """What one counting environment should put out."""

  def __init__(self, identity, episode_length):
    self._identity = identity
    self._length = episode_length
    self._step = 0
    self._return = 0.0

  def initial(self):
    return (0.0, 0.0, 0, True, [self._identity, 0], True, False)

  def step(self, action):
    self._step += 1
    reward = action + self._step / 4
    self._return += reward
    step, total = self._step, self._return
    done = step == self._length
    if done:
      self._step, self._return = 0, 0.0
    return (
        reward, total, step, done, [self._identity, self._step], False, done)


def _rows(output):
  """Yields (id, what `_Model` returns) from a `PoolOutput`."""
  step = output.step_output
  for i, environment_id in enumerate(output.ids.tolist()):
    yield environment_id, (
        step.reward[i], step.info.episode_return[i], step.info.episode_step[i],
        step.done[i], step.observation[0][i].tolist(), output.is_first[i],
        output.is_last[i])


def test_bookkeeping_with_random_batches(make_pool):
  lengths = [1, 2, 3, 7, 30]
  pool = make_pool(
      [{'identity': 10 + i, 'episode_length': length}
       for i, length in enumerate(lengths)],
      num_processes=2, maximum_batch_size=3)
  rng = np.random.default_rng(1)
  models = [_Model(10 + i, length) for i, length in enumerate(lengths)]
  expected = {i: model.initial() for i, model in enumerate(models)}
  counts = np.zeros(5, np.int64)
  idle = np.array([], np.int32)
  while counts.min() < 65:
    if expected and (not len(idle) or rng.random() < 0.5):
      output = pool.recv()
      assert 1 <= len(output.ids) <= 3
      for environment_id, row in _rows(output):
        assert row == expected.pop(environment_id)
        counts[environment_id] += 1
      idle = np.concatenate([idle, output.ids])
    else:
      idle = rng.permutation(idle)
      num_sent = rng.integers(1, len(idle) + 1)
      ids, idle = idle[:num_sent], idle[num_sent:]
      actions = rng.integers(5, size=num_sent)
      pool.send(ids, actions)
      for i, action in zip(ids.tolist(), actions.tolist()):
        expected[i] = models[i].step(action)


def test_shapes_dtypes_and_attributes(make_pool):
  pool = make_pool(
      [{'level_name': 'level {}'.format(i)} for i in range(3)], num_processes=2)
  assert pool.num_environments == 3
  assert pool.num_actions == 5
  assert pool.level_names == ['level 0', 'level 1', 'level 2']
  assert [(spec.shape, spec.dtype) for spec in pool.observation_spec] == [
      ((2,), np.float32), ((3,), np.int32)]
  for output in _recv_all(pool):
    num_ready = len(output.ids)
    step = output.step_output
    for array, dtype, shape in [
        (output.ids, np.int32, ()), (output.is_first, np.bool_, ()),
        (output.is_last, np.bool_, ()),
        (step.reward, np.float32, ()), (step.done, np.bool_, ()),
        (step.info.episode_return, np.float32, ()),
        (step.info.episode_step, np.int32, ()),
        (step.observation[0], np.float32, (2,)),
        (step.observation[1], np.int32, (3,))]:
      assert array.dtype == dtype
      assert array.shape == (num_ready, *shape)


def test_outputs_belong_to_the_caller(make_pool):
  pool = make_pool([{}], num_processes=1)
  first = pool.recv()
  pool.send(first.ids, [1])
  second = pool.recv()
  assert first.step_output.observation[0].tolist() == [[0, 0]]
  assert first.step_output.reward.tolist() == [0]
  second.step_output.info.episode_return[:] = 100
  second.step_output.info.episode_step[:] = 100
  second.ids[:] = 7
  pool.send([0], [0])
  third = pool.recv()
  assert third.step_output.info.episode_return.tolist() == [1.75]
  assert third.step_output.info.episode_step.tolist() == [2]


@pytest.mark.parametrize('name, default', [
    ('OMP_NUM_THREADS', 1), ('LP_NUM_THREADS', 0)])
def test_libraries_of_an_environment_make_no_threads(
    make_pool, monkeypatch, name, default):
  for expected in (default, 3):
    if expected == default:
      monkeypatch.delenv(name, raising=False)
    else:
      monkeypatch.setenv(name, str(expected))
    pool = make_pool([{'name': name}], factory='of_environment_variable')
    assert pool.recv().step_output.observation[0][0, 0] == expected


@pytest.mark.parametrize('given, expected', [
    ({}, 0), ({'PYTHONPATH': str(_ROOT)}, 1), ({'PYTHONSAFEPATH': '1'}, 2)])
def test_what_environments_start_has_the_users_variables(
    make_pool, monkeypatch, given, expected):
  """And not those of a worker, with which another Python may not work."""
  for name in 'PYTHONPATH', 'PYTHONSAFEPATH':
    monkeypatch.delenv(name, raising=False)
  for name, value in given.items():
    monkeypatch.setenv(name, value)
  pool = make_pool([{}], factory='of_childs_variables')
  assert pool.recv().step_output.observation[0][0, 0] == expected


@pytest.mark.parametrize('num_environments,num_processes,expected', [
    (5, 2, [2, 3]), (4, 4, [1, 1, 1, 1]), (3, 1, [3])])
def test_environments_are_spread_evenly(
    make_pool, num_environments, num_processes, expected):
  pool = make_pool([{}] * num_environments, num_processes=num_processes)
  pids = np.concatenate([
      output.step_output.observation[1][:, 1] for output in _recv_all(pool)])
  assert sorted(np.unique(pids, return_counts=True)[1].tolist()) == expected


def test_workers_do_not_import_tensorflow(make_pool):
  pool = make_pool([{}], num_processes=1)
  assert pool.recv().step_output.observation[1][0, 2] == 0


@pytest.mark.parametrize('given, expected', [
    ('SCHED_OTHER', 'SCHED_BATCH'), ('SCHED_IDLE', 'SCHED_IDLE')])
def test_workers_interrupt_nobody_and_keep_what_was_chosen(
    make_pool, given, expected):
  code = '''if True:
    import os
    from tests.environments import processes
    os.sched_setscheduler(0, os.{given}, os.sched_param(0))
    pool = processes.make_pool('counting', [{{}}])
    pid = int(pool.recv().step_output.observation[1][0, 1])
    print(os.sched_getscheduler(pid))
    pool.close()
  '''.format(given=given)
  output = subprocess.run([sys.executable, '-c', code], check=True, cwd=_ROOT,
                          stdout=subprocess.PIPE, text=True).stdout
  assert int(output) == getattr(os, expected)


def test_slow_environment_does_not_hold_up_fast_ones(make_pool):
  pool = make_pool([{'seconds': 1000.0}, {}, {}], num_processes=3)
  _send_all(pool, _recv_all(pool))
  counts = np.zeros(3, np.int64)
  while counts.max() < 100:
    output = pool.recv()
    counts[output.ids] += 1
    pool.send(output.ids, np.zeros_like(output.ids))
  assert counts[0] == 0


def test_slow_environments_of_a_process_are_ready_one_by_one(make_pool):
  pool = make_pool([{'seconds': 0.01}, {'seconds': 1000.0}], num_processes=1)
  output = pool.recv()
  assert output.ids.tolist() == [0, 1]
  pool.send(output.ids, [0, 0])
  assert pool.recv().ids.tolist() == [0]


def test_fast_environments_of_a_process_share_a_message(make_pool):
  """Each message but the last is of steps that took a millisecond."""
  pool = make_pool([{}] * 100, num_processes=1)
  _recv_all(pool)
  for _ in range(5):
    begin = time.monotonic()
    pool.send(np.arange(100), np.zeros([100], np.int32))
    num_messages = len(_recv_all(pool))
    elapsed = time.monotonic() - begin
    assert num_messages <= elapsed / .001 + 1, (num_messages, elapsed)


def test_recv_takes_all_that_is_ready_however_it_was_sent(make_pool):
  """So that batches that became small become large again."""
  pool = make_pool([{}] * 20, num_processes=1)
  pid, = _pids(_recv_all(pool))
  for i in range(20):
    pool.send([i], [0])
  # It answers after it has written an output, and then waits for more to do.
  wait_until(lambda: (pool._arrays.episode_step == 1).all())
  wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING)
  assert len(pool.recv().ids) == 20


def test_recv_waits_for_minimum(make_pool):
  pool = make_pool([{'seconds': 0.1 * i} for i in range(4)], num_processes=4,
                   minimum_batch_size=3)
  outputs = [pool.recv()]
  assert len(outputs[0].ids) >= 3
  if len(outputs[0].ids) == 3:
    pool.recv()
  pool.send([3, 0, 1, 2], [0] * 4)
  assert len(pool.recv().ids) >= 3


def test_recv_does_not_wait_for_what_cannot_come(make_pool):
  pool = make_pool([{}] * 3, num_processes=1, minimum_batch_size=2,
                   maximum_batch_size=2)
  assert pool.recv().ids.tolist() == [0, 1]
  assert pool.recv().ids.tolist() == [2]
  pool.send([1], [0])
  assert pool.recv().ids.tolist() == [1]


def test_maximum_splits_what_is_ready_in_order(make_pool):
  pool = make_pool([{}] * 5, num_processes=1, maximum_batch_size=2)
  ids = [pool.recv().ids.tolist() for _ in range(3)]
  assert ids == [[0, 1], [2, 3], [4]]


def test_recv_with_nothing_to_come_is_an_error(make_pool):
  pool = make_pool([{}] * 2, num_processes=2)
  outputs = _recv_all(pool)
  with pytest.raises(ValueError, match='await an action'):
    pool.recv()
  _send_all(pool, outputs)
  _recv_all(pool)


def test_send_validates(make_pool):
  pool = make_pool([{}] * 4, num_processes=1, maximum_batch_size=2)
  # 2 and 3 are ready, but not handed out.
  assert pool.recv().ids.tolist() == [0, 1]
  for ids, actions, message in [
      ([0, 0], [0, 0], 'not distinct'),
      ([0, 2], [0, 0], r'\[2\] do not await'),
      ([-1], [0], 'between'),
      ([4], [0], 'between'),
      ([0], [5], 'between'),
      ([0], [-1], 'between'),
      ([0, 1], [0], 'shape'),
      ([[0]], [[0]], 'shape'),
      ([0.0], [0], 'integers'),
      ([0], [True], 'integers')]:
    with pytest.raises(ValueError, match=message):
      pool.send(ids, actions)
  pool.send([], [])
  pool.send([0], [3])
  with pytest.raises(ValueError, match='do not await'):
    pool.send([0], [3])
  assert pool.recv().ids.tolist() == [2, 3]
  output = pool.recv()
  assert output.ids.tolist() == [0]
  assert output.step_output.reward.tolist() == [3.25]
  assert output.step_output.info.episode_step.tolist() == [1]


@pytest.mark.parametrize('kwargs,message', [
    (dict(num_processes=3), 'num_processes'),
    (dict(num_processes=0), 'num_processes'),
    (dict(minimum_batch_size=3), 'minimum_batch_size'),
    (dict(minimum_batch_size=0), 'minimum_batch_size'),
    (dict(minimum_batch_size=2, maximum_batch_size=1), 'minimum_batch_size'),
])
def test_constructor_validates(make_pool, kwargs, message):
  with pytest.raises(ValueError, match=message):
    make_pool([{}, {}], **kwargs)
  assert not _workers_of(os.getpid())


def test_pool_of_nothing_is_an_error(make_pool):
  with pytest.raises(ValueError, match='num_processes'):
    make_pool([])


def test_single_steps_of_very_many_environments(make_pool):
  """More messages are under way than the channels hold, both ways."""
  pool = make_pool([{}] * 1000, num_processes=1)
  _recv_all(pool)
  for _ in range(2):
    for i in range(1000):
      pool.send([i], [0])
    _recv_all(pool)


def test_much_output_does_not_block(make_pool):
  pool = make_pool([{'failure': 'print', 'failing_step': 2}], 'failing')
  for _ in range(4):
    output = pool.recv()
    pool.send(output.ids, [0])
  assert pool.recv().step_output.info.episode_step == 1


def test_output_is_no_sign_of_more_messages(make_pool):
  pool = make_pool([{'failure': 'print for ever', 'failing_step': 1}],
                   'failing')
  _send_all(pool, _recv_all(pool))
  assert not any([pool._poll(1.) for _ in range(10)])


def test_exception_in_step(make_pool, caplog):
  pool = make_pool(
      [{'level_name': 'level {}'.format(i), 'failure': 'raise',
        'failing_step': 4 if i == 2 else -1} for i in range(4)],
      'failing', num_processes=2)
  message = _step_until_replaced(pool, caplog)
  assert message.startswith(
      "environment 2 (level 2): KeyError: 'the engine\\nwent away' (")
  assert 'fakes.py' in message
  assert '\n' not in message


def test_exception_while_another_step_is_under_way(make_pool, caplog):
  pool = make_pool([{'failure': 'raise', 'failing_step': 1, 'seconds': 0.5},
                    {'failure': 'none', 'failing_step': 1}], 'failing',
                   num_processes=1)
  output = pool.recv()
  assert output.ids.tolist() == [0, 1]
  pool.send([0], [0])
  pool.send([1], [0])  # The worker ends without having read this.
  pid, = _pids([output])
  wait_until(lambda: not is_running(pid))
  assert pool.recv().is_first.all()
  assert re.match('environment 0 .*went away', _reason(caplog))


@pytest.mark.parametrize('failure,expected', [
    ('exit', ['exited with status 23', 'emulator: out of cheese',
              'emulator: good bye']),
    ('abort', ['was killed by SIGABRT; it last printed: Fatal Python error: '
               'Aborted | ', 'fakes.py', 'in step | ']),
    ('check', ['was killed by SIGABRT; it last printed: F1123 12:00:00 '
               'engine.cc:12] Check failed: map != nullptr | Fatal Python'])])
def test_crash_in_step(make_pool, monkeypatch, caplog, failure, expected):
  monkeypatch.delenv('PYTHONUNBUFFERED', raising=False)
  pool = make_pool(
      [{'level_name': 'level {}'.format(i), 'failure': failure,
        'failing_step': 4 if i == 2 else -1} for i in range(4)],
      'failing', num_processes=2)
  message = _step_until_replaced(pool, caplog)
  assert message.startswith('environments 2 to 3 (level 2, level 3): ')
  assert '\n' not in message
  for text in expected:
    assert text in message


def test_a_slow_start_is_told_of(make_pool, monkeypatch, caplog, tmp_path):
  monkeypatch.setattr(start_notices, '_SECONDS', .2)
  caplog.set_level('INFO')
  path = tmp_path / 'go'
  pool = make_pool(
      [dict(level_name=f'level {i}', path=str(path) if i else None)
       for i in range(3)], 'awaiting_file', num_processes=3)
  seen = set()
  deadline = time.monotonic() + 2 * LONG
  while len(seen) < 3:
    assert not pool.has_started
    output = pool.recv()
    seen.update(output.ids.tolist())
    pool.send(output.ids, np.zeros_like(output.ids))
    if ('1 of 3 environments have started, waiting for level 1, level 2'
        in caplog.messages):
      path.touch()
    assert time.monotonic() < deadline
  assert path.exists()
  count = len(caplog.records)
  for _ in range(3):
    output = pool.recv()
    time.sleep(.3)
    pool.send(output.ids, np.zeros_like(output.ids))
  assert pool.has_started
  assert len(caplog.records) == count


def test_killed_worker(make_pool, caplog):
  pool = make_pool(
      [{'level_name': 'level {}'.format(i), 'seconds': 1000.0 * (i == 1)}
       for i in range(2)], num_processes=2)
  outputs = _recv_all(pool)
  _send_all(pool, outputs)
  pids = [pid for output in outputs for i, pid in zip(
      output.ids, output.step_output.observation[1][:, 1].tolist()) if i == 1]
  os.kill(pids[0], signal.SIGKILL)
  start = time.monotonic()
  message = _step_until_replaced(pool, caplog)
  assert time.monotonic() - start < LONG / 3
  assert message == (
      'environment 1 (level 1): the worker process was killed by SIGKILL')


def test_idle_worker_killed_before_send(make_pool, caplog):
  pool = make_pool([{}], num_processes=1)
  outputs = _recv_all(pool)
  pid, = _pids(outputs)
  os.kill(pid, signal.SIGKILL)
  wait_until(lambda: not is_running(pid))
  pool.send([0], [0])
  assert pool.recv().is_first.all()
  assert _reason(caplog).endswith('SIGKILL')


@pytest.mark.parametrize('error,message', [
    ('pool', 'level 2: no such level here'),
    ('value', 'environment 2 (level 2): ValueError: episode length of -1 (')])
def test_failing_factory(make_pool, error, message):
  num_fds = len(os.listdir('/proc/self/fd'))
  with pytest.raises(PoolError) as info:
    make_pool([{'level_name': 'level {}'.format(i),
                'error': error if i == 2 else None} for i in range(4)],
              'cannot_make', num_processes=4)
  if error == 'pool':
    assert str(info.value) == message
  else:
    assert str(info.value).startswith(message)
  assert not _workers_of(os.getpid())
  assert len(os.listdir('/proc/self/fd')) == num_fds


@pytest.mark.parametrize('factory,message', [
    ('tests.fakes:missing', "no attribute 'missing'"),
    ('tests.nothing:counting', "No module named 'tests.nothing'")])
def test_missing_factory(factory, message):
  with pytest.raises(PoolError, match=message):
    process_pool.ProcessPool(
        factory, [{}], num_processes=1, **processes.LIMITS)


def test_environments_must_agree(make_pool):
  with pytest.raises(PoolError, match=r'^environment 1 \(b\) has 4 actions'):
    make_pool([{'level_name': 'a', 'num_actions': 3},
               {'level_name': 'b', 'num_actions': 4}], 'with_actions')


def test_observation_must_match_spec(make_pool):
  pool = make_pool([{}], 'wrong_observation')
  with pytest.raises(PoolError, match='float64'):
    pool.recv()


def test_a_broken_contract_names_the_environment(make_pool):
  pool = make_pool(
      [dict(level_name=f'level {i}', part='vector', value='None',
            breaking_step=2 if i == 1 else -1) for i in range(2)], 'broken',
      num_processes=1)
  with pytest.raises(PoolError) as info:
    while True:
      output = pool.recv()
      pool.send(output.ids, np.zeros_like(output.ids))
  assert str(info.value) == (
      'environment 1 (level 1): at step 2 the observation is None, expected '
      'float32 (2,)')


def test_a_process_that_cannot_be_started(make_pool, monkeypatch):
  def fail(*unused_args, **unused_kwargs):
    raise OSError(errno.EMFILE, 'Too many open files')

  monkeypatch.setattr(subprocess, 'Popen', fail)
  num_fds = len(os.listdir('/proc/self/fd'))
  with pytest.raises(PoolError) as info:
    make_pool([{'level_name': 'a'}])
  assert str(info.value) == (
      'environment 0 (a): a process cannot be started: Too many open files')
  assert len(os.listdir('/proc/self/fd')) == num_fds


@pytest.mark.parametrize('owner, name, expected', [
    (os, 'memfd_create', 'environments cannot be given processes'),
    (worker_messages, 'map_arrays',
     'there is no memory for the observations of 1 environments')])
def test_memory_that_cannot_be_had(
    make_pool, monkeypatch, owner, name, expected):
  def fail(*unused_args, **unused_kwargs):
    raise OSError(errno.ENOMEM, 'Cannot allocate memory')

  monkeypatch.setattr(owner, name, fail)
  num_fds = len(os.listdir('/proc/self/fd'))
  with pytest.raises(PoolError) as info:
    make_pool([{'level_name': 'a'}])
  assert str(info.value) == f'{expected}: Cannot allocate memory'
  assert len(os.listdir('/proc/self/fd')) == num_fds


def test_processes_that_environments_start_end_with_the_pool(
    make_pool, caplog):
  """Whether a worker ends as it is asked to, is killed, or hangs."""
  pool = make_pool([{'is_forked': i == 0, 'seconds': 1000. * (i == 3)}
                    for i in range(4)], 'with_child', num_processes=4)
  outputs = _recv_all(pool)
  workers, children = {}, []
  for output in outputs:
    vector, numbers = output.step_output.observation
    workers.update(zip(output.ids.tolist(), numbers[:, 1].tolist()))
    children += vector[:, 0].astype(int).tolist()
  assert len(children) == 4 and all(map(is_running, children))
  # Ctrl-C at a terminal is for the pool's process alone.
  assert [os.getpgid(pid) for pid in workers.values()] == list(workers.values())
  _send_all(pool, outputs)
  os.kill(workers[0], signal.SIGKILL)
  # Not even a child that is a copy of it keeps the pool from seeing that.
  assert 'was killed by SIGKILL' in _step_until_replaced(pool, caplog)
  os.kill(workers[1], signal.SIGKILL)
  pool.close()
  wait_until(lambda: not any(map(is_running, children)))


def test_nothing_is_signalled_after_it_was_reaped(make_pool, monkeypatch):
  """Its id may be another process's by then."""
  pool = make_pool([{}], num_processes=1)
  worker, = pool._workers.processes
  pool.close()
  monkeypatch.setattr(os, 'kill', None)
  monkeypatch.setattr(os, 'killpg', None)
  worker.terminate()
  worker.kill()
  assert worker.has_ended(time.monotonic())


def test_interrupt_does_not_reach_workers(make_pool):
  # Started in the background, this process and so the workers ignore it.
  previous = signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    pool = make_pool([{}, {}], num_processes=2)
  finally:
    signal.signal(signal.SIGINT, previous)
  outputs = _recv_all(pool)
  for pid in _pids(outputs):
    os.kill(pid, signal.SIGINT)
  _send_all(pool, outputs)
  _recv_all(pool)


def test_close_leaves_nothing_behind(make_pool):
  num_fds = len(os.listdir('/proc/self/fd'))
  pool = make_pool([{}] * 3, num_processes=3)
  assert len(_workers_of(os.getpid())) == 3
  pool.close()
  assert not _workers_of(os.getpid())
  assert len(os.listdir('/proc/self/fd')) == num_fds
  pool.close()
  with pytest.raises(PoolError, match='the pool is closed'):
    pool.recv()
  with pytest.raises(PoolError, match='the pool is closed'):
    pool.send([0], [0])


def test_forgotten_pool_is_closed():
  num_fds = len(os.listdir('/proc/self/fd'))
  pool = processes.make_pool('counting', [{}] * 2)
  pool.recv()
  del pool
  assert not _workers_of(os.getpid())
  assert len(os.listdir('/proc/self/fd')) == num_fds


def test_close_while_recv_blocks_on_hanging_environment(make_pool):
  pool = make_pool([{'failure': 'hang', 'failing_step': 1}], 'failing')
  _send_all(pool, _recv_all(pool))
  errors = []

  def receive():
    try:
      pool.recv()
    except PoolError as error:
      errors.append(str(error))

  thread = threading.Thread(target=receive, daemon=True)
  thread.start()
  time.sleep(0.3)
  assert thread.is_alive()
  start = time.monotonic()
  pool.close()
  assert time.monotonic() - start < LONG / 3
  thread.join(LONG)
  assert errors == ['the pool is closed']
  assert not _workers_of(os.getpid())


def test_signal_handler_may_close(make_pool):
  pool = make_pool([{'seconds': 1000.0}])
  _send_all(pool, _recv_all(pool))
  previous = signal.signal(signal.SIGALRM, lambda *_: pool.close())
  try:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(PoolError, match='the pool is closed'):
      pool.recv()
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, previous)


_PARENT = """
import sys
import time
from tests.environments import processes

if __name__ == '__main__':
  pool = processes.make_pool('with_child', [{}, {}, {'seconds': 1000.0}])
  outputs = []
  while sum(len(output.ids) for output in outputs) < 3:
    outputs.append(pool.recv())
  for output in outputs:
    print(*output.step_output.observation[1][:, 1])
    print(*output.step_output.observation[0][:, 0].astype(int))
    pool.send(output.ids, [0] * len(output.ids))  # One of them hangs in it.
  print('ready', flush=True)
  if sys.argv[1] == 'wait':
    time.sleep(1000.0)
"""


def _run_parent(tmp_path, argument):
  script = tmp_path / 'parent.py'
  script.write_text(_PARENT)
  (tmp_path / 'temporary').mkdir()
  environ = dict(os.environ, PYTHONPATH=str(_ROOT),
                 TMPDIR=str(tmp_path / 'temporary'))
  return subprocess.Popen(
      [sys.executable, str(script), argument], stdout=subprocess.PIPE,
      stderr=subprocess.PIPE, text=True, env=environ, cwd='/')


def _read_pids(process):
  pids = []
  while (line := process.stdout.readline()) not in ('ready\n', ''):
    pids += [int(pid) for pid in line.split()]
  return pids


def test_workers_end_when_the_parent_is_killed(tmp_path):
  with _run_parent(tmp_path, 'wait') as process:
    pids = _read_pids(process)
    assert len(pids) == 6, process.communicate(timeout=LONG)[1]
    assert all(is_running(pid) for pid in pids)
    assert len(os.listdir(tmp_path / 'temporary')) == 3
    process.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids))
  assert not os.listdir(tmp_path / 'temporary')


def test_parent_that_does_not_close_exits_cleanly(tmp_path):
  with _run_parent(tmp_path, 'exit') as process:
    pids = _read_pids(process)
    _, errors = process.communicate(timeout=LONG)
  assert len(pids) == 6
  assert (process.returncode, errors) == (0, '')
  assert not any(is_running(pid) for pid in pids)
