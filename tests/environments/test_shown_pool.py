"""Pools of one environment whose episode a person sees."""

import numpy as np
import pytest

from scalable_agent import environments
from scalable_agent.environments.pools import shown_pool


class Steps(environments.Pool):
  """One environment whose pixels count its steps from `offset`."""

  num_environments = 1
  num_actions = 3
  level_names = ['steps']

  def __init__(self, channels=4, offset=0, shape=(6, 8)):
    shape += (channels,)
    self.observation_spec = (
        environments.ArraySpec(shape, np.dtype(np.uint8)),)
    self.sent = []
    self.closed = False
    self._offset = offset

  def recv(self):
    step = len(self.sent)
    zero = np.zeros([1], np.float32)
    shape = (1,) + self.observation_spec[0].shape
    frame = np.full(shape, self._offset + step, np.uint8)
    return environments.PoolOutput(
        np.zeros([1], np.int32), environments.StepOutput(
            zero + step, environments.StepOutputInfo(zero, zero), zero > 0,
            (frame,)),
        is_first=np.array([step == 0]), is_last=np.array([False]))

  def send(self, ids, actions):
    self.sent.append((ids.tolist(), actions.tolist()))

  def close(self):
    self.closed = True


@pytest.mark.parametrize('screens, offset, channels', [
    (None, 0, 4), (Steps(3, 100), 100, 3)])
def test_the_last_entry_is_what_is_seen(screens, offset, channels):
  """That of the screens, which get the same actions, or the pool's own."""
  own = Steps()
  pool = shown_pool.ShownPool(own, screens)
  assert pool.observation_spec[0] == own.observation_spec[0]
  assert pool.observation_spec[1].shape == (6, 8, channels)
  for step in range(3):
    output = pool.recv()
    observation, seen = output.step_output.observation
    assert output.step_output.reward == step
    assert observation.shape == (1, 6, 8, 4) and (observation == step).all()
    assert seen.shape == (1, 6, 8, channels) and (seen == offset + step).all()
    pool.send(np.array([0]), np.array([step]))
  pool.close()
  for each in [own] + ([screens] if screens else []):
    assert each.sent == [([0], [0]), ([0], [1]), ([0], [2])]
    assert each.closed


def test_what_is_no_image_is_refused_and_closed():
  own = Steps(shape=(8,))
  with pytest.raises(environments.PoolError, match='^steps cannot be shown'):
    shown_pool.ShownPool(own)
  assert own.closed


@pytest.mark.parametrize('shape, dtype, expected', [
    ((84, 84, 4), np.uint8, True), ((72, 96, 3), np.uint8, True),
    ((4,), np.float32, False), ((8, 8, 3), np.float32, False),
    ((10, 10, 10), np.uint8, True), ((8, 8, 17), np.uint8, False)])
def test_is_image(shape, dtype, expected):
  assert shown_pool.is_image(
      environments.ArraySpec(shape, np.dtype(dtype))) == expected


def test_a_picture_has_three_colours_or_the_newest_grey_frame():
  coloured = np.random.default_rng(0).integers(
      256, size=(5, 6, 3), dtype=np.uint8)
  assert shown_pool.picture_of(coloured) is coloured
  stack = np.random.default_rng(0).integers(256, size=(5, 6, 4), dtype=np.uint8)
  np.testing.assert_array_equal(shown_pool.picture_of(stack), stack[..., 3:])
  binary = coloured[..., :1] // 128 * 255
  np.testing.assert_array_equal(shown_pool.picture_of(binary), binary)


def test_planes_have_a_shade_each_and_the_last_is_on_top():
  planes = np.zeros([2, 2, 5], np.uint8)
  planes[0, 0, 0] = planes[0, 1, 4] = planes[1, 0, 1] = planes[1, 0, 2] = 255
  picture = shown_pool.picture_of(planes)
  assert picture.dtype == np.uint8
  assert picture.tolist() == [[[51], [255]], [[153], [0]]]
