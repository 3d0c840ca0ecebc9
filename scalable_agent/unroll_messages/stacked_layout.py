"""Lays out messages whose observations are stacks of frames.

The actor job sends each frame once, see `frame_stacks`. Where a game begins in
an unroll, the unroll is sent as it is: a message has one of two lengths.
"""

from scalable_agent import frame_stacks
from scalable_agent.environments import ArraySpec
from scalable_agent.remote import wire


class StackedLayout:
  """A `wire.Layout` of messages whose observation is a stack of frames.

  Attributes:
    num_bytes: Length of the longest message.
  """

  def __init__(self, template, bounds, finite):
    """Initializes the layout.

    Args:
      template: As for `wire.Layout`, with `env_outputs` whose observation is
        (frames,), a spec of uint8 [T+1, H, W, 4].
      bounds: As for `wire.Layout`.
      finite: As for `wire.Layout`.
    """
    self._whole = wire.Layout(template, bounds, finite)
    (frames,) = template.env_outputs.observation
    length, height, width, _ = frames.shape
    self._packed = wire.Layout(_with_frames(template, frame_stacks.PackedFrames(
        ArraySpec((height, width, frame_stacks.STACK), frames.dtype),
        ArraySpec((length - 1, height, width), frames.dtype))), bounds, finite)
    self.num_bytes = max(self._whole.num_bytes, self._packed.num_bytes)

  def encode(self, nest):
    """See `wire.Layout`."""
    (frames,) = nest.env_outputs.observation
    packed = frame_stacks.pack(frames)
    if packed is None:
      return self._whole.encode(nest)
    return self._packed.encode(_with_frames(nest, packed))

  def _layout_of(self, messages, start=0):
    return (self._packed if self._packed.begins(messages, start)
            else self._whole)

  def length_at(self, messages, start):
    """See `wire.Layout`."""
    return self._layout_of(messages, start).num_bytes

  def peek(self, message, name):
    """See `wire.Layout`."""
    return self._layout_of(message).peek(message, name)

  def overwrite(self, message, values):
    """See `wire.Layout`."""
    self._layout_of(message).overwrite(message, values)

  def check(self, message):
    """See `wire.Layout`."""
    self._layout_of(message).decode(message)

  def decode(self, message):
    """See `wire.Layout`."""
    if not self._packed.begins(message):
      return self._whole.decode(message)
    nest = self._packed.decode(message)
    (packed,) = nest.env_outputs.observation
    return _with_frames(nest, frame_stacks.unpack(packed))


def _with_frames(nest, frames):
  return nest._replace(
      env_outputs=nest.env_outputs._replace(observation=(frames,)))
