"""Tests of `remote.frame_stacks`: bit-equal, and smaller where it can be."""

import collections

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent import environments
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import atari
from scalable_agent.remote import frame_stacks
from scalable_agent.remote import wire

_Message = collections.namedtuple('_Message', 'level env_outputs')


def _stacks(rng, length, height, width, breaks=()):
  """Stacks of random frames, which begin anew at `breaks`."""
  stack = rng.integers(0, 256, (height, width, 4), np.uint8)
  result = [stack]
  for t in range(1, length):
    frame = rng.integers(0, 256, (height, width, 1), np.uint8)
    stack = np.concatenate([stack[..., 1:], frame], axis=-1)
    if t in breaks:
      stack = rng.integers(0, 256, stack.shape, np.uint8)
    result.append(stack)
  return np.stack(result)


def _message(frames):
  steps = lambda dtype: np.zeros([len(frames)], dtype)
  return _Message(np.int32(3), environments.StepOutput(
      steps(np.float32), (), steps(np.bool_), (frames,)))


def _layout(frames):
  spec = lambda a: ArraySpec(a.shape, a.dtype)
  message = _message(frames)
  outputs = message.env_outputs
  return frame_stacks.StackedLayout(_Message(
      spec(message.level), environments.StepOutput(
          spec(outputs.reward), (), spec(outputs.done), (spec(frames),))), {})


@settings(deadline=None)
@given(length=st.integers(1, 9), height=st.integers(1, 7),
       width=st.integers(1, 7), seed=st.integers(0, 99),
       breaks=st.sets(st.integers(1, 8), max_size=2))
def test_what_comes_out_went_in(length, height, width, seed, breaks):
  frames = _stacks(
      np.random.default_rng(seed), length, height, width, breaks)
  layout = _layout(frames)
  encoded = layout.encode(_message(frames))
  decoded = layout.decode(encoded)
  np.testing.assert_array_equal(decoded.env_outputs.observation[0], frames)
  assert decoded.env_outputs.observation[0].dtype == np.uint8
  assert layout.peek(encoded, 'level') == 3
  assert decoded.level == 3
  assert len(encoded) <= layout.num_bytes


@settings(deadline=None)
@given(length=st.integers(1, 5), height=st.integers(1, 7),
       width=st.integers(1, 7), breaks=st.lists(st.booleans(), min_size=1))
@example(length=3, height=4, width=4, breaks=[True])  # Both have one length.
def test_packed_and_whole_ones_in_a_row(length, height, width, breaks):
  rng = np.random.default_rng(0)
  stacks = [_stacks(rng, length, height, width, {1} if broken else ())
            for broken in breaks]
  layout = _layout(stacks[0])
  nests = wire.decode_all(layout, wire.join(
      [layout.encode(_message(frames)) for frames in stacks]))
  for nest, frames in zip(nests, stacks, strict=True):
    np.testing.assert_array_equal(nest.env_outputs.observation[0], frames)


def test_each_frame_is_sent_once():
  frames = _stacks(np.random.default_rng(0), 21, 84, 84)
  size = len(_layout(frames).encode(_message(frames)))
  assert 24 * 84 * 84 < size < 24 * 84 * 84 + 1000


@pytest.mark.parametrize('change', [0, 1, 20])
def test_a_single_pixel_is_enough_to_send_it_all(change):
  frames = _stacks(np.random.default_rng(0), 21, 84, 84)
  assert frame_stacks.pack(frames) is not None
  # Pixels of the oldest frame of entry 0, and of the newest of the last one,
  # are in no other stack.
  frames[change, 5, 7, 1 if change else 2] ^= 1
  assert frame_stacks.pack(frames) is None


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


def test_rejects_what_is_of_neither_length():
  frames = _stacks(np.random.default_rng(0), 5, 6, 7)
  layout = _layout(frames)
  message = layout.encode(_message(frames))
  for wrong in (message[:-1], message + b'x', b'', b'x' * len(message)):
    with pytest.raises(wire.WireError):
      layout.decode(wrong)


def test_other_observations_are_no_stacks():
  assert frame_stacks.is_stack(ArraySpec((84, 84, 4), np.dtype(np.uint8)))
  for shape, dtype in (((72, 96, 3), np.uint8), ((84, 84, 4), np.float32),
                       ((4,), np.uint8)):
    assert not frame_stacks.is_stack(ArraySpec(shape, np.dtype(dtype)))
