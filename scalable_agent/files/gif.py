"""Writes images of an episode as a GIF that is played at its own speed."""

from PIL import Image

_FRAMES_PER_SECOND = 60


def _to_image(frame):
  if frame.shape[-1] == 3:
    return Image.fromarray(frame).quantize(dither=Image.Dither.NONE)
  return Image.fromarray(frame[..., 0])


def write(file, frames, num_action_repeats):
  """Writes frames at the speed a person would play.

  Args:
    file: A path, or a binary file to write to.
    frames: An iterable of images, uint8 [height, width, 3], or grey [height,
      width, 1], one for each agent step, at least one.
    num_action_repeats: Environment frames from one to the next, of which there
      are 60 in a second.
  """
  images = map(_to_image, frames)
  first = next(images)
  first.save(file, format='gif', save_all=True, append_images=images,
             # A GIF counts in hundredths of a second.
             duration=10 * round(100 * num_action_repeats / _FRAMES_PER_SECOND),
             loop=0)
