"""Stacks of frames: bit-equal, and smaller where they can be."""

from hypothesis import given
import numpy as np
import pytest

from scalable_agent import frame_stacks
from scalable_agent.environments import ArraySpec
from scalable_agent.environments.engines import atari
from tests import stacks


def _num_frames(runs):
  """How many frames of one stack's size are in packed stacks."""
  return sum(len(run.newest) + frame_stacks.STACK for run in runs)


def _assert_own_memory(runs, frames):
  for run in runs:
    for part in run:
      assert part.dtype == np.uint8 and not np.shares_memory(part, frames)


@given(**stacks.small(max_breaks=5))
def test_what_comes_out_went_in(length, height, width, seed, breaks):
  frames = stacks.make(
      np.random.default_rng(seed), length, height, width, breaks)
  breaks = {t for t in breaks if t < length}
  packed = frame_stacks.pack(frames)
  runs = frame_stacks.pack_runs(frames)
  if packed:
    assert frame_stacks.unpack(packed).dtype == np.uint8
    np.testing.assert_array_equal(frame_stacks.unpack(packed), frames)
    assert len(runs) == 1
  else:
    assert breaks
  if runs is None:
    assert 2 * (len(breaks) + 1) > length
  else:
    # Of a few pixels, random stacks may follow from each other.
    assert len(runs) <= len(breaks) + 1
    np.testing.assert_array_equal(frame_stacks.unpack_runs(runs), frames)
    _assert_own_memory(runs, frames)


@pytest.mark.parametrize('breaks', [(), (1,), (20,), (7, 8), (3, 9, 15)])
def test_each_frame_is_kept_once(breaks):
  """And all four of a stack that begins a run."""
  frames = stacks.make(np.random.default_rng(0), 21, 84, 84, breaks)
  runs = frame_stacks.pack_runs(frames)
  assert [len(run.newest) + 1 for run in runs] == list(np.diff(
      [0, *breaks, 21]))
  assert _num_frames(runs) == 24 + 3 * len(breaks)


def test_images_of_four_channels_are_no_stacks():
  """Where hardly anything follows, the parts would only take more memory."""
  frames = stacks.make(np.random.default_rng(0), 21, 10, 10, range(1, 21))
  assert frame_stacks.pack_runs(frames) is None
  half = stacks.make(np.random.default_rng(0), 22, 10, 10, range(1, 11))
  assert len(frame_stacks.pack_runs(half)) == 11


@pytest.mark.parametrize('change', [0, 1, 20])
def test_a_single_pixel_is_enough_to_break_the_row(change):
  frames = stacks.make(np.random.default_rng(0), 21, 84, 84)
  assert frame_stacks.pack(frames) is not None
  # Pixels of the oldest frame of entry 0, and of the newest of the last one,
  # are in no other stack.
  frames[change, 5, 7, 1 if change else 2] ^= 1
  assert frame_stacks.pack(frames) is None
  np.testing.assert_array_equal(
      frame_stacks.unpack_runs(frame_stacks.pack_runs(frames)), frames)


@pytest.mark.parametrize('game', ['pong', 'breakout'])
def test_games_are_made_of_shifted_stacks(game):
  """Only where a game begins do stacks not follow from each other."""
  pool = atari.AtariPool(game, 1, seed=1)
  rng = np.random.default_rng(0)
  frames, begins = [], []
  try:
    for _ in range(400):
      output = pool.recv()
      frames.append(output.step_output.observation[0][0])
      begins.append(output.is_last[0])
      pool.send(output.ids, rng.integers(0, pool.num_actions, 1))
  finally:
    pool.close()
  for t in range(1, len(frames)):
    packed = frame_stacks.pack(np.stack(frames[t - 1:t + 1]))
    assert (packed is None) == begins[t]
  runs = frame_stacks.pack_runs(np.stack(frames))
  assert len(runs) == 1 + sum(begins[1:])
  np.testing.assert_array_equal(
      frame_stacks.unpack_runs(runs), np.stack(frames))


def test_other_observations_are_no_stacks():
  assert frame_stacks.is_stack(ArraySpec((84, 84, 4), np.dtype(np.uint8)))
  for shape, dtype in (((72, 96, 3), np.uint8), ((84, 84, 4), np.float32),
                       ((4,), np.uint8)):
    assert not frame_stacks.is_stack(ArraySpec(shape, np.dtype(dtype)))
