"""What a buffer keeps of an unroll, and makes of it again."""

import tracemalloc

import numpy as np
import pytest
import tree

from scalable_agent import actor
from scalable_agent.environments import ArraySpec
from scalable_agent.replay import buffer as buffer_lib
from scalable_agent.replay import packed_unrolls
from scalable_agent.unroll_messages import unroll_layouts
from scalable_agent.unroll_messages import unroll_message
from tests import stacks
from tests.replay import episodes
from tests.replay import unrolls


def _observation(shape, dtype, breaks=()):
  rng = np.random.default_rng(0)
  if dtype == np.uint8 and shape[-1] == 4:
    return stacks.make(rng, 21, *shape[:-1], breaks)
  return rng.integers(0, 99, (21, *shape)).astype(dtype)


def _assert_equal(found, expected):
  for a, b in zip(tree.flatten(found), tree.flatten(expected), strict=True):
    np.testing.assert_array_equal(a, b)
    assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize('shape, dtype, breaks', [
    ((84, 84, 4), np.uint8, ()), ((84, 84, 4), np.uint8, (3, 9)),
    ((10, 10, 4), np.uint8, range(1, 21)), ((72, 96, 3), np.uint8, ()),
    ((5,), np.float32, ())])
def test_packed_equals_unpacked_to_the_bit(shape, dtype, breaks):
  unroll = unrolls.make(7, _observation(shape, dtype, breaks))
  packed = packed_unrolls.pack(unroll)
  _assert_equal(packed_unrolls.unpack(packed), unroll)


def test_instructions_beside_a_frame_are_left_as_they_are():
  unroll = unrolls.make(7, _observation((8, 8, 4), np.uint8))
  outputs = unroll.env_outputs
  unroll = unroll._replace(env_outputs=outputs._replace(
      observation=outputs.observation + (np.zeros([21, 5], np.int32),)))
  _assert_equal(
      packed_unrolls.unpack(packed_unrolls.pack(unroll)), unroll)


@pytest.mark.parametrize('offset', [0, 1, 3, 4])
def test_what_is_cut_goes_on_in_the_next_unroll(offset):
  """Every array of it; what is said of it as a whole is the first one's."""
  play = episodes.Play(3, 11, seed=1)
  packed = [packed_unrolls.pack(play.unroll(k, 5)) for k in range(2)]
  found = packed_unrolls.cut(packed[:2 if offset else 1], offset)
  whole = play.unroll(0, 10)
  expected = tree.map_structure(
      lambda a: a[offset:offset + 6], (whole.env_outputs, whole.agent_outputs))
  _assert_equal((found.env_outputs, found.agent_outputs), expected)
  assert (found.level_name, found.policy_version, found.stream) == (
      'level_3', 0, (3, 0))


@pytest.mark.parametrize('breaks, num_frames', [((), 24), ((5,), 27)])
def test_an_unroll_of_atari_takes_8_6_kb_a_step(breaks, num_frames):
  """A quarter of the stacks, and 3 frames for each game that begins."""
  unroll = unrolls.make(7, _observation((84, 84, 4), np.uint8, breaks))
  size = packed_unrolls.size(packed_unrolls.pack(unroll))
  assert num_frames * 84 * 84 < size < num_frames * 84 * 84 + 3500
  if not breaks:
    np.testing.assert_allclose(size / 20, 8.6e3, rtol=.02)


@pytest.mark.parametrize('shape', [(84, 84, 4), (72, 96, 3)])
def test_nothing_else_is_kept_alive(shape):
  """Neither the unroll's own stacks, nor the message that it came in."""
  unroll = unrolls.make(7, _observation(shape, np.uint8))
  layout = unroll_layouts.unroll_layout(
      (), actor.initial_output(1, 3),
      (ArraySpec(shape, np.dtype(np.uint8)),), 20, 1)
  message = layout.encode(unroll_message.UnrollMessage(
      np.uint64(1), np.int64(1), np.int32(0), np.int64(7), (),
      unroll.env_outputs, unroll.agent_outputs))
  decoded = layout.decode(message)
  received = unroll._replace(
      env_outputs=decoded.env_outputs, agent_outputs=decoded.agent_outputs)
  for each in unroll, received:
    packed = packed_unrolls.pack(each)
    assert all(leaf.base is None for leaf in tree.flatten(packed)
               if isinstance(leaf, np.ndarray))
    _assert_equal(packed_unrolls.unpack(packed), unroll)


def test_the_buffers_memory_is_what_it_says():
  """To 5 percent, when it is full and goes on."""
  buffer = buffer_lib.Buffer(40, seed=1)
  tracemalloc.start()
  try:
    for number in range(120):
      buffer.extend([unrolls.make(
          number, stacks.make(np.random.default_rng(number), 21, 84, 84,
                              (7,) if number % 4 == 0 else ()))])
    held, _ = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  gauges = buffer.take_gauges()
  assert gauges['replay_unrolls'] == 40
  np.testing.assert_allclose(held / 1e6, gauges['replay_mb'], rtol=.05)
  np.testing.assert_allclose(gauges['replay_mb'] / 40 / 20, 8.6e-3, rtol=.05)
  drawn = buffer.sample(20)
  for unroll in drawn:
    number = int(unroll.policy_version)
    np.testing.assert_array_equal(
        unroll.env_outputs.observation[0], stacks.make(
            np.random.default_rng(number), 21, 84, 84,
            (7,) if number % 4 == 0 else ()))
