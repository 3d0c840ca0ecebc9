"""Replays whole episodes, with core states of the newest weights.

Schmitt et al., "Off-Policy Actor-Critic with Shared Experience Replay", 2020,
https://arxiv.org/abs/1909.11583, section 5.1. The core state that an unroll was
acted with is of old weights or of another agent, and means nothing to the
newest weights. So each episode is replayed from its beginning.
"""

import collections
import functools
import itertools

import tensorflow as tf
import tree

from scalable_agent import staging
from scalable_agent.process import host_tensors
from scalable_agent.replay import packed_unrolls


class Replayer:
  """Draws episodes from a buffer, and cuts them into unrolls in their order.

  One thread at a time may call `extend` and `sample`.
  """

  def __init__(self, buffer, agent, unroll_length, device='/cpu:0',
               jit_compile=False):
    """Initializes the replayer; before `sample`, give it weights by `publish`.

    Args:
      buffer: An `episode_buffer.EpisodeBuffer`, or what has its methods.
      agent: A `networks.Agent`.
      unroll_length: T.
      device: Name of the device that computes core states.
      jit_compile: Whether XLA compiles that.
    """
    self._buffer = buffer
    self._agent = agent
    self._unroll_length = unroll_length
    self._weights = None
    # A `_Slot` each, or None where another episode is to be drawn.
    self._slots = []
    # Core states [R, ...] before the unrolls that the slots gave last.
    self._states = None
    self._last = []

    @functools.partial(tf.function, autograph=False, jit_compile=jit_compile)
    def advance(weights, actions, env_outputs, states):
      return agent.unroll(weights, actions, env_outputs, states)[1]

    def advance_on_device(*inputs):
      inputs = host_tensors.of(inputs)
      with tf.device(device):
        return tree.map_structure(
            lambda t: t.numpy().copy(), advance(*inputs))

    self._advance = advance_on_device

  def publish(self, weights):
    """Computes core states with these from now on, a dict of name to tensor."""
    self._weights = weights

  def extend(self, unrolls):
    """Puts `ActorOutput`s into the buffer."""
    self._buffer.extend(unrolls)

  def sample(self, count):
    """Returns the next unrolls of `count` episodes.

    Args:
      count: R, the same in every call.

    Returns:
      A list of R `ActorOutput`s, each with its core state; an empty one while
      one of them has ended and there is no whole episode to draw in its place.
    """
    if not self._slots:
      self._slots = [None] * count
      self._states = self._agent.initial_state(count)
    if self._last:
      self._step()
    self._fill()
    if None in self._slots:
      return []
    self._last = [slot.cut() for slot in self._slots]
    return [
        unroll._replace(agent_state=tree.map_structure(
            lambda a: a[i], self._states))
        for i, unroll in enumerate(self._last)]

  def _step(self):
    """Moves slots behind their last unrolls; empties those at an end."""
    batch = staging.stack_time_major(self._last)
    self._last = []
    # The last entry is the first of the next unroll.
    actions, env_outputs = tree.map_structure(
        lambda a: a[:-1],
        (batch.agent_outputs.action, batch.env_outputs._replace(info=())))
    self._states = self._advance(
        self._weights, actions, env_outputs, self._states)
    for i, slot in enumerate(self._slots):
      slot.advance(self._unroll_length)
      if slot.num_left <= 0:
        self._slots[i] = None
        for states in tree.flatten(self._states):
          states[i] = 0.

  def _fill(self):
    """Draws episodes for slots without one, as far as there are any."""
    empty = [i for i, slot in enumerate(self._slots) if slot is None]
    if empty:
      for i, episode in zip(empty, self._buffer.draw(len(empty))):
        self._slots[i] = _Slot(episode)

  def take_gauges(self):
    """Returns a dict of values to log, see the buffer.

    `replaying_mb` is what episodes take that are being replayed. The buffer may
    have these unrolls too.
    """
    return dict(self._buffer.take_gauges(), replaying_mb=sum(
        slot.num_bytes for slot in tuple(self._slots) if slot) / 1e6)

  def close(self):
    """Closes the buffer."""
    self._buffer.close()


class _Slot:
  """What is left of an episode that is being replayed.

  Attributes:
    num_left: Its steps from here on, an int; below 1 at its end.
    num_bytes: What those of its unrolls take that are still needed.
  """

  def __init__(self, episode):
    """Initializes it with an `episode_buffer.DrawnEpisode`, at its start."""
    self.num_left = episode.num_steps
    self._unrolls = collections.deque(episode.unrolls)
    self._offset = episode.offset
    self.num_bytes = sum(map(packed_unrolls.size, episode.unrolls))

  def cut(self):
    """Returns the next `ActorOutput`."""
    return packed_unrolls.cut(
        list(itertools.islice(self._unrolls, 2 if self._offset else 1)),
        self._offset)

  def advance(self, unroll_length):
    """Goes on by an unroll."""
    self.num_left -= unroll_length
    self.num_bytes -= packed_unrolls.size(self._unrolls.popleft())
