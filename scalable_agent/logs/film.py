"""Films an episode of training now and then."""

import collections
import threading

import numpy as np

from scalable_agent.environments.pools import shown_pool

# Longer episodes are cut there: more than a minute of Atari.
MAX_STEPS = 1000

Film = collections.namedtuple('Film', 'level_name frames')
Film.__doc__ = """An episode, or its beginning.

  level_name: String.
  frames: A list of `shown_pool.picture_of`, one for each agent step.
"""


class Camera:
  """Stands between a pool and its actor, and films when it is asked to.

  `recv` and `send` are those of the pool. One thread may call them, and another
  one the rest.
  """

  def __init__(self, pool):
    """Initializes the camera for an `environments.Pool`."""
    self._pool = pool
    self._can_film = shown_pool.is_image(pool.observation_spec[0])
    self._next_id = 0
    self._lock = threading.Lock()
    self._id = None  # The environment to film, None if there is none.
    self._frames = None  # None until its next episode begins.
    self._film = None

  def start(self):
    """Films the next episode of one environment, of each in turn.

    In the pools of a suite the environments have different levels.
    """
    with self._lock:
      if self._can_film and self._id is None:
        self._id = self._next_id % self._pool.num_environments
        self._next_id += 1

  def recv(self):
    """As `environments.Pool.recv`."""
    output = self._pool.recv()
    if self._id is not None:
      with self._lock:
        for i in np.flatnonzero(output.ids == self._id):
          self._see(output.step_output.observation[0][i], output.is_first[i],
                    output.is_last[i])
    return output

  def send(self, ids, actions):
    """As `environments.Pool.send`."""
    self._pool.send(ids, actions)

  def _see(self, frame, is_first, is_last):
    if is_last and self._frames:
      self._finish()
      return
    # Another environment may have taken the place of one that died.
    if is_first or is_last:
      self._frames = []
    if self._frames is None:
      return
    self._frames.append(shown_pool.picture_of(frame).copy())
    if len(self._frames) == MAX_STEPS:
      self._finish()

  def _finish(self):
    self._film = Film(self._pool.level_names[self._id], self._frames)
    self._id = self._frames = None

  def take(self):
    """Returns the `Film` that was finished since the last call, or None."""
    with self._lock:
      film, self._film = self._film, None
    return film
