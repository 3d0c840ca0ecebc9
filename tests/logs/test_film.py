"""Films of training: one environment's episode, from its beginning."""

import numpy as np
import pytest

from scalable_agent import environments
from scalable_agent.logs import film


class Counting(environments.Pool):
  """Environments whose frames count their steps; episodes take `length`."""

  def __init__(self, num_environments, length, shape=(4, 6, 4),
               dtype=np.uint8):
    self.num_environments = num_environments
    self.observation_spec = (environments.ArraySpec(shape, np.dtype(dtype)),)
    self.level_names = [f'level {i}' for i in range(num_environments)]
    self.step = 0
    self.died = False
    self.length = length
    self.sent = []

  def recv(self):
    size, shape = self.num_environments, self.observation_spec[0].shape
    frame = np.zeros((size, *shape), np.uint8)
    frame[..., -1] = self.step
    output = environments.PoolOutput(
        np.arange(size, dtype=np.int32),
        environments.StepOutput(None, None, None, (frame,)),
        is_first=np.full([size], self.step == 0 or self.died),
        is_last=np.full(
            [size], self.step > 0 and self.step % self.length == 0))
    self.step += 1
    self.died = False
    return output

  def send(self, ids, actions):
    self.sent.append((ids, actions))


def _recv(camera, count):
  for _ in range(count):
    camera.recv()


def _shown(taken):
  return [frame[0, 0, -1] for frame in taken.frames]


def test_the_next_whole_episode_is_filmed():
  camera = film.Camera(Counting(2, length=3))
  _recv(camera, 2)
  assert camera.take() is None
  camera.start()
  _recv(camera, 4)
  assert camera.take() is None
  _recv(camera, 1)
  taken = camera.take()
  assert taken.level_name == 'level 0'
  assert _shown(taken) == [3, 4, 5]
  assert taken.frames[0].shape == (4, 6, 1)
  _recv(camera, 9)
  assert camera.take() is None


def test_environments_take_turns():
  """So that the levels of a suite do."""
  camera = film.Camera(Counting(2, length=2))
  names = []
  for _ in range(3):
    camera.start()
    _recv(camera, 5)
    names.append(camera.take().level_name)
  assert names == ['level 0', 'level 1', 'level 0']


def test_a_new_environment_begins_a_new_film():
  pool = Counting(1, length=4)
  camera = film.Camera(pool)
  camera.start()
  _recv(camera, 2)
  pool.died = True
  _recv(camera, 3)
  assert _shown(camera.take()) == [2, 3]


def test_long_episodes_are_cut(monkeypatch):
  monkeypatch.setattr(film, 'MAX_STEPS', 5)
  camera = film.Camera(Counting(1, length=100))
  camera.start()
  _recv(camera, 8)
  assert _shown(camera.take()) == [0, 1, 2, 3, 4]


def test_colours_are_kept_and_what_is_no_image_is_not_filmed():
  camera = film.Camera(Counting(1, length=2, shape=(4, 6, 3)))
  camera.start()
  _recv(camera, 3)
  assert camera.take().frames[0].shape == (4, 6, 3)
  for shape, dtype in (((7,), np.uint8), ((4, 6, 3), np.float32)):
    camera = film.Camera(Counting(1, length=2, shape=shape, dtype=dtype))
    camera.start()
    _recv(camera, 3)
    assert camera.take() is None


def test_frames_are_not_those_that_a_pool_writes_over():
  pool = Counting(1, length=2)
  camera = film.Camera(pool)
  camera.start()
  camera.recv().step_output.observation[0][:] = 77
  _recv(camera, 2)
  assert _shown(camera.take()) == [0, 1]


def test_actions_reach_the_pool():
  pool = Counting(1, length=2)
  film.Camera(pool).send('ids', 'actions')
  assert pool.sent == [('ids', 'actions')]


@pytest.mark.parametrize('starts', [1, 3])
def test_to_start_while_filming_changes_nothing(starts):
  camera = film.Camera(Counting(2, length=3))
  for _ in range(starts):
    camera.start()
    camera.recv()
  _recv(camera, 3)
  assert _shown(camera.take()) == [0, 1, 2]
