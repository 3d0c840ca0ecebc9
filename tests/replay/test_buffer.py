"""What a buffer keeps, draws and says of itself."""

import collections
from concurrent import futures
import weakref

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent.replay import buffer as buffer_lib
from scalable_agent.replay import packed_unrolls
from scalable_agent.replay import ring
from tests.replay import races
from tests.replay import unrolls

pytestmark = pytest.mark.usefixtures('bounded')


def _drawn(buffer, count):
  return unrolls.numbers_of(buffer.sample(count))


@hypothesis.given(capacity=st.integers(1, 12),
                  sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_keeps_the_last(capacity, sizes):
  """Of any number that is put in at a time; the oldest go first."""
  buffer = buffer_lib.Buffer(capacity, seed=1)
  end = 0
  for size in sizes:
    buffer.extend(unrolls.make_all(range(end, end + size)))
    end += size
    kept = range(max(end - capacity, 0), end)
    assert set(_drawn(buffer, 10 * capacity)) <= set(kept)
    assert buffer.take_gauges()['replay_unrolls'] == len(kept)


@pytest.mark.parametrize('num_inserted', [13, 20, 33])
def test_draws_are_uniform_over_what_is_there(num_inserted):
  """Whether or not the buffer is full, and wherever it goes on (Table D.3)."""
  draws = 8000
  buffer = buffer_lib.Buffer(20, seed=3)
  buffer.extend(unrolls.make_all(range(num_inserted)))
  kept = range(max(num_inserted - 20, 0), num_inserted)
  counts = collections.Counter(_drawn(buffer, draws))
  assert sorted(counts) == list(kept)
  expected = draws / len(kept)
  np.testing.assert_allclose(
      [counts[number] for number in kept], expected,
      atol=5 * np.sqrt(expected * (1 - 1 / len(kept))))


def test_draws_are_uniform_whatever_the_age():
  """As new ones take the places of old ones; the age is logged."""
  capacity, draws, turns = 20, 40, 500
  buffer = buffer_lib.Buffer(capacity, seed=3)
  buffer.extend(unrolls.make_all(range(capacity)))
  counts = collections.Counter()
  for turn in range(turns):
    buffer.extend([unrolls.make(capacity + turn)])
    ages = [capacity + turn - number for number in _drawn(buffer, draws)]
    counts.update(ages)
    assert buffer.take_gauges()['replay_age_mean'] == np.mean(ages)
  assert sorted(counts) == list(range(capacity))
  expected = turns * draws / capacity
  # Five standard deviations of a binomial count.
  np.testing.assert_allclose(
      [counts[age] for age in range(capacity)], expected,
      atol=5 * np.sqrt(expected * (1 - 1 / capacity)))


def test_draws_are_independent():
  """Whatever was drawn before may be drawn again, at once too."""
  buffer = buffer_lib.Buffer(2, seed=1)
  buffer.extend(unrolls.make_all(range(2)))
  pairs = collections.Counter(
      tuple(_drawn(buffer, 2)) for _ in range(4000))
  np.testing.assert_allclose(
      [pairs[a, b] for a in (0, 1) for b in (0, 1)], 1000,
      atol=5 * np.sqrt(1000 * .75))


def test_the_seed_decides_what_is_drawn():
  def drawn(seed):
    buffer = buffer_lib.Buffer(50, seed)
    buffer.extend(unrolls.make_all(range(50)))
    return _drawn(buffer, 30) + _drawn(buffer, 10)
  assert drawn(1) == drawn(1)
  assert drawn(1) != drawn(2)


def test_bytes_are_those_of_what_is_kept():
  buffer = buffer_lib.Buffer(2, seed=1)
  held = []
  sizes = [unrolls.make(0, np.zeros([size, 500], np.int32))
           for size in (1, 3, 7)]
  for unroll in sizes:
    buffer.extend([unroll])
    held.append(buffer.take_gauges()['replay_mb'])
  first, second, third = (packed_unrolls.size(unroll) / 1e6 for unroll in sizes)
  np.testing.assert_allclose(held, [first, first + second, second + third])


def test_rates_are_of_the_draws_since_the_last_time(monkeypatch):
  now = [10.]
  monkeypatch.setattr(ring.time, 'monotonic', lambda: now[0])
  buffer = buffer_lib.Buffer(3, seed=1)
  buffer.extend([unrolls.make(0)])
  megabytes = packed_unrolls.size(unrolls.make(0)) / 1e6
  for _ in range(2):
    now[0] += 4
    buffer.sample(6)
    gauges = buffer.take_gauges()
    np.testing.assert_allclose(
        gauges['replay_mb_per_second'], 6 * megabytes / 4)
  gauges = buffer.take_gauges()
  assert gauges['replay_mb_per_second'] == gauges['replay_age_mean'] == 0


def test_threads_may_share_it():
  """Nothing is lost, and what is drawn is always something that was put in."""
  buffer = buffer_lib.Buffer(1201, seed=1)
  buffer.extend([unrolls.make(0)])

  def use(base):
    for i in range(300):
      buffer.extend([unrolls.make(base + i)])
      yield from _drawn(buffer, 3)

  bases = [500 * i + 1 for i in range(4)]
  with futures.ThreadPoolExecutor(len(bases)) as pool:
    drawn = set().union(*pool.map(lambda base: list(use(base)), bases))
  inserted = {0}.union(*(range(base, base + 300) for base in bases))
  assert 1 < len(drawn) and drawn <= inserted
  assert buffer.take_gauges()['replay_unrolls'] == len(inserted) == 1201
  assert set(_drawn(buffer, 20_000)) == inserted


@pytest.mark.parametrize('within, method', [
    ('append', 'sample'), ('read', 'take_gauges'), ('take_gauges', 'extend')])
def test_whoever_is_in_the_middle_keeps_others_out(monkeypatch, within, method):
  buffer = buffer_lib.Buffer(10, seed=1)
  buffer.extend([unrolls.make(0)])
  calls = dict(
      append=lambda: buffer.extend([unrolls.make(1)]),
      read=lambda: buffer.sample(1), take_gauges=buffer.take_gauges,
      sample=lambda: buffer.sample(1),
      extend=lambda: buffer.extend([unrolls.make(2)]))
  races.check_waits(
      monkeypatch, buffer._ring, within, calls[within], calls[method])


class _Unroll:
  """One that says whether it is still there, by a weak reference."""


def test_what_has_made_room_is_returned_and_let_go():
  """Also where fewer are kept than the ring has places for."""
  kept = ring.Ring(10, max_bytes=3)
  there, removed = [], []
  for num_bytes in 1, 1, 1, 1, 3, 1:
    unroll = _Unroll()
    there.append(weakref.ref(unroll))
    removed.append([there.index(weakref.ref(old))
                    for old in kept.append(unroll, num_bytes)])
    del unroll
  assert removed == [[], [], [], [0], [1, 2, 3], [4]]
  assert [ref() is not None for ref in there] == [False] * 5 + [True]
