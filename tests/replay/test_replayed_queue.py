import threading
import types

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent import staging
from scalable_agent.replay import buffer
from scalable_agent.replay import replayed_queue
from tests.replay import races
from tests.replay import unrolls

pytestmark = pytest.mark.usefixtures('bounded')


def _filled(numbers):
  queue = staging.TrajectoryQueue(len(numbers))
  for unroll in unrolls.make_all(numbers):
    queue.put(unroll)
  return queue


def _mixed(queue, capacity, num_replayed, **kwargs):
  return replayed_queue.ReplayedQueue(
      queue, buffer.Buffer(capacity, seed=1), num_replayed, **kwargs)


@given(capacity=st.integers(1, 12), new=st.integers(1, 5),
       replayed=st.integers(1, 5), turns=st.integers(1, 8))
def test_new_ones_first_then_some_of_the_last(capacity, new, replayed, turns):
  """Every unroll is new once, in order; what is older than the buffer is gone.
  """
  queue = _filled(range(new * turns))
  mixed = _mixed(queue, capacity, replayed)
  for turn in range(turns):
    end = new * (turn + 1)
    assert len(queue) == new * turns - (end - new)
    batch = mixed.get(new + replayed)
    items = unrolls.numbers_of(batch.unrolls)
    np.testing.assert_array_equal(
        batch.is_replayed, [False] * new + [True] * replayed)
    np.testing.assert_array_equal(batch.weights, np.ones([new + replayed]))
    assert len(batch.kept_versions) == 0
    assert items[:new] == list(range(end - new, end))
    assert len(items) == new + replayed
    assert all(max(end - capacity, 0) <= item < end for item in items[new:])
  assert len(queue) == 0


def test_a_batch_of_drawn_ones_alone():
  """What is new counts all the same, and may be drawn later."""
  queue = _filled(range(40))
  mixed = _mixed(queue, 30, 5, train_on_new=False)
  earlier = []
  for turn in range(10):
    batch = mixed.get(8)
    end = 3 * (turn + 1)
    assert len(queue) == 40 - end
    assert batch.is_replayed.all()
    np.testing.assert_array_equal(batch.kept_versions, range(end - 3, end))
    items = unrolls.numbers_of(batch.unrolls)
    assert len(items) == 8
    assert all(0 <= item < end for item in items)
    earlier += [item < end - 3 for item in items[:3]]
  # Whatever has just come is a small part of what there is.
  assert sum(earlier) > len(earlier) / 2


def test_what_is_not_finite_is_new_and_never_drawn(caplog):
  """Of reward, return, observation, logits and baseline; one line says so."""
  made = unrolls.make_all(range(60))
  bad = list(range(0, 10)) + list(range(10, 60, 2))
  for i in bad:
    made[i] = unrolls.with_value(
        made[i], i % 5, (np.nan, np.inf, -np.inf)[i % 3])
  queue = staging.TrajectoryQueue(60)
  for unroll in made:
    queue.put(unroll)
  mixed = _mixed(queue, 100, 5)
  new = []
  while len(queue):
    batch = mixed.get(10)
    versions = [int(unroll.policy_version) for unroll in batch.unrolls]
    new += [v for v, old in zip(versions, batch.is_replayed) if not old]
    drawn = [v for v, old in zip(versions, batch.is_replayed) if old]
    assert not set(drawn) & set(bad)
    # Before there is any other one, all of the batch is new.
    assert bool(drawn) == (new[-1] > 10)
  assert new == list(range(60))
  (warning,) = _warnings(caplog)
  assert 'an unroll of level_0, and others like it' in warning
  assert 'not finite (NaN or infinite)' in warning and '\n' not in warning


class _EmptyAtFirst:
  """A buffer that has nothing to draw for a number of calls."""

  def __init__(self, num_calls):
    self.num_calls = num_calls
    self.taken = []

  def extend(self, new):
    self.taken += unrolls.numbers_of(new)

  def sample(self, count):
    self.num_calls -= 1
    return [] if self.num_calls >= 0 else [unrolls.make(99)] * count

  def publish(self, weights):
    self.weights = weights

  def take_gauges(self):
    return dict(a=1)


def _mixed_with(buffer_, num_unrolls):
  """Batches of two, of which one is replayed, from a queue of so many."""
  return replayed_queue.ReplayedQueue(_filled(range(num_unrolls)), buffer_, 1)


@pytest.mark.parametrize('train_on_new', [True, False])
def test_while_there_is_nothing_to_draw_all_are_new(train_on_new):
  """From a queue that never holds more than the new ones of a batch."""
  queue = staging.TrajectoryQueue(3)
  empty = _EmptyAtFirst(2)
  mixed = replayed_queue.ReplayedQueue(
      queue, empty, 5, train_on_new=train_on_new)

  def put():
    for number in range(19):
      queue.put(unrolls.make(number))

  thread = threading.Thread(target=put)
  thread.start()
  for first in (0, 8):
    batch = mixed.get(8)
    assert unrolls.numbers_of(batch.unrolls) == list(range(first, first + 8))
    assert not batch.is_replayed.any()
    assert len(batch.kept_versions) == 0
  batch = mixed.get(8)
  thread.join(30)
  assert empty.taken == list(range(19))
  np.testing.assert_array_equal(
      batch.is_replayed, [not train_on_new] * 3 + [True] * 5)


def _warnings(caplog):
  return [record.getMessage() for record in caplog.records
          if record.levelname == 'WARNING']


def test_a_run_that_replays_nothing_says_so_once(caplog, monkeypatch):
  monkeypatch.setattr(replayed_queue, '_MANY_BATCHES', 3)
  empty = _EmptyAtFirst(2)
  mixed = _mixed_with(empty, 60)
  for num_calls, num_warnings in ((2, 0), (2, 0), (3, 1), (6, 1)):
    empty.num_calls = num_calls
    for _ in range(num_calls):
      mixed.get(2)
    assert len(_warnings(caplog)) == num_warnings
    assert mixed.get(2).is_replayed.any()  # The next ones are no more in a row.
  (warning,) = _warnings(caplog)
  assert warning.startswith('Of the last 3 batches nothing was replayed')
  assert 'raise --replay_capacity' in warning and '\n' not in warning


def test_the_share_that_was_replayed_is_logged():
  empty = _EmptyAtFirst(3)
  mixed = _mixed_with(empty, 60)
  shares = []
  for num_batches in 3, 2, 0, 4:
    for _ in range(num_batches):
      mixed.get(2)
    shares.append(mixed.take_gauges())
  assert shares == [
      dict(queue_size=size, replayed_share=share, a=1)
      for size, share in ((54, 0), (52, .5), (52, 0), (48, .5))]
  # Of those that are new, none is in the batch.
  pure = _mixed(_filled(range(4)), 4, 1, train_on_new=False)
  pure.get(2)
  assert pure.take_gauges()['replayed_share'] == 1


def test_the_buffer_gets_the_weights():
  buffer_of_weights = _EmptyAtFirst(0)
  mixed = replayed_queue.ReplayedQueue(
      None, buffer_of_weights, 1, publish=buffer_of_weights.publish)
  mixed.publish(dict(w=1))
  assert buffer_of_weights.weights == dict(w=1)


def test_who_shares_a_buffer_draws_from_all():
  shared = buffer.Buffer(100, seed=1)
  sources = [
      replayed_queue.ReplayedQueue(_filled(items), shared, 4)
      for items in (range(50), range(100, 150))]
  others = [[], []]
  for _ in range(20):
    for me, source in enumerate(sources):
      items = unrolls.numbers_of(source.get(5).unrolls)
      assert (items[0] >= 100) == bool(me)
      others[me] += [(item >= 100) != bool(me) for item in items[1:]]
  for drawn in others:
    assert .3 < np.mean(drawn) < .7


def test_gauges_are_the_buffers():
  mixed = _mixed(_filled(range(6)), 4, 1)
  for _ in range(3):
    mixed.get(3)
  assert mixed.take_gauges()['replay_unrolls'] == 4


def test_waits_for_new_ones_alone():
  """A queue that holds no more than the new ones of a batch is enough."""
  queue = staging.TrajectoryQueue(2)
  mixed = _mixed(queue, 10, 6)
  result = []
  thread = threading.Thread(target=lambda: result.extend(
      unrolls.numbers_of(mixed.get(8).unrolls)))
  thread.start()
  queue.put(unrolls.make(5))
  thread.join(.1)
  assert thread.is_alive()
  queue.put(unrolls.make(6))
  thread.join(30)
  assert result[:2] == [5, 6]
  assert set(result[2:]) <= {5, 6}


def test_close_wakes_who_waits():
  queue = staging.TrajectoryQueue(2)
  mixed = _mixed(queue, 10, 1)
  errors = []

  def get():
    try:
      mixed.get(2)
    except staging.Closed as e:
      errors.append(e)

  thread = threading.Thread(target=get)
  thread.start()
  mixed.close()
  thread.join(30)
  assert len(errors) == 1
  with pytest.raises(staging.Closed):
    queue.put(0)


def test_close_closes_the_buffer_too():
  """Somebody may wait for what others put in there."""
  closed = []
  mixed = replayed_queue.ReplayedQueue(
      *(types.SimpleNamespace(close=lambda name=name: closed.append(name))
        for name in ('source', 'buffer')), 1)
  mixed.close()
  assert sorted(closed) == ['buffer', 'source']


def test_a_batch_counts_as_a_whole(monkeypatch):
  """Nobody takes a part of it between the two counts."""
  mixed = _mixed(_filled(range(6)), 4, 1)
  mixed.get(2)
  gauges = []
  races.check_waits(
      monkeypatch, mixed, '_reset_counts',
      lambda: gauges.append(mixed.take_gauges()), lambda: mixed.get(2))
  gauges.append(mixed.take_gauges())
  assert [each['replayed_share'] for each in gauges] == [.5, .5]
