import threading
import time

import numpy as np
import pytest
import tree

from scalable_agent import networks
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.process import aligned_arrays

# An end to waits that should be short; the machine may be busy.
_LONG = 30.0
# What must not happen is waited for only so long.
_SHORT = .1

pytestmark = pytest.mark.usefixtures('bounded')


class _Call:
  """Calls a function in a thread."""

  def __init__(self, function, *args):
    self.result = self.error = None
    self._thread = threading.Thread(
        target=self._run, args=(function, args), daemon=True)
    self._thread.start()

  def _run(self, function, args):
    try:
      self.result = function(*args)
    except BaseException as e:
      self.error = e

  def is_blocked(self):
    self._thread.join(_SHORT)
    return self._thread.is_alive()

  def wait(self):
    self._thread.join(_LONG)
    assert not self._thread.is_alive()
    return self


def test_queue_is_first_in_first_out():
  queue = staging.TrajectoryQueue(5)
  for i in range(5):
    queue.put(i)
  assert len(queue) == 5
  assert queue.get_many(2) == [0, 1]
  queue.put(5)
  assert queue.get_many(1) == [2]
  assert queue.get_many(3) == [3, 4, 5]
  assert len(queue) == 0


def test_put_waits_while_the_queue_is_full():
  """And goes on in its turn as soon as there is room."""
  queue = staging.TrajectoryQueue(2)
  queue.put(0)
  queue.put(1)
  call = _Call(queue.put, 2)
  assert call.is_blocked()
  assert len(queue) == 2
  assert queue.get_many(1) == [0]
  assert call.wait().error is None
  assert queue.get_many(2) == [1, 2]


def test_put_need_not_wait():
  """It says whether there was room, also where others wait for it."""
  queue = staging.TrajectoryQueue(2)
  assert queue.put(0, False) and queue.put(1, wait=False)
  for _ in range(2):
    assert not queue.put(2, False)
  call = _Call(queue.put, 3)
  assert call.is_blocked()
  assert not queue.put(4, False)
  assert len(queue) == 2
  assert queue.get_many(1) == [0]
  assert call.wait().result
  assert not queue.put(4, False)
  assert queue.get_many(2) == [1, 3]
  assert queue.put(4, False)
  assert queue.put(5)
  queue.close()
  with pytest.raises(staging.Closed):
    queue.put(6, False)


def test_get_many_waits_for_all():
  """Items stay in the queue until there are enough."""
  queue = staging.TrajectoryQueue(4)
  call = _Call(queue.get_many, 3)
  for i in range(2):
    queue.put(i)
    assert call.is_blocked()
    assert len(queue) == i + 1
  queue.put(2)
  queue.put(3)
  assert call.wait().result == [0, 1, 2]
  assert queue.get_many(1) == [3]


def test_more_than_the_capacity_is_refused():
  """It would wait for ever."""
  queue = staging.TrajectoryQueue(2)
  error = _Call(queue.get_many, 3).wait().error
  assert isinstance(error, ValueError)
  assert '3 unrolls asked of a queue that holds 2' in str(error)
  with pytest.raises(ValueError, match='capacity is 0'):
    staging.TrajectoryQueue(0)


def test_close_wakes_all_that_put():
  queue = staging.TrajectoryQueue(1)
  queue.put(0)
  calls = [_Call(queue.put, i) for i in range(3)]
  assert all(call.is_blocked() for call in calls)
  queue.close()
  for call in calls:
    assert isinstance(call.wait().error, staging.Closed)


def test_close_wakes_who_gets():
  queue = staging.TrajectoryQueue(2)
  queue.put(0)
  call = _Call(queue.get_many, 2)
  assert call.is_blocked()
  queue.close()
  assert isinstance(call.wait().error, staging.Closed)


def test_closed_queue_refuses_everything():
  """Also what could be done at once; closing again does nothing."""
  queue = staging.TrajectoryQueue(2)
  queue.put(0)
  queue.close()
  queue.close()
  assert len(queue) == 0  # Nobody keeps them alive.
  with pytest.raises(staging.Closed):
    queue.put(1)
  with pytest.raises(staging.Closed):
    queue.get_many(1)


def test_many_threads_lose_and_double_nothing():
  """Each thread's items arrive once and in its order."""
  queue = staging.TrajectoryQueue(3)

  def produce(producer):
    for i in range(60):
      queue.put((producer, i))

  calls = [_Call(produce, producer) for producer in range(4)]
  received = []
  for _ in range(80):
    received += queue.get_many(3)
  for producer, call in enumerate(calls):
    assert call.wait().error is None
    assert [i for p, i in received if p == producer] == list(range(60))


def _unroll(number, length=4):
  """An unroll whose arrays all begin with its number."""
  array = lambda *shape, dtype=np.float32: (
      100 * number + np.arange(np.prod(shape)).reshape(shape)).astype(dtype)
  return trajectories.ActorOutput(
      level_name=f'level {number}',
      agent_state=networks.LSTMState(array(5), array(5)),
      env_outputs=StepOutput(
          reward=array(length),
          info=StepOutputInfo(array(length), array(length, dtype=np.int32)),
          done=np.arange(length) == number,
          observation=(array(length, 2, 3, dtype=np.uint8), array(length, 1))),
      agent_outputs=trajectories.AgentOutput(
          action=array(length, dtype=np.int32),
          policy_logits=array(length, 6),
          baseline=array(length)),
      policy_version=np.int64(number))


def test_stack_time_major():
  """[T+1, B, ...] for what has time, [B, ...] for what has none."""
  unrolls = [_unroll(i) for i in range(3)]
  batch = staging.stack_time_major(unrolls)
  assert batch.level_name == ['level 0', 'level 1', 'level 2']
  assert batch.policy_version.dtype == np.int64
  np.testing.assert_array_equal(batch.policy_version, [0, 1, 2])
  assert batch.agent_state.c.shape == batch.agent_state.h.shape == (3, 5)
  assert batch.env_outputs.reward.shape == (4, 3)
  assert batch.env_outputs.observation[0].shape == (4, 3, 2, 3)
  assert batch.env_outputs.observation[0].dtype == np.uint8
  assert batch.env_outputs.done.dtype == bool
  assert batch.agent_outputs.policy_logits.shape == (4, 3, 6)
  for b, unroll in enumerate(unrolls):
    for mine, ours in zip(batch.agent_state, unroll.agent_state):
      np.testing.assert_array_equal(mine[b], ours)
    for mine, ours in zip(batch.agent_outputs, unroll.agent_outputs):
      np.testing.assert_array_equal(mine[:, b], ours)
    env_outputs, expected = batch.env_outputs, unroll.env_outputs
    for mine, ours in zip(
        (env_outputs.reward, env_outputs.done) + env_outputs.info
        + env_outputs.observation,
        (expected.reward, expected.done) + expected.info
        + expected.observation):
      assert mine.dtype == ours.dtype
      np.testing.assert_array_equal(mine[:, b], ours)


def test_what_is_stacked_needs_no_copy():
  batch = staging.stack_time_major([_unroll(i) for i in range(3)])
  for array in tree.flatten((batch.env_outputs, batch.agent_outputs)):
    assert aligned_arrays.is_aligned(array)


def test_stack_without_core():
  batch = staging.stack_time_major(
      [_unroll(i)._replace(agent_state=()) for i in range(2)])
  assert batch.agent_state == ()


@pytest.fixture
def make_staging():
  """Makes staging areas, and closes them."""
  areas = []

  def make(queue, batch_size=2, place=lambda batch: batch.unrolls):
    areas.append(staging.StagingArea(queue, batch_size, place))
    return areas[-1]

  yield make
  for area in areas:
    call = _Call(area.close)
    call.wait()


def _wait_until(condition):
  deadline = time.monotonic() + _LONG
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(.01)


def test_staging_hands_out_batches_in_order(make_staging):
  """Each is what `place` made of the stacked unrolls."""
  queue = staging.TrajectoryQueue(4)
  area = make_staging(
      queue, place=lambda batch: (
          'placed', batch.unrolls.policy_version.tolist()))
  batches = []
  for i in range(0, 6, 2):
    queue.put(_unroll(i))
    queue.put(_unroll(i + 1))
    batches.append(area.get(timeout=_LONG))
  assert batches == [('placed', [i, i + 1]) for i in range(0, 6, 2)]


def test_staging_is_one_batch_ahead(make_staging):
  """One `get` lets one batch be prepared; other unrolls wait in the queue."""
  queue = staging.TrajectoryQueue(2)
  placed = []
  area = make_staging(queue, place=lambda b: placed.append(b) or len(placed))
  for i in range(4):
    queue.put(_unroll(i))
  call = _Call(queue.put, _unroll(4))
  _wait_until(lambda: len(placed) == 1)
  assert call.is_blocked()
  assert len(placed) == 1
  assert area.get(timeout=_LONG) == 1
  assert call.wait().error is None
  _wait_until(lambda: len(placed) == 2)
  queue.put(_unroll(5))
  assert _Call(queue.put, _unroll(6)).is_blocked()
  assert len(placed) == 2
  assert [area.get(timeout=_LONG) for _ in range(2)] == [2, 3]


def test_staging_prepares_while_the_last_batch_is_trained_on(make_staging):
  """Whoever takes a batch finds the next one ready when done with it."""
  queue = staging.TrajectoryQueue(4)
  area = make_staging(queue)
  for i in range(4):
    queue.put(_unroll(i))
  area.get(timeout=_LONG)
  _wait_until(lambda: area._staged.qsize())
  assert area.get(timeout=0.).level_name == ['level 2', 'level 3']


def test_queue_is_a_source():
  """Of new unrolls, all of which count alike."""
  queue = staging.TrajectoryQueue(3)
  for i in range(3):
    queue.put(_unroll(i))
  batch = queue.get(2)
  assert [unroll.level_name for unroll in batch.unrolls] == [
      'level 0', 'level 1']
  np.testing.assert_array_equal(batch.is_replayed, [False, False])
  np.testing.assert_array_equal(batch.weights, np.ones([2], np.float32))
  np.testing.assert_array_equal(batch.keys, [-1, -1])
  assert (batch.is_replayed.dtype, batch.weights.dtype, batch.keys.dtype) == (
      bool, np.float32, np.int64)


def test_get_times_out(make_staging):
  area = make_staging(staging.TrajectoryQueue(2))
  with pytest.raises(TimeoutError, match='0.05 s'):
    area.get(timeout=.05)


def test_error_of_place_reaches_get(make_staging):
  """Every call of it, with the original exception."""
  queue = staging.TrajectoryQueue(4)

  def place(unused_batch):
    raise KeyError('no such device')

  area = make_staging(queue, place=place)
  for i in range(2):
    queue.put(_unroll(i))
  for _ in range(3):
    with pytest.raises(KeyError, match='no such device'):
      area.get(timeout=_LONG)


def test_unrolls_that_do_not_stack_are_an_error(make_staging):
  queue = staging.TrajectoryQueue(4)
  area = make_staging(queue)
  queue.put(_unroll(0, length=4))
  queue.put(_unroll(1, length=5))
  with pytest.raises(ValueError):
    area.get(timeout=_LONG)


def test_error_comes_after_the_batches_before_it(make_staging):
  queue = staging.TrajectoryQueue(4)

  def place(batch):
    if batch.unrolls.policy_version[0] == 2:
      raise KeyError('no such device')
    return batch.unrolls.level_name

  area = make_staging(queue, place=place)
  for i in range(4):
    queue.put(_unroll(i))
  assert area.get(timeout=_LONG) == ['level 0', 'level 1']
  with pytest.raises(KeyError):
    area.get(timeout=_LONG)


def test_closed_queue_ends_get(make_staging):
  queue = staging.TrajectoryQueue(2)
  area = make_staging(queue)
  call = _Call(area.get)
  assert call.is_blocked()
  queue.close()
  assert isinstance(call.wait().error, staging.Closed)
  with pytest.raises(staging.Closed):
    area.get(timeout=_LONG)


def _staging_threads():
  return [t for t in threading.enumerate() if t.name == 'staging']


@pytest.mark.parametrize('num_unrolls', [0, 1, 2, 3, 4])
def test_close_ends_the_thread(num_unrolls):
  """Whether it waits for unrolls or for someone to take its batch."""
  before = _staging_threads()
  queue = staging.TrajectoryQueue(2)
  area = staging.StagingArea(queue, 2, lambda batch: batch)
  assert len(_staging_threads()) == len(before) + 1
  for i in range(num_unrolls):
    queue.put(_unroll(i))
  time.sleep(_SHORT)
  assert _Call(area.close).wait().error is None
  assert _staging_threads() == before
  with pytest.raises(staging.Closed):
    queue.put(_unroll(9))
  # What was staged before may still be had.
  with pytest.raises(staging.Closed):
    for _ in range(num_unrolls // 2 + 1):
      area.get(timeout=_SHORT)
