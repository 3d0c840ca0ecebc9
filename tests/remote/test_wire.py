"""Messages: exact, readable by others, and refused if they are not as agreed.
"""

import collections
import json

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import numpy as np
import pytest
import safetensors.numpy
import tree

from scalable_agent import trajectories
from scalable_agent.environments import ArraySpec
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import unroll_layouts
from scalable_agent.unroll_messages import unroll_message
from tests.remote import remote_parts

Pair = collections.namedtuple('Pair', 'left right')

_DTYPES = ('bool', 'uint8', 'int8', 'int16', 'uint16', 'int32', 'uint32',
           'int64', 'uint64', 'float16', 'float32', 'float64')
_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def _arrays():
  def of_dtype(name):
    dtype = np.dtype(name)
    elements = None
    if dtype.kind == 'f':
      elements = st.floats(width=dtype.itemsize * 8, allow_nan=False,
                           allow_infinity=False)
    return hnp.arrays(dtype, _SHAPES, elements=elements)
  return st.sampled_from(_DTYPES).flatmap(of_dtype)


def _nests():
  return st.recursive(
      _arrays(),
      lambda children: st.one_of(
          st.lists(children, max_size=3).map(tuple),
          st.builds(Pair, children, children),
          st.dictionaries(st.sampled_from(['a', 'b/w', 'c d']), children)),
      max_leaves=6).filter(lambda nest: not isinstance(nest, np.ndarray))


def _assert_same(a, b):
  assert type(a) is type(b) or isinstance(a, np.ndarray)
  if isinstance(a, dict):
    assert set(a) == set(b)
    for name in a:
      _assert_same(a[name], b[name])
  elif isinstance(a, tuple):
    assert len(a) == len(b)
    for pair in zip(a, b):
      _assert_same(*pair)
  else:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


@hypothesis.given(_nests())
@hypothesis.settings(max_examples=100)
def test_round_trip(nest):
  layout = wire.Layout(nest)
  message = layout.encode(nest)
  assert len(message) == layout.num_bytes
  assert message.startswith(layout.header)
  _assert_same(layout.decode(message), nest)


@hypothesis.given(_nests(), st.integers(1, 4))
@hypothesis.settings(max_examples=100)
def test_several_make_one(nest, count):
  layout = wire.Layout(nest)
  message = layout.encode(nest)
  joined = wire.join([message] * count)
  assert len(joined) < count * (len(message) + 8)
  nests = wire.decode_all(layout, joined)
  assert len(nests) == count
  for other in nests:
    _assert_same(other, nest)
    assert all(leaf.flags.aligned for _, leaf in wire.paths(other))
  # The last one need not be aligned.
  assert len(wire.decode_all(layout, message)) == 1


@pytest.mark.parametrize('change', [
    lambda m: b'', lambda m: m[:-8], lambda m: m + b'\0', lambda m: m[:16],
    lambda m: m[:40] + m[41:], lambda m: m[:-1] + b'\1'])
def test_what_is_not_several_is_refused(change):
  nest = dict(a=np.ones([3], np.uint8))
  layout = wire.Layout(nest)
  joined = wire.join([layout.encode(nest)] * 2)
  wire.decode_all(layout, joined)
  with pytest.raises(wire.WireError):
    wire.decode_all(layout, change(joined))


@hypothesis.given(_nests())
@hypothesis.settings(max_examples=100)
def test_safetensors_reads_it(nest):
  named = dict(wire.paths(nest))
  read = safetensors.numpy.load(wire.Layout(nest).encode(nest))
  assert set(read) == set(named)
  for name, array in named.items():
    assert read[name].dtype == array.dtype
    np.testing.assert_array_equal(read[name], array)


def test_headers_depend_on_shapes_and_dtypes_alone():
  spec = dict(a=ArraySpec((2,), np.float32), b=ArraySpec((), np.int32))
  arrays = dict(a=np.ones([2], np.float32), b=np.zeros([], np.int32))
  header = wire.Layout(spec).header
  assert wire.Layout(arrays).header == header
  assert wire.Layout(arrays, dict(b=(0, 3))).header == header
  for change in (dict(a=ArraySpec((3,), np.float32)),
                 dict(a=ArraySpec((1, 2), np.float32)),
                 dict(a=ArraySpec((2,), np.int32)),
                 dict(c=ArraySpec((), np.int32))):
    assert wire.Layout(dict(spec, **change)).header != header


def test_arrays_are_aligned_and_not_copied():
  nest = (np.ones([3], bool), np.ones([5], np.float64), np.ones([], np.int16))
  layout = wire.Layout(nest)
  message = layout.encode(nest)
  assert len(layout.header) % 8 == 0
  header = json.loads(layout.header[8:])
  for (name, array) in wire.paths(nest):
    assert header[name]['data_offsets'][0] % array.itemsize == 0
  for array in layout.decode(message):
    assert not array.flags.owndata and not array.flags.writeable


@pytest.mark.parametrize('template', [
    np.zeros(3), {'a': {'b': np.zeros(1)}, 'a.b': np.zeros(1)},
    {'__metadata__': np.zeros(1)}, {'a': np.zeros(1, '>f4')},
    {'a': np.zeros(1, 'complex64')}, {'a': np.array(['text'])}])
def test_refuses_what_the_format_cannot_say(template):
  with pytest.raises(ValueError):
    wire.Layout(template)


def test_refuses_bounds_of_nothing():
  with pytest.raises(ValueError, match='b'):
    wire.Layout(dict(a=np.zeros(1)), dict(b=(0, 1)))


@pytest.mark.parametrize('nest', [
    dict(a=np.zeros([3], np.float32)), dict(a=np.zeros([2], np.float64)),
    dict(a=np.zeros([2], np.float32), b=np.zeros(1)), {}])
def test_encode_refuses_other_arrays(nest):
  with pytest.raises(ValueError):
    wire.Layout(dict(a=ArraySpec((2,), np.float32))).encode(nest)


_LAYOUT = remote_parts.unroll_layout(finite=True)
_MESSAGE = remote_parts.put_message(session=5, sequence=1)


def _offset(name):
  header = json.loads(_LAYOUT.header[8:])
  return len(_LAYOUT.header) + header[name]['data_offsets'][0]


def _poke(name, value, dtype):
  start = _offset(name)
  data = np.array(value, dtype).tobytes()
  return _MESSAGE[:start] + data + _MESSAGE[start + len(data):]


@pytest.mark.parametrize('message, what', [
    (b'', 'header'),
    (_MESSAGE[:-1], 'bytes'),
    (_MESSAGE + b'\0', 'bytes'),
    (_MESSAGE[:len(_LAYOUT.header)], 'bytes'),
    (_MESSAGE[1:], 'header'),
    (_LAYOUT.header[:-1], 'header'),
    (_poke('env_outputs.reward', np.nan, '<f4'), 'env_outputs.reward'),
    (_poke('env_outputs.reward', -np.inf, '<f4'), 'env_outputs.reward'),
    (_poke('agent_state.c', np.inf, '<f4'), 'agent_state.c'),
    (_poke('env_outputs.done', 2, 'u1'), 'env_outputs.done'),
    (_poke('env_outputs.done', 255, 'u1'), 'env_outputs.done'),
    (_poke('agent_outputs.action', remote_parts.NUM_ACTIONS, '<i4'),
     'agent_outputs.action'),
    (_poke('agent_outputs.action', -1, '<i4'), 'agent_outputs.action'),
    (_poke('env_outputs.observation.1', 1000, '<i4'), 'observation.1'),
    (_poke('env_outputs.observation.1', -2, '<i4'), 'observation.1'),
    (_poke('env_outputs.info.episode_step', -1, '<i4'), 'episode_step'),
    (_poke('level', 2, '<i4'), 'level'),
    (_poke('level', -1, '<i4'), 'level'),
    (_poke('sequence', 0, '<i8'), 'sequence'),
    (_poke('policy_version', -1, '<i8'), 'policy_version'),
])
def test_refuses(message, what):
  with pytest.raises(wire.WireError, match=what):
    _LAYOUT.decode(message)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('name', [
    'env_outputs.reward', 'env_outputs.info.episode_return',
    'agent_outputs.policy_logits', 'agent_outputs.baseline', 'agent_state.c'])
def test_an_unroll_that_is_not_finite_is_the_learners_to_skip(name, value):
  message = _poke(name, value, '<f4')
  with pytest.raises(wire.WireError, match=f'{name} has .* not finite'):
    _LAYOUT.decode(message)
  layout = remote_parts.unroll_layout()
  unroll = layout.decode(message)
  assert_in_bounds(unroll, finite=False)
  assert layout.encode(unroll) == message


@pytest.mark.parametrize('part, is_refused', [
    ('dense', False), ('logs', False), ('touched', True)])
def test_a_gradient_that_is_not_finite_is_the_learners_to_skip(
    part, is_refused):
  """Which it does by the norm; what says which rows to update is no part of it.
  """
  array = np.ones([3], np.float32)
  gradient = trajectories.Gradient(
      {'a/w': array}, {'a/w': array}, {'total_loss': array[0]})
  length = remote_parts.UNROLL_LENGTH
  unroll = remote_parts.make_unroll(0)
  layout = unroll_layouts.gradient_layout(
      gradient, unroll.agent_outputs, length, num_levels=1)
  bad = gradient._replace(**{part: tree.map_structure(
      lambda a: np.full_like(a, np.nan), getattr(gradient, part))})
  message = layout.encode(unroll_message.UnrollMessage(
      session=np.uint64(1), sequence=np.int64(1), level=np.int32(0),
      policy_version=np.int64(0), agent_state=(),
      env_outputs=unroll.env_outputs._replace(observation=()),
      agent_outputs=unroll.agent_outputs, gradient=bad))
  if is_refused:
    with pytest.raises(wire.WireError, match=(
        f'gradient.{part}.a/w has values outside of ')):
      layout.decode(message)
  else:
    found = layout.decode(message).gradient
    np.testing.assert_equal(tree.flatten(found), tree.flatten(bad))


def test_peek_reads_one_value():
  for session in (0, 7, 2**64 - 1):
    message = remote_parts.put_message(session=session, sequence=9)
    assert _LAYOUT.peek(message, 'session') == session
    assert _LAYOUT.peek(message, 'sequence') == 9
    # Several have the number of the first.
    several = wire.join([message, _MESSAGE])
    assert _LAYOUT.peek(several, 'session') == session
  # What else there is is for `decode`.
  end = _offset('session') + 8
  assert _LAYOUT.peek(_MESSAGE[:end], 'session') == 5
  for bad in (b'', _MESSAGE[:end - 1], _MESSAGE[1:], b'x' + _MESSAGE[1:]):
    with pytest.raises(wire.WireError, match='the header'):
      _LAYOUT.peek(bad, 'session')


@st.composite
def _mutations(draw):
  message = bytearray(_MESSAGE)
  for _ in range(draw(st.integers(1, 4))):
    kind = draw(st.sampled_from(['flip', 'header', 'cut', 'insert', 'word']))
    end = len(_LAYOUT.header) if kind == 'header' else len(message)
    at = draw(st.integers(0, max(min(end, len(message)) - 1, 0)))
    if kind == 'cut':
      del message[at:at + draw(st.integers(1, 40))]
    elif kind == 'insert':
      message[at:at] = draw(st.binary(min_size=1, max_size=40))
    elif kind == 'word':
      word = draw(st.sampled_from([
          b'\xff' * 4, b'\0\0\x80\x7f', b'\0\0\xc0\x7f',
          b'\xff\xff\xff\x7f', b'\0' * 4]))
      message[at:at + 4] = word
    elif message:
      message[at] ^= draw(st.integers(1, 255))
  return bytes(message)


def assert_in_bounds(unroll, finite=True):
  """Of an `UnrollMessage` that was decoded, or an `ActorOutput`."""
  length = remote_parts.UNROLL_LENGTH + 1
  env, agent = unroll.env_outputs, unroll.agent_outputs
  assert env.observation[0].shape == (length, 2, 2, 1)
  assert env.observation[0].dtype == np.uint8
  words = env.observation[1]
  assert words.shape == (length, 3) and words.dtype == np.int32
  assert words.min() >= -1 and words.max() < 1000
  assert env.done.view(np.uint8).max() <= 1
  assert agent.action.shape == (length,)
  assert 0 <= agent.action.min()
  assert agent.action.max() < remote_parts.NUM_ACTIONS
  for array in (env.reward, env.info.episode_return, agent.policy_logits,
                agent.baseline, *unroll.agent_state):
    assert array.dtype == np.float32
    assert not finite or np.isfinite(array).all()
  assert unroll.policy_version >= 0


@hypothesis.given(_mutations())
@hypothesis.settings(max_examples=500)
def test_a_mutated_message_is_refused_or_in_bounds(message):
  try:
    unroll = _LAYOUT.decode(message)
  except wire.WireError:
    return
  assert len(message) == len(_MESSAGE)
  assert_in_bounds(unroll)
  assert 0 <= unroll.level < len(remote_parts.LEVELS)
