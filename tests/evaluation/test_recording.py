"""GIFs of episodes."""

import contextlib

import numpy as np
from PIL import Image
from PIL import ImageSequence
import pytest

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.evaluation import recording

pytestmark = pytest.mark.usefixtures('bounded')


class Steps(environments.Pool):
  """One environment that is shown: what is seen counts its steps.

  Its episodes have `length` steps.
  """

  num_environments = 1

  def __init__(self, length):
    self.sent = []
    self._length = length

  def recv(self):
    step = len(self.sent)
    zero = np.zeros([1], np.float32)
    seen = np.full([1, 6, 8, 3], step, np.uint8)
    return environments.PoolOutput(
        np.zeros([1], np.int32), environments.StepOutput(
            zero, environments.StepOutputInfo(zero, zero), zero > 0,
            (zero, zero + 1, seen)),
        is_first=np.array([step == 0]),
        is_last=np.array([step > 0 and step % self._length == 0]))

  def send(self, ids, actions):
    self.sent.append(int(actions[0]))


def _counting_policy(last_actions, env_output, core_state):
  """Acts by a core state that counts, and checks what it is given."""
  (count,) = core_state
  assert last_actions[0] == (count[0] if count[0] else 0)
  assert env_output.info == () and env_output.observation == (0, 1)
  return (trajectories.AgentOutput((count + 1).astype(np.int32), None, None),
          (count + 1,), None)


def _play(pool, **kwargs):
  return list(recording.play(
      pool, _counting_policy, (np.zeros([1], np.int32),), **kwargs))


def test_one_episode_is_shown_from_its_first_step_to_its_last():
  pool = Steps(5)
  frames = _play(pool)
  assert [frame[0, 0, -1] for frame in frames] == [0, 1, 2, 3, 4]
  assert pool.sent == [1, 2, 3, 4, 5]


def test_a_long_episode_is_cut():
  assert len(_play(Steps(100), max_steps=7)) == 7


@pytest.mark.parametrize('channels, num_action_repeats, milliseconds', [
    (1, 6, 100), (3, 4, 70)])
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


def test_an_interrupted_gif_leaves_nothing(tmp_path):
  """Where there was one before, it stays."""
  (tmp_path / 'b.gif').write_text('whole')

  def frames():
    yield np.zeros([6, 8, 3], np.uint8)
    raise KeyboardInterrupt

  for name in 'a.gif', 'b.gif':
    with pytest.raises(KeyboardInterrupt):
      recording.write_gif(tmp_path / name, frames(), 4)
  assert [path.name for path in tmp_path.iterdir()] == ['b.gif']
  assert (tmp_path / 'b.gif').read_text() == 'whole'


def test_what_is_seen_of_atari_is_the_game_that_is_played():
  """Grey and stacked, it is what the agent observes."""
  config = config_lib.resolve(
      dict(level_name='breakout', width=160, height=210))
  rng = np.random.RandomState(0)
  rewards = 0
  with contextlib.closing(suites.make_shown_pool(config, 9)) as pool:
    assert pool.observation_spec[1].shape == (210, 160, 3)
    for _ in range(300):
      ids, step, _, _ = pool.recv()
      rewards += step.reward[0]
      stack, seen = step.observation
      rgb = seen[0].astype(np.float64)
      grey = rgb @ [.299, .587, .114]
      assert np.abs(grey - stack[0, ..., -1]).mean() < 2
      pool.send(ids, rng.randint(pool.num_actions, size=1))
  assert rewards > 0
  assert (rgb.max(axis=-1) - rgb.min(axis=-1)).max() > 50  # Not grey.
