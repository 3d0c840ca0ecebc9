"""Messages with stacks of frames: bit-equal, and smaller where they can be."""

import collections

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent import environments
from scalable_agent.environments import ArraySpec
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import stacked_layout
from tests import stacks

_Message = collections.namedtuple('_Message', 'level env_outputs')


def _message(frames):
  steps = lambda dtype: np.zeros([len(frames)], dtype)
  return _Message(np.int32(3), environments.StepOutput(
      steps(np.float32), (), steps(np.bool_), (frames,)))


def _layout(frames, finite=True):
  spec = lambda a: ArraySpec(a.shape, a.dtype)
  message = _message(frames)
  outputs = message.env_outputs
  return stacked_layout.StackedLayout(_Message(
      spec(message.level), environments.StepOutput(
          spec(outputs.reward), (), spec(outputs.done), (spec(frames),))), {},
                                      finite)


@given(**stacks.small(max_breaks=2))
def test_what_comes_out_went_in(length, height, width, seed, breaks):
  frames = stacks.make(
      np.random.default_rng(seed), length, height, width, breaks)
  layout = _layout(frames)
  encoded = layout.encode(_message(frames))
  decoded = layout.decode(encoded)
  np.testing.assert_array_equal(decoded.env_outputs.observation[0], frames)
  assert decoded.env_outputs.observation[0].dtype == np.uint8
  assert layout.peek(encoded, 'level') == 3
  assert decoded.level == 3
  assert len(encoded) <= layout.num_bytes


@given(length=st.integers(1, 5), height=st.integers(1, 7),
       width=st.integers(1, 7), breaks=st.lists(st.booleans(), min_size=1))
@example(length=3, height=4, width=4, breaks=[True])  # Both have one length.
def test_packed_and_whole_ones_in_a_row(length, height, width, breaks):
  rng = np.random.default_rng(0)
  observations = [stacks.make(rng, length, height, width, {1} if broken else ())
                  for broken in breaks]
  layout = _layout(observations[0])
  nests = wire.decode_all(layout, wire.join(
      [layout.encode(_message(frames)) for frames in observations]))
  for nest, frames in zip(nests, observations, strict=True):
    np.testing.assert_array_equal(nest.env_outputs.observation[0], frames)


def test_each_frame_is_sent_once():
  frames = stacks.make(np.random.default_rng(0), 21, 84, 84)
  size = len(_layout(frames).encode(_message(frames)))
  assert 24 * 84 * 84 < size < 24 * 84 * 84 + 1000


def test_rejects_what_is_of_neither_length():
  frames = stacks.make(np.random.default_rng(0), 5, 6, 7)
  layout = _layout(frames)
  message = layout.encode(_message(frames))
  for wrong in (message[:-1], message + b'x', b'', b'x' * len(message)):
    with pytest.raises(wire.WireError):
      layout.decode(wrong)


@pytest.mark.parametrize('breaks', [(), (2,)])
def test_floats_are_finite_where_they_have_to_be(breaks):
  frames = stacks.make(np.random.default_rng(0), 5, 6, 7, breaks)
  message = _message(frames)
  message.env_outputs.reward[1] = np.nan
  encoded = _layout(frames).encode(message)
  with pytest.raises(wire.WireError, match='env_outputs.reward'):
    _layout(frames).decode(encoded)
  decoded = _layout(frames, finite=False).decode(encoded)
  np.testing.assert_array_equal(
      decoded.env_outputs.reward, message.env_outputs.reward)
