"""Writes an episode of an agent as a GIF."""

import os

import numpy as np
from PIL import Image
import tree

# Ten minutes of play. Longer episodes are cut there, because every frame of a
# GIF is held in memory until it is written.
MAX_STEPS = 9000
_FRAMES_PER_SECOND = 60


def is_image(spec):
  """Whether observations of an `environments.ArraySpec` can be shown."""
  return (len(spec.shape) == 3 and spec.dtype == np.uint8 and
          spec.shape[-1] <= 4)


def play(pool, screens, policy, initial_state, max_steps=MAX_STEPS):
  """Plays one episode, actions sampled from the policy.

  Args:
    pool: An `environments.Pool` of one environment.
    screens: None to show the pool's observations, or a pool of one environment
      of the same seed whose observations are shown instead.
    policy: As for `actor.Actor`.
    initial_state: Core state, [1, ...].
    max_steps: Agent steps after which the episode is cut.

  Yields:
    Images, uint8 [height, width, channels], one for each agent step.

  Raises:
    environments.PoolError: An environment died.
  """
  core_state = tree.map_structure(np.copy, initial_state)
  actions = np.zeros([1], np.int32)
  for _ in range(max_steps):
    ids, env_output, _, is_last = pool.recv()
    shown = screens.recv().step_output if screens else env_output
    if is_last[0]:
      return
    yield shown.observation[0][0]
    output, core_state, _ = policy(
        actions, env_output._replace(info=()), core_state)
    actions = output.action
    for each in (pool, screens) if screens else (pool,):
      each.send(ids, actions)


def _to_image(frame):
  if frame.shape[-1] == 3:
    return Image.fromarray(frame).quantize(dither=Image.Dither.NONE)
  return Image.fromarray(frame[..., -1])  # The newest of a grey stack.


def write_gif(path, frames, num_action_repeats):
  """Writes frames at the speed a person would play.

  Args:
    path: File to write.
    frames: An iterable of images as `play` yields them, at least one.
    num_action_repeats: Environment frames from one to the next, of which there
      are 60 in a second.
  """
  images = map(_to_image, frames)
  first = next(images)
  temporary = f'{path}.{os.getpid()}.tmp'
  first.save(temporary, format='gif', save_all=True, append_images=images,
             # A GIF counts in hundredths of a second.
             duration=10 * round(100 * num_action_repeats / _FRAMES_PER_SECOND),
             loop=0)
  os.replace(temporary, path)
