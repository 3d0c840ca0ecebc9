"""GIFs of episodes."""

import numpy as np
from PIL import Image
from PIL import ImageSequence
import pytest

from scalable_agent import environments
from scalable_agent import trajectories
from scalable_agent.environments import atari
from scalable_agent.evaluation import recording

pytestmark = pytest.mark.usefixtures('bounded')


class Steps(environments.Pool):
  """One environment whose pixels count its steps.

  Its episodes have `length` steps.
  """

  num_environments = 1

  def __init__(self, length, channels=4, offset=0):
    self.sent = []
    self._length = length
    self._channels = channels
    self._offset = offset

  def recv(self):
    step = len(self.sent)
    zero = np.zeros([1], np.float32)
    frame = np.zeros([1, 6, 8, self._channels], np.uint8)
    frame[..., -1] = self._offset + step
    return environments.PoolOutput(
        np.zeros([1], np.int32), environments.StepOutput(
            zero, environments.StepOutputInfo(zero, zero), zero > 0, (frame,)),
        is_first=np.array([step == 0]),
        is_last=np.array([step > 0 and step % self._length == 0]))

  def send(self, ids, actions):
    self.sent.append(int(actions[0]))


def _counting_policy(last_actions, env_output, core_state):
  """Acts by a core state that counts, and checks what it is given."""
  (count,) = core_state
  assert last_actions[0] == (count[0] if count[0] else 0)
  assert env_output.info == ()
  return (trajectories.AgentOutput((count + 1).astype(np.int32), None, None),
          (count + 1,), None)


def _play(pool, screens=None, **kwargs):
  return list(recording.play(
      pool, screens, _counting_policy, (np.zeros([1], np.int32),), **kwargs))


def test_one_episode_is_shown_from_its_first_step_to_its_last():
  pool = Steps(5)
  frames = _play(pool)
  assert [frame[0, 0, -1] for frame in frames] == [0, 1, 2, 3, 4]
  assert pool.sent == [1, 2, 3, 4, 5]


def test_a_long_episode_is_cut():
  assert len(_play(Steps(100), max_steps=7)) == 7


def test_screens_show_the_same_episode():
  """They get the same actions, and their observations are what is seen."""
  pool, screens = Steps(4), Steps(4, channels=3, offset=100)
  frames = _play(pool, screens)
  assert [frame.shape for frame in frames] == [(6, 8, 3)] * 4
  assert [frame[0, 0, -1] for frame in frames] == [100, 101, 102, 103]
  assert screens.sent == pool.sent


@pytest.mark.parametrize('channels, num_action_repeats, milliseconds', [
    (1, 6, 100), (3, 4, 70), (4, 3, 50)])
def test_gif_has_every_frame_at_the_speed_of_play(
    tmp_path, channels, num_action_repeats, milliseconds):
  path = tmp_path / 'a.gif'
  frames = []
  for i in range(6):
    frame = np.zeros([6, 8, channels], np.uint8)
    frame[..., -1] = 40 * i
    frames.append(frame)
  recording.write_gif(path, iter(frames), num_action_repeats)
  with Image.open(path) as gif:
    assert gif.size == (8, 6)
    durations, pixels = [], []
    for image in ImageSequence.Iterator(gif):
      durations.append(image.info['duration'])
      pixels.append(image.convert('RGB').getpixel((3, 3)))
  assert durations == [milliseconds] * 6
  grey = lambda i: (0, 0, 40 * i) if channels == 3 else (40 * i,) * 3
  assert pixels == [grey(i) for i in range(6)]
  assert [p.name for p in tmp_path.iterdir()] == ['a.gif']


@pytest.mark.parametrize('shape, dtype, expected', [
    ((84, 84, 4), np.uint8, True), ((72, 96, 3), np.uint8, True),
    ((4,), np.float32, False), ((8, 8, 3), np.float32, False),
    ((8, 8, 7), np.uint8, False)])
def test_is_image(shape, dtype, expected):
  assert recording.is_image(
      environments.ArraySpec(shape, np.dtype(dtype))) == expected


def test_colour_screens_of_atari_show_the_game_that_is_played():
  """Grey, shrunken and stacked, they are what the agent sees."""
  make = lambda **kwargs: atari.AtariPool(
      'breakout', 1, seed=9, num_threads=1, **kwargs)
  pool = make(width=160, height=210)
  screens = make(width=160, height=210, colour=True)
  assert screens.observation_spec[0].shape == (210, 160, 3)
  rng = np.random.RandomState(0)
  rewards = 0
  for _ in range(300):
    ids, seen, _, _ = pool.recv()
    _, shown, _, _ = screens.recv()
    np.testing.assert_array_equal(seen.reward, shown.reward)
    rewards += seen.reward[0]
    rgb = shown.observation[0][0].astype(np.float64)
    grey = rgb @ [.299, .587, .114]
    assert np.abs(grey - seen.observation[0][0, ..., -1]).mean() < 2
    actions = rng.randint(pool.num_actions, size=1)
    pool.send(ids, actions)
    screens.send(ids, actions)
  assert rewards > 0
  assert (rgb.max(axis=-1) - rgb.min(axis=-1)).max() > 50  # Not grey.
