"""Columns of a store: stacks of frames that are kept once, equal to the bit."""

import ctypes

import hypothesis
from hypothesis import strategies as st
import numpy as np
import psutil
import pytest

from scalable_agent.replay import columns
from scalable_agent.replay import priority_tree
from scalable_agent.replay import sequence_store
from tests import stacks
from tests.replay import streams as streams_lib

_T = 3
_LANE = sequence_store.lane_length(1, _T)
_SIZE = 2


class _Games:
  """An environment whose observations are stacks, anew where a game begins."""

  def __init__(self, name, num_entries, breaks):
    self._stream = streams_lib.Stream(name, _T)
    self._stacks = stacks.make(
        np.random.default_rng(name), num_entries, _SIZE, _SIZE, breaks)
    self._step = 0

  def lose_an_unroll(self):
    self._stream.lose_an_unroll()
    self._step += _T

  def unroll(self):
    unroll = self._stream.unroll()
    observation = self._stacks[self._step:self._step + _T + 1]
    self._step += _T
    return unroll._replace(
        env_outputs=unroll.env_outputs._replace(observation=(observation,)))

  def check(self, unroll):
    """A sequence of the store is one of the stacks that follow each other."""
    first = unroll.env_outputs.info.episode_step[0]
    np.testing.assert_array_equal(
        unroll.env_outputs.observation[0],
        self._stacks[first:first + _T + 1])
    assert unroll.env_outputs.observation[0].dtype == np.uint8


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    st.lists(st.integers(0, 1), min_size=1, max_size=60), st.integers(2, 6),
    st.sets(st.integers(1, 180), max_size=40))
@hypothesis.example([0] * 60, 2, {3, 5, 6, 20})
@hypothesis.example([0] * 10, 6, {3})
def test_stacks_come_out_as_they_went_in(turns, num_lanes, breaks):
  """Over games that begin, lanes that end, and rows that are used again."""
  store = sequence_store.SequenceStore(
      num_lanes * _LANE, _T, has_stacks=True)
  games = [_Games(i, 3 * 60 + 1, breaks) for i in range(2)]
  keys = set()
  for i in turns:
    added, removed = store.add(games[i].unroll())
    keys = keys - set(removed) | set(added)
  drawn = store.read(np.array(sorted(keys), int))
  for unroll in drawn:
    games[int(unroll.level_name.removeprefix('level_'))].check(unroll)
  num_entries = _T * len(turns) + len(set(turns))
  if num_entries <= (num_lanes - 1) * _LANE and len(set(turns)) == 1:
    assert len(keys) == num_entries - _T


def test_a_stack_after_a_gap_does_not_follow_from_that_before():
  """Not even if it would from the last of its unroll, as a still image does."""
  store = sequence_store.SequenceStore(4 * _LANE, _T, has_stacks=True)
  game, keys = _Games(0, 7 * _T + 1, ()), []
  for step, stack in enumerate(game._stacks):
    stack[:] = step // (3 * _T)
  for unroll in range(7):
    if unroll % 3 < 2:
      keys += store.add(game.unroll())[0].tolist()
    else:
      game.lose_an_unroll()
  # Of two unrolls, two, and one.
  assert len(keys) == 2 * (_T + 1) + 1
  for unroll in store.read(np.array(keys)):
    game.check(unroll)


def test_no_key_is_lost_for_want_of_frames_before_it():
  """The first of a lane is whole, whatever is gone of the lane before."""
  plain, packed = (sequence_store.SequenceStore(3 * _LANE, _T, has_stacks)
                   for has_stacks in (False, True))
  games = [_Games(0, 400, ()) for _ in range(2)]
  for _ in range(100):
    for mine, theirs in zip(plain.add(games[0].unroll()),
                            packed.add(games[1].unroll())):
      np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize('make', [
    lambda: columns.Values(1 << 13, (1 << 13,), np.uint8),
    lambda: columns.StackedFrames(1 << 13, 1 << 9, (64, 128, 4)),
    lambda: priority_tree.ContextualPriorityTree(1 << 23, seed=0)],
                         ids=['values', 'stacks', 'tree'])
def test_memory_is_taken_at_once(make):
  """What does not fit shows at the start of a run, and not hours later."""
  # Else an array may be made of memory that earlier tests have freed.
  ctypes.CDLL(None).malloc_trim(0)
  before = psutil.Process().memory_info().rss
  made = make()
  taken = psutil.Process().memory_info().rss - before
  assert taken > .9 * streams_lib.num_bytes(made) >= .9 * (1 << 26)


@pytest.mark.parametrize('num_games', [0, 50])
def test_each_frame_is_kept_once(num_games):
  """And one stack of each lane, and those with which games begin."""
  num_steps, unroll_length, size = 4096, 32, 21
  store = sequence_store.SequenceStore(
      num_steps, unroll_length, has_stacks=True)
  rng = np.random.default_rng(0)
  stream = streams_lib.Stream(0, unroll_length)
  breaks = range(41, 80 * num_games, 80)
  frames = stacks.make(rng, 4097, size, size, breaks)
  for i in range(0, num_steps - unroll_length, unroll_length):
    unroll = stream.unroll()
    store.add(unroll._replace(env_outputs=unroll.env_outputs._replace(
        observation=(frames[i:i + unroll_length + 1],))))
  column = store._columns[4]
  lanes, stack = num_steps // 128, 4 * size * size
  assert column._newest.nbytes == num_steps * size * size
  kept = [whole for lane in column._whole for whole in lane.values()]
  assert sum(whole.nbytes for whole in kept) == (lanes + num_games) * stack
  # None keeps the unroll alive that it came in.
  assert all(whole.base is None for whole in kept)
