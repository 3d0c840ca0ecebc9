"""Writes an episode of an agent as a GIF."""

import numpy as np
import tree

from scalable_agent.environments.pools import shown_pool
from scalable_agent.files import gif
from scalable_agent.files import whole_file

# Ten minutes of play. Longer episodes are cut there, because every frame of a
# GIF is held in memory until it is written.
MAX_STEPS = 9000


def play(pool, policy, initial_state, max_steps=MAX_STEPS):
  """Plays one episode, actions sampled from the policy.

  Args:
    pool: Of `suites.make_shown_pool`.
    policy: As for `actor.Actor`.
    initial_state: Core state, [1, ...].
    max_steps: Agent steps after which the episode is cut.

  Yields:
    Images of `shown_pool.picture_of`, one for each agent step.

  Raises:
    environments.PoolError: An environment died.
  """
  core_state = tree.map_structure(np.copy, initial_state)
  actions = np.zeros([1], np.int32)
  for _ in range(max_steps):
    ids, env_output, _, is_last = pool.recv()
    if is_last[0]:
      return
    *observation, shown = env_output.observation
    yield shown_pool.picture_of(shown[0])
    output, core_state, _ = policy(
        actions, env_output._replace(info=(), observation=tuple(observation)),
        core_state)
    actions = output.action
    pool.send(ids, actions)


def write_gif(path, frames, num_action_repeats):
  """Writes frames at the speed a person would play.

  Args:
    path: File to write.
    frames: An iterable of images as `play` yields them, at least one.
    num_action_repeats: Environment frames from one to the next.
  """
  with whole_file.replacing(path) as temporary:
    gif.write(temporary, frames, num_action_repeats)
