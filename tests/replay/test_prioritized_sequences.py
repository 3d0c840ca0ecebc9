"""Prioritized replay: its ratio, its weights, and where priorities go."""

import fractions
import threading

import numpy as np
import pytest

from scalable_agent import staging
from scalable_agent.process import errors
from scalable_agent.process import timing
from scalable_agent.replay import prioritized_sequences
from scalable_agent.replay import sequence_store
from tests.replay import races
from tests.replay import streams as streams_lib
from tests.replay import unrolls

pytestmark = pytest.mark.usefixtures('bounded')

_T = 2
_LANE = sequence_store.lane_length(1, _T)


class _Acting:
  """A source of unrolls without end, by turns of some environments."""

  def __init__(self, num_streams=3):
    self._streams = [streams_lib.Stream(i, _T) for i in range(num_streams)]
    self.num_taken = 0

  def get(self, count):
    stream = self._streams[self.num_taken % len(self._streams)]
    self.num_taken += 1
    assert count == 1
    return staging.trajectories.new_batch([stream.unroll(self.num_taken)])

  def take_gauges(self):
    return dict(queue_size=7)

  def close(self):
    self.closed = True


def _replay(source, num_steps=100 * _LANE, min_steps=0, steps_per_update=5.,
            uniform_share=.1, seed=1, num_environments=None):
  return prioritized_sequences.PrioritizedSequences(
      source, num_steps, min_steps, _T, steps_per_update, uniform_share, seed,
      times=timing.StageTimes(), has_stacks=False,
      num_environments=num_environments)


@pytest.mark.parametrize('steps_per_update, num_updates', [
    (fractions.Fraction(3, 10), 200), (2.5, 1000), (5., 1000), (7.25, 200)])
def test_steps_are_taken_at_the_ratio_exactly(steps_per_update, num_updates):
  source = _Acting()
  replay = _replay(source, min_steps=30, steps_per_update=steps_per_update)
  batch = replay.get(4)
  assert source.num_taken == 15
  np.testing.assert_array_equal(batch.kept_versions, np.arange(1, 16))
  counted = 15
  for update in range(1, num_updates + 1):
    batch = replay.get(4)
    counted += len(batch.kept_versions)
    assert counted == source.num_taken
    assert counted - 15 == update * steps_per_update // _T


def test_an_unroll_that_is_not_due_yet_counts_later():
  """Without a sequence there is nothing to draw, so one is taken at once."""
  source = _Acting()
  replay = _replay(source, steps_per_update=.5)
  taken = []
  for _ in range(12):
    replay.get(1)
    taken.append(source.num_taken)
  assert taken == [max(update // 4, 1) for update in range(1, 13)]


def test_filling_is_said_until_there_is_what_the_first_batch_needs():
  source = _Acting()
  replay = _replay(source, min_steps=3 * _T)
  get, said = source.get, []

  def get_and_say(count):
    said.append(replay.filling())
    return get(count)

  source.get = get_and_say
  replay.get(1)
  assert said == [(steps, 3 * _T) for steps in (0, _T, 2 * _T)]
  assert replay.filling() is None


def test_gauges_before_there_is_a_sequence():
  assert _replay(_Acting()).take_gauges() == dict(
      queue_size=7, replay_sequences=0, known_priorities=0.,
      importance_weight_max=0.)


def test_the_seed_decides_what_is_drawn():
  drawn = lambda seed: _replay(
      _Acting(), min_steps=60, seed=seed).get(30).keys.tolist()
  assert drawn(1) == drawn(1) != drawn(2)


def test_a_batch_is_drawn_from_what_was_taken():
  source = _Acting()
  replay = _replay(source, num_steps=20 * _LANE)
  for _ in range(250):
    batch = replay.get(4)
    assert batch.is_replayed.all() and len(batch.unrolls) == 4
    assert batch.weights.dtype == np.float32
    for unroll in batch.unrolls:
      np.testing.assert_array_equal(
          np.diff(streams_lib.values_of(unroll)), 1)
  # What is gone is gone from the tree too.
  assert source.num_taken * _T > 2 * replay._num_leaves
  assert 16 * _LANE < replay.take_gauges()['replay_sequences'] <= 20 * _LANE


def test_what_is_not_finite_is_a_gap(caplog):
  """Its steps count as taken, and no sequence is of it or spans it."""
  source = _Acting(1)
  get = source.get

  def get_and_spoil(count):
    batch = get(count)
    if source.num_taken % 4 == 0:  # By turns, each of its arrays of floats.
      batch.unrolls[0] = unrolls.with_value(
          batch.unrolls[0], source.num_taken // 4 % 5, np.nan)
    return batch

  source.get = get_and_spoil
  replay = _replay(source, min_steps=40 * _T)
  batch = replay.get(1000)
  assert source.num_taken == len(batch.kept_versions) == 40
  found = {streams_lib.values_of(unroll)[0] for unroll in batch.unrolls}
  # Three unrolls in a row are 3 T + 1 entries.
  assert found == {4 * _T * turn + start for turn in range(10)
                   for start in range(2 * _T + 1)}
  (record,) = caplog.records
  assert 'not finite' in record.getMessage()


def _never_finite(but=None):
  """A source whose unrolls are not finite, but for the one of that number."""
  source = _Acting()
  get = source.get

  def get_and_spoil(count):
    batch = get(count)
    if source.num_taken != but:
      batch.unrolls[0] = unrolls.with_value(batch.unrolls[0], 0, np.nan)
    return batch

  source.get = get_and_spoil
  return source


@pytest.mark.parametrize('num_needed, num_taken', [
    (3, 100), (100, 100), (120, 120)])
def test_a_source_that_is_never_finite_is_noticed(num_needed, num_taken):
  """Nothing can be drawn, and waiting for more would be in vain."""
  source = _never_finite()
  with pytest.raises(errors.Failure, match=r'no unroll, the last of level_\d'):
    _replay(source, min_steps=num_needed * _T).get(1)
  assert source.num_taken == num_taken


@pytest.mark.parametrize('number', [1, 101])
def test_one_unroll_that_is_finite_is_enough(number):
  source = _never_finite(but=number)
  _replay(source, min_steps=101 * _T).get(1)
  assert source.num_taken == 101


def test_weights_undo_the_priorities():
  """The weighted mean of what is drawn is the mean over all sequences."""
  replay = _replay(_Acting(), min_steps=60, steps_per_update=1e-9)
  batch = replay.get(1000)
  np.testing.assert_allclose(batch.weights, 1.)
  keys = np.unique(batch.keys)
  priorities = 1. + keys % 7
  replay.update(keys, priorities.astype(np.float32))
  batch = replay.get(10_000)
  expected = .1 / len(keys) + .9 * priorities / priorities.sum()
  at = np.searchsorted(keys, batch.keys)
  np.testing.assert_allclose(
      batch.weights, 1 / (len(keys) * expected[at]), rtol=1e-5)
  counts = np.bincount(at)
  np.testing.assert_allclose(
      counts, 10_000 * expected, atol=5 * np.sqrt(10_000 * expected.max()))
  assert batch.weights.mean() == pytest.approx(1., abs=.02)
  sums = np.bincount(at, batch.weights)
  np.testing.assert_allclose(sums / 10_000, 1 / len(keys), rtol=.4)
  gauges = replay.take_gauges()
  assert gauges['known_priorities'] == 1.
  assert gauges['importance_weight_max'] == pytest.approx(batch.weights.max())


@pytest.mark.parametrize('within', ['read', 'add'])
@pytest.mark.parametrize('method', ['update', 'take_gauges'])
def test_whoever_is_in_the_middle_keeps_others_out(monkeypatch, within, method):
  replay = _replay(_Acting(), min_steps=60, steps_per_update=_T)
  batch = replay.get(4)
  others = {'update': lambda: replay.update(
      batch.keys, np.ones([4], np.float32)), 'take_gauges': replay.take_gauges}
  races.check_waits(
      monkeypatch, replay._store, within, lambda: replay.get(4),
      others[method])


@pytest.mark.parametrize('within, method, other', [
    ('add', 'get', 'update'), ('remove', 'get', 'update'),
    ('sample', 'get', 'update'), ('probabilities', 'get', 'update'),
    ('set', 'update', 'get')])
def test_one_thread_at_a_time_uses_the_tree(monkeypatch, within, method, other):
  # Where what comes pushes something out.
  replay = _replay(_Acting(1), num_steps=4 * _LANE, steps_per_update=_LANE)
  for _ in range(6):
    batch = replay.get(4)
  calls = {'get': lambda: replay.get(4), 'update': lambda: replay.update(
      batch.keys, np.ones([4], np.float32))}
  races.check_waits(
      monkeypatch, replay._tree, within, calls[method], calls[other])


def test_the_largest_weight_is_of_all_batches_since_the_last_gauges():
  replay = _replay(_Acting(), min_steps=60, steps_per_update=1e-9)
  keys = np.unique(replay.get(1000).keys)
  replay.update(keys, np.where(keys % 7, 1., 100.).astype(np.float32))
  replay.take_gauges()
  largest = replay.get(1000).weights.max()
  replay.update(keys, np.ones(len(keys), np.float32))
  assert replay.get(10).weights.max() < largest
  assert replay.take_gauges()['importance_weight_max'] == pytest.approx(largest)
  assert replay.take_gauges()['importance_weight_max'] == 0.


def test_a_share_of_one_is_uniform():
  replay = _replay(_Acting(), min_steps=60, steps_per_update=1e-9,
                   uniform_share=1.)
  batch = replay.get(1000)
  replay.update(batch.keys, np.linspace(.1, 9., 1000).astype(np.float32))
  np.testing.assert_allclose(replay.get(1000).weights, 1.)


@pytest.mark.parametrize('uniform_share', [0., .1])
def test_no_priority_is_too_small_to_be_drawn(uniform_share):
  replay = _replay(_Acting(), min_steps=60, steps_per_update=1e-9,
                   uniform_share=uniform_share)
  batch = replay.get(500)
  replay.update(batch.keys, np.zeros([500], np.float32))
  weights = replay.get(100).weights
  assert np.isfinite(weights).all() and (weights > 0.).all()


def test_the_least_priority_is_a_millionth():
  """What is larger counts as it is, what is smaller as that."""
  replay = _replay(_Acting(), min_steps=60, steps_per_update=1e-9,
                   uniform_share=0.)
  keys = np.unique(replay.get(1000).keys)
  replay.update(keys, np.where(keys % 2, 0., 3e-6).astype(np.float32))
  batch = replay.get(100)
  expected = np.where(batch.keys % 2, 1e-6, 3e-6)
  np.testing.assert_allclose(
      batch.weights, np.where(keys % 2, 1e-6, 3e-6).mean() / expected,
      rtol=1e-5)
  assert len(np.unique(expected)) == 2


def test_priorities_of_sequences_that_are_gone_are_dropped():
  """Rows are used again, so a late priority could meet another sequence."""
  replay = _replay(_Acting(1), num_steps=4 * _LANE, steps_per_update=_LANE)
  old = replay.get(50)
  for _ in range(6):
    replay.get(1)
  before = replay.take_gauges()
  replay.update(old.keys, np.full([50], 100., np.float32))
  after = replay.take_gauges()
  assert before['known_priorities'] == after['known_priorities'] == 0.
  assert before['replay_sequences'] == after['replay_sequences']


def test_those_that_are_left_get_their_own_priorities():
  """Beside some that are gone, up to the last one before those that are left.
  """
  replay = _replay(_Acting(1), num_steps=4 * _LANE, steps_per_update=_LANE)
  for _ in range(6):
    replay.get(1)
  here = np.unique(replay.get(1000).keys)
  assert len(here) == len(replay._tree)
  first = replay._store.first_position
  assert here[0] == first >= 10
  keys = np.arange(first - 10, here[-1] + 1)
  priorities = 1. + np.arange(len(keys))
  replay.update(keys, priorities.astype(np.float32))
  assert len(replay._tree) == len(here)
  np.testing.assert_allclose(
      replay._tree.probabilities(here % replay._num_leaves),
      priorities[10:] / priorities[10:].sum())


def test_nothing_live_is_right_of_the_newest_key_in_its_half():
  """At every place in the ring, so that new keys have new neighbours."""
  source = _Acting(2)
  replay = _replay(source, num_steps=8 * _LANE, steps_per_update=_T)
  tree, num_leaves = replay._tree, replay._num_leaves
  assert num_leaves == 2 * replay._store.num_rows
  halves = set()
  for _ in range(2 * num_leaves // _T):
    replay.get(1)
    live = np.flatnonzero(tree._counts[num_leaves:])
    first = replay._store.first_position
    newest = (first + (live - first) % num_leaves).max() % num_leaves
    half = newest // (num_leaves // 2)
    halves.add(int(half))
    assert not np.any((live > newest) & (live // (num_leaves // 2) == half))
  assert halves == {0, 1}


def _environments_of(sequences):
  """The names of the environments of `ActorOutput`s, int [K]."""
  return np.array([int(unroll.level_name.removeprefix('level_'))
                   for unroll in sequences])


@pytest.mark.parametrize('num_environments, least, most', [
    (8, .75, 1.), (None, 0., .35)])
def test_what_is_near_in_long_lanes_is_of_the_same_environment(
    num_environments, least, most):
  """All sequences of an environment have a priority that no other has.

  So what a new one is guessed to have tells whose the nearest known one is.
  """
  replay = _replay(_Acting(8), num_steps=2048, min_steps=2048,
                   steps_per_update=_T, num_environments=num_environments)
  tree, new, found = replay._tree, [], []
  add = tree.add

  def add_and_note(leaves):
    new.append(leaves)
    add(leaves)

  tree.add = add_and_note
  for _ in range(500):
    batch = replay.get(16)
    replay.update(batch.keys, 2.**_environments_of(batch.unrolls))
    guessed = tree.probabilities(new[-1], 0.) * len(tree) * tree._means[1]
    (name, *_) = _environments_of(
        replay._store.read(replay._keys_at(new[-1][:1])))
    found += np.isclose(guessed, 2.**name).tolist()
  assert least <= np.mean(found) <= most


def test_waits_for_what_is_due():
  queue = staging.TrajectoryQueue(1)
  replay = _replay(queue, min_steps=4)
  stream, batches = streams_lib.Stream(0, _T), []
  thread = threading.Thread(target=lambda: batches.append(replay.get(3)))
  thread.start()
  queue.put(stream.unroll())
  thread.join(.1)
  assert thread.is_alive()
  queue.put(stream.unroll())
  thread.join(30)
  assert len(batches[0].unrolls) == 3


def test_close_wakes_who_waits():
  queue = staging.TrajectoryQueue(1)
  replay = _replay(queue)
  errors = []

  def get():
    try:
      replay.get(2)
    except staging.Closed as e:
      errors.append(e)

  thread = threading.Thread(target=get)
  thread.start()
  replay.close()
  thread.join(30)
  assert len(errors) == 1
