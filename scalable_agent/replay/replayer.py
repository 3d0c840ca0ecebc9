"""Replays whole episodes, with core states of the newest weights.

Schmitt et al., "Off-Policy Actor-Critic with Shared Experience Replay", 2020,
https://arxiv.org/abs/1909.11583, section 5.1. The core state that an unroll was
acted with is of old weights, or of another agent, to which it means nothing.
So each episode is replayed from its beginning.
"""

import functools

import tensorflow as tf
import tree

from scalable_agent import staging
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
    self._slots = []
    # Of each slot, [R, ...]: before what it gave last.
    self._states = None
    self._last = None

    @functools.partial(tf.function, autograph=False, jit_compile=jit_compile)
    def advance(weights, actions, env_outputs, states):
      return agent.unroll(weights, actions, env_outputs, states)[1]

    def advance_on_device(*inputs):
      with tf.device(device):
        return tree.map_structure(
            lambda t: t.numpy().copy(),
            advance(*tree.map_structure(tf.convert_to_tensor, inputs)))

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
      there is no whole episode.
    """
    if not self._slots:
      episodes = [self._buffer.draw() for _ in range(count)]
      if None in episodes:
        return []
      self._slots = list(map(_Slot, episodes))
      self._states = self._agent.initial_state(count)
    else:
      self._step()
    self._last = [
        packed_unrolls.cut(*slot.where(self._unroll_length))
        for slot in self._slots]
    return [
        unroll._replace(agent_state=tree.map_structure(
            lambda a: a[i], self._states))
        for i, unroll in enumerate(self._last)]

  def _step(self):
    """Goes on behind the last unrolls, or in another episode."""
    batch = staging.stack_time_major(self._last)
    # The last entry is the first of the next unroll.
    actions, env_outputs = tree.map_structure(
        lambda a: a[:-1],
        (batch.agent_outputs.action, batch.env_outputs._replace(info=())))
    self._states = self._advance(
        self._weights, actions, env_outputs, self._states)
    for i, slot in enumerate(self._slots):
      slot.num_done += self._unroll_length
      if slot.num_done >= slot.episode.num_steps:
        self._slots[i] = _Slot(self._buffer.draw() or slot.episode)
        for states in tree.flatten(self._states):
          states[i] = 0.

  def take_gauges(self):
    """Returns a dict of values to log, see the buffer."""
    return self._buffer.take_gauges()

  def close(self):
    """Closes the buffer."""
    self._buffer.close()


class _Slot:
  """An episode that is being replayed, and how many of its steps were."""

  def __init__(self, episode):
    self.episode = episode
    self.num_done = 0

  def where(self, unroll_length):
    """Returns the packed unrolls to cut the next one out of, and where."""
    first, offset = divmod(self.episode.offset + self.num_done, unroll_length)
    return self.episode.unrolls[first:first + (2 if offset else 1)], offset
