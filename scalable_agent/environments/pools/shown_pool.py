"""Shows the episode of one environment as a person sees it."""

import numpy as np

from scalable_agent import environments


# MinAtar has up to 10 planes.
MAX_CHANNELS = 16


def is_image(spec):
  """Whether observations of an `environments.ArraySpec` can be shown."""
  return (len(spec.shape) == 3 and spec.dtype == np.uint8 and
          spec.shape[-1] <= MAX_CHANNELS)


def picture_of(image):
  """Returns what a person is to see of an image.

  Args:
    image: uint8 [height, width, channels]: red, green and blue; planes, each of
      which says by 0 and 255 where something is; or grey frames, the newest
      last.

  Returns:
    uint8 [height, width, 3], or grey [height, width, 1]: each plane in a shade
    of its own, or the newest frame.
  """
  channels = image.shape[-1]
  if channels == 3:
    return image
  if channels > 1 and np.isin(image, (0, 255)).all():
    shades = 255 * np.arange(1, channels + 1) // channels
    return np.where(image, shades, 0).max(axis=-1, keepdims=True).astype(
        np.uint8)
  return image[..., -1:]


class ShownPool(environments.Pool):
  """One environment whose observations have one more entry: what is seen.

  The last entry is an image as for `picture_of`.
  """

  num_environments = 1

  def __init__(self, pool, screens=None):
    """Initializes the pool.

    Args:
      pool: A pool of one environment, closed by `close`.
      screens: None to show the first entry of its observations; or a pool of
        one environment that, sent the same actions, plays the same episode and
        observes what is seen. Closed likewise.

    Raises:
      PoolError: What it would show is no image.
    """
    self._pools = [pool] if screens is None else [pool, screens]
    shown = self._pools[-1].observation_spec[0]
    if not is_image(shown):
      self.close()
      raise environments.PoolError(
          f'{pool.level_names[0]} cannot be shown: its observations are no '
          'images')
    self.num_actions = pool.num_actions
    self.observation_spec = pool.observation_spec + (shown,)
    self.level_names = pool.level_names

  def recv(self):
    """See base class."""
    outputs = [pool.recv() for pool in self._pools]
    step_output = outputs[0].step_output
    shown = outputs[-1].step_output.observation[0]
    return outputs[0]._replace(step_output=step_output._replace(
        observation=step_output.observation + (shown,)))

  def send(self, ids, actions):
    """See base class."""
    for pool in self._pools:
      pool.send(ids, actions)

  def close(self):
    """See base class."""
    for pool in self._pools:
      pool.close()
