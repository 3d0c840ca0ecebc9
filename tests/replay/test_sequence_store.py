"""The store of sequences, with entries that say where they are from."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent.replay import sequence_store
from tests.replay import streams as streams_lib

_T = 2
_LANE = sequence_store.lane_length(1, _T)


def _store(num_lanes, unroll_length=_T):
  return sequence_store.SequenceStore(num_lanes * _LANE, unroll_length)


def _add(store, keys, unroll):
  """Adds an unroll; returns the keys, a set, without what it has removed."""
  added, removed = store.add(unroll)
  return keys - set(removed) | set(added)


def _check(store, keys):
  """All sequences at keys are whole; returns their values, a sorted list."""
  found = [streams_lib.values_of(unroll) for unroll in store.read(keys)]
  for values in found:
    np.testing.assert_array_equal(np.diff(values), 1)
    assert len(values) == _T + 1
  return sorted(found)


class _Model:
  """All windows of consecutive entries of the streams, as they came."""

  def __init__(self):
    self._runs = {}
    self.windows = []

  def add(self, unroll):
    values = unroll.env_outputs.observation[0][:, 0].tolist()
    run = self._runs.get(unroll.stream)
    if run is None or run[-1] != values[0]:
      run = self._runs[unroll.stream] = []
    for value in values[1 if run else 0:]:
      run.append(value)
      if len(run) > _T:
        self.windows.append(run[-_T - 1:])


_EVENTS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(
    ['unroll'] * 8 + ['lost', 'replaced'])), min_size=1, max_size=60)


@hypothesis.settings(max_examples=60)
@hypothesis.given(_EVENTS, st.integers(2, 12))
def test_every_sequence_is_consecutive_and_none_is_missing(events, num_lanes):
  """With environments that are replaced, unrolls that are lost, and lanes that
  make room for others."""
  store, model, keys = _store(num_lanes), _Model(), set()
  streams = [streams_lib.Stream(i, _T) for i in range(3)]
  num_removed = 0
  for i, what in events:
    if what == 'lost':
      streams[i].lose_an_unroll()
    elif what == 'replaced':
      streams[i].replace()
    unroll = streams[i].unroll()
    added, removed = store.add(unroll)
    assert not keys & set(added)
    keys -= set(removed)
    keys |= set(added)
    num_removed += len(removed)
    if not num_removed:
      model.add(unroll)
      assert _check(store, np.array(sorted(keys), int)) == sorted(model.windows)
  assert all(key >= store.first_position for key in keys)
  _check(store, np.array(sorted(keys), int))


def test_a_long_run_keeps_all_rows_but_those_of_the_last_sequence():
  """Neighbours share all but one entry, also where lanes meet and wrap."""
  store, stream = _store(4), streams_lib.Stream(1, _T)
  keys = set()
  for _ in range(100):
    keys = _add(store, keys, stream.unroll())
  starts = [values[0] for values in _check(store, np.array(sorted(keys)))]
  newest = 100 * _T
  np.testing.assert_array_equal(np.diff(starts), 1)
  assert starts[-1] % 1000 == newest - _T
  # 201 entries take 26 lanes, the last of which has one.
  assert len(starts) == 201 - 22 * _LANE - _T


def test_the_oldest_lane_makes_room_whoever_it_is_of():
  store = _store(3)
  old, new = streams_lib.Stream(1, _T), streams_lib.Stream(2, _T)
  keys = set(store.add(old.unroll())[0])
  for _ in range(20):
    keys = _add(store, keys, new.unroll())
  assert {values[0] // 100_000 for values in _check(
      store, np.array(sorted(keys)))} == {2}
  # What comes now of the first does not go on from rows of the other.
  keys = _add(store, keys, old.unroll())
  mine = [values for values in _check(store, np.array(sorted(keys)))
          if values[0] // 100_000 == 1]
  assert mine == [[100_002, 100_003, 100_004]]


def test_a_gap_takes_no_lane():
  """Where each unroll is by itself, all rows are written even so."""
  store, stream = _store(8), streams_lib.Stream(1, _T)
  keys = set()
  for _ in range(200):
    keys = _add(store, keys, stream.unroll())
    stream.lose_an_unroll()
  starts = [values[0] for values in _check(store, np.array(sorted(keys)))]
  assert (np.diff(starts) == 2 * _T).all()
  # 600 entries fill 75 lanes, of which 8 are kept.
  assert len(starts) == 8 * _LANE // (_T + 1)


def test_environments_that_are_gone_push_nobody_out(caplog):
  """However many there were: what they left makes room in its turn."""
  store = _store(20)
  streams = [streams_lib.Stream(i, _T) for i in range(3)]
  for _ in range(30):
    for stream in streams:
      for _ in range(3):
        store.add(stream.unroll())
      stream.replace()
    assert not caplog.records
  assert len(store._runs) > 10


def test_environments_that_push_each_other_out_are_told_of_once(caplog):
  """As actor jobs may bring, of which the learner does not know how many."""
  store = _store(6)
  streams = [streams_lib.Stream(i, _T) for i in range(9)]
  for _ in range(3 * _LANE // _T):  # Each goes through several lanes.
    for stream in streams[:3]:
      store.add(stream.unroll())
  assert not caplog.records
  store.add(streams[3].unroll())
  assert len(caplog.records) == 1
  for stream in streams[4:]:
    store.add(stream.unroll())
  (record,) = caplog.records
  assert record.getMessage().startswith(
      'More than 3 environments write into replay, and push each other out. It '
      f'is kept in lanes of {_LANE} steps')
  assert record.getMessage().endswith('raise --replay_steps.')


def test_a_run_whose_lane_is_gone_does_not_go_on():
  """Not even if another has put an entry like its last one there."""
  store = _store(2)
  alike = [streams_lib.Stream(1, _T) for _ in range(3)]
  for i, stream in enumerate(alike):
    store.add(stream.unroll()._replace(stream=i))
  added, removed = store.add(alike[0].unroll()._replace(stream=0))
  assert len(added) == 1 and len(removed) == _LANE
  assert _check(store, added) == [[100_002, 100_003, 100_004]]


def test_a_run_may_go_on_in_the_rows_of_its_own_last_lane():
  store = _store(2)
  slow, fast = (streams_lib.Stream(i, _T) for i in (1, 2))
  for _ in range(3):
    store.add(slow.unroll())
  store.add(fast.unroll())
  # One entry more fills the lane; the next one is the first of a new lane.
  added, removed = store.add(slow.unroll())
  assert not len(added) and len(removed) == _LANE
  first = store.first_position
  keys = np.concatenate([store.add(slow.unroll())[0] for _ in range(2)])
  assert [values[0] for values in _check(store, keys)] == [
      100_008, 100_009, 100_010]
  assert store.first_position == first


def test_a_run_goes_on_though_its_first_lane_is_gone():
  store = _store(3)
  slow, fast = (streams_lib.Stream(i, _T) for i in (1, 2))
  for _ in range(5):
    store.add(slow.unroll())
  removed = [store.add(fast.unroll())[1] for _ in range(4)][-1]
  np.testing.assert_array_equal(removed, np.arange(_LANE))
  added, removed = store.add(slow.unroll())
  assert not len(removed)
  assert _check(store, added) == [
      [first, first + 1, first + 2] for first in (100_009, 100_010)]


def test_an_unroll_may_end_with_its_lane():
  """Of 3 steps, five unrolls are 16 entries, which two lanes have."""
  store, stream = _store(8, 3), streams_lib.Stream(1, 3)
  assert sequence_store.lane_length(8 * _LANE, 3) == _LANE == 8
  keys = np.concatenate([store.add(stream.unroll())[0] for _ in range(12)])
  starts = [streams_lib.values_of(unroll)[0] for unroll in store.read(keys)]
  assert starts == [100_000 + i for i in range(3 * 12 + 1 - 3)]


def test_entry_0_has_to_be_equal_to_the_bit():
  store, stream = _store(4), streams_lib.Stream(1, _T)
  store.add(stream.unroll())
  unroll = stream.unroll()
  unroll.agent_outputs.baseline[0] = np.nextafter(
      unroll.agent_outputs.baseline[0], np.float32(9.))
  added, _ = store.add(unroll)
  assert len(added) == 1


def test_a_nan_is_equal_to_itself():
  """A network that has broken down leaves no gaps besides."""
  store, stream = _store(4), streams_lib.Stream(1, _T)
  first, second = (stream.unroll() for _ in range(2))
  for unroll, entry in (first, -1), (second, 0):
    unroll.agent_outputs.baseline[entry] = np.nan
  store.add(first)
  added, _ = store.add(second)
  assert len(added) == _T


def test_draws_do_not_change_with_the_store():
  store, stream = _store(2), streams_lib.Stream(1, _T)
  keys, _ = store.add(stream.unroll())
  (drawn,) = store.read(keys)
  before = streams_lib.values_of(drawn)
  for _ in range(20):
    store.add(stream.unroll())
  assert streams_lib.values_of(drawn) == before


@pytest.mark.parametrize('num_steps, unroll_length, expected', [
    (1_000_000, 32, 512), (100_000, 32, 128), (1, 32, 128), (1, 31, 64),
    (10_000_000, 20, 8192), (1, 1, 4)])
def test_lane_length(num_steps, unroll_length, expected):
  assert sequence_store.lane_length(num_steps, unroll_length) == expected


@pytest.mark.parametrize('num_steps, unroll_length, num_environments', [
    (1_000_000, 32, 64), (1_000_000, 32, 1), (100_000, 32, 16), (20_000, 32, 9),
    (2**15 - 1, 3, 8), (2**15 - 1, 3, 2000)])
def test_few_environments_have_long_lanes_that_leave_little_room_unused(
    num_steps, unroll_length, num_environments):
  length = sequence_store.lane_length(
      num_steps, unroll_length, num_environments)
  store = sequence_store.SequenceStore(
      num_steps, unroll_length, num_environments=num_environments)
  assert store.num_rows >= .96 * num_steps
  if num_environments <= 64:
    # At worst, each environment has just begun a lane.
    assert num_environments * length <= num_steps / 4
    assert max(num_environments, 8) * length > num_steps / 8
  else:
    assert length == sequence_store.lane_length(1, unroll_length)


def test_too_few_steps_are_refused():
  with pytest.raises(ValueError, match='15 steps are too few .* 16 or more'):
    sequence_store.SequenceStore(15, _T)


def test_bytes_are_those_of_each_step_once():
  store, stream = _store(4), streams_lib.Stream(1, _T)
  store.add(stream.unroll())
  # Reward, return, step, end, 2 numbers, action, 2 logits, baseline.
  assert sum(map(streams_lib.num_bytes, store._columns)) == (
      store.num_rows * (4 + 4 + 4 + 1 + 8 + 4 + 8 + 4))
