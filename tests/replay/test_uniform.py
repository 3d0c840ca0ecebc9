import collections
import threading

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent import staging
from scalable_agent.replay import uniform

pytestmark = pytest.mark.usefixtures('bounded')


def _filled(items):
  queue = staging.TrajectoryQueue(len(items))
  for item in items:
    queue.put(item)
  return queue


@settings(deadline=None)
@given(capacity=st.integers(1, 12), new=st.integers(1, 5),
       replayed=st.integers(1, 5), turns=st.integers(1, 8))
def test_new_ones_first_then_some_of_the_last(capacity, new, replayed, turns):
  """Every unroll is new once, in order; what is older than the buffer is gone.
  """
  queue = _filled(range(new * turns))
  mixed = uniform.UniformReplay(queue, capacity, replayed, seed=1)
  for turn in range(turns):
    end = new * (turn + 1)
    assert len(queue) == new * turns - (end - new)
    batch = mixed.get(new + replayed)
    items = batch.unrolls
    np.testing.assert_array_equal(
        batch.is_replayed, [False] * new + [True] * replayed)
    np.testing.assert_array_equal(batch.weights, np.ones([new + replayed]))
    assert items[:new] == list(range(end - new, end))
    assert len(items) == new + replayed
    assert all(max(end - capacity, 0) <= item < end for item in items[new:])
  assert len(queue) == 0


def test_sampling_is_uniform():
  """Over the buffer as it is, whatever an unroll's age (Table D.3)."""
  capacity, draws = 20, 40
  counts = collections.Counter()
  turns = 500
  mixed = uniform.UniformReplay(
      _filled(range(capacity + turns)), capacity, draws, seed=3)
  for turn in range(capacity + turns):
    items = mixed.get(1 + draws).unrolls
    if turn >= capacity:
      counts.update(items[0] - item for item in items[1:])
  assert sorted(counts) == list(range(capacity))
  expected = turns * draws / capacity
  # Five standard deviations of a binomial count.
  np.testing.assert_allclose(
      [counts[age] for age in range(capacity)], expected,
      atol=5 * np.sqrt(expected * (1 - 1 / capacity)))


def test_the_seed_decides_what_is_drawn():
  def drawn(seed):
    mixed = uniform.UniformReplay(_filled(range(60)), 50, 10, seed)
    return [mixed.get(30).unrolls for _ in range(3)]
  assert drawn(1) == drawn(1)
  assert drawn(1) != drawn(2)


def test_waits_for_new_ones_alone():
  """A queue that holds no more than the new ones of a batch is enough."""
  queue = staging.TrajectoryQueue(2)
  mixed = uniform.UniformReplay(queue, 10, 6, seed=1)
  result = []
  thread = threading.Thread(target=lambda: result.append(mixed.get(8).unrolls))
  thread.start()
  queue.put('a')
  thread.join(.1)
  assert thread.is_alive()
  queue.put('b')
  thread.join(30)
  assert result[0][:2] == ['a', 'b']
  assert set(result[0][2:]) <= {'a', 'b'}


def test_close_wakes_who_waits():
  queue = staging.TrajectoryQueue(2)
  mixed = uniform.UniformReplay(queue, 10, 1, seed=1)
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
