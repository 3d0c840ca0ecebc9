"""Calls the learner for an actor job that has the policy."""

import collections
import json
import struct

from scalable_agent.learner_service import protocol
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import unroll_sender
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import call_sizes
from scalable_agent.unroll_messages import unroll_message

Refused = link_lib.Refused
TrainingDone = link_lib.TrainingDone
Closed = link_lib.Closed

# The upper bits of a policy version count the lives of the learner. So an
# unroll that was begun with the weights of one life is not sent to another.
_LIFE = 1 << 48

# A list of level names, and the `wire.Layout` of unrolls.
_About = collections.namedtuple('_About', 'levels unroll_layout')


def make_link(address, security, task, agreement, level_names,
              read_hello=lambda unused_answer: None, max_message_bytes=0):
  """Returns the `link.Link` of an actor job, or of one of its pools.

  Args:
    address: 'host:port' of the learner.
    security: A `security.Security`.
    task: Index of the actor job.
    agreement: Of `protocol.agreement`.
    level_names: A list of N level names, of the environments.
    read_hello: As for `link.Link`.
    max_message_bytes: See there.
  """
  return link_lib.Link(
      address, protocol.SERVICE, link_lib.Ends('learner', 'actor'), security,
      dict(agreement=agreement, task=task, levels=level_names), read_hello,
      max_message_bytes)


class LearnerClient:
  """Calls a learner, waiting out its absence; for use by several threads.

  Every call waits until the learner is there, and is repeated when the
  connection breaks; an unroll arrives once even so. A learner that comes back
  as another process has lost what it knew: unrolls that were begun with the
  weights of the one before are dropped.
  """

  def __init__(self, make_link, unroll_layout, weights_layout):
    """Initializes the client; connects with the first call.

    Args:
      make_link: As the function `make_link`, from its `read_hello` on.
      unroll_layout: A function of the number of levels that returns the
        `wire.Layout` of unrolls.
      weights_layout: The `wire.Layout` of weights.
    """
    self._make_unroll_layout = unroll_layout
    self._weights_layout = weights_layout
    self._link = make_link(self._read_hello, weights_layout.num_bytes)
    self._episode_sequence = 0
    # A stream, since weights are asked for with every unroll.
    self._weights_caller = stream_lib.Caller(self._link, 'GetWeights')
    self._sender = unroll_sender.UnrollSender(
        self._link, 'PutUnroll', self._encode,
        call_sizes.max_unrolls_per_call(unroll_layout(1)))

  def _read_hello(self, answer):
    levels = answer['levels']
    return _About(levels, self._make_unroll_layout(len(levels)))

  @property
  def session(self):
    """The number of the session, unlike all others; None before the first."""
    return self._link.session

  def get_weights(self, version):
    """Asks for weights.

    Args:
      version: What `get_weights` returned with the weights that the caller has;
        -1 if it has none.

    Returns:
      None if that is the newest, or a pair of a dict of name to array and
      their version, an int.

    Raises:
      TrainingDone, Refused, Closed.
    """
    life, known = divmod(version, _LIFE)
    message, connection = self._weights_caller.call(
        lambda connection: struct.pack(
            '<Qq', connection.session,
            known if life == connection.life else -1))
    if not message:
      return None
    try:
      weights = self._weights_layout.decode(message)
    except wire.WireError as e:
      raise Refused(
          f'The learner at {self._link.address} sent other weights than agreed '
          f'on: {e}.') from e
    return weights.weights, connection.life * _LIFE + int(weights.version)

  def put_unrolls(self, unrolls, wait=True):
    """Hands over `ActorOutput`s, waiting while the learner's queue is full.

    One thread may call this. Those that were begun with the weights of a
    learner that is gone are dropped, and counted in `num_dropped`.

    Args:
      unrolls: A list.
      wait: Whether to return only when the learner has taken all of them. If
        not, their last message may still be under way; the next call waits for
        it, and raises if it failed.

    Raises:
      TrainingDone, Refused, Closed.
    """
    self._sender.put(unrolls, wait)

  @property
  def num_dropped(self):
    """The number of unrolls dropped so far, see `put_unrolls`."""
    return self._sender.num_dropped

  def _encode(self, connection, unrolls, first):
    about = connection.about
    messages = [
        about.unroll_layout.encode(unroll_message.of_unroll(
            unroll._replace(policy_version=unroll.policy_version % _LIFE),
            connection.session, sequence, about.levels,
            stream=0 if unroll.stream == () else unroll.stream))
        for sequence, unroll in enumerate(unrolls, first)
        if unroll.policy_version // _LIFE == connection.life]
    return wire.join(messages), len(messages)

  def put_episodes(self, episodes):
    """Reports finished episodes, a list of `Episode`s; it may be empty.

    One thread may call this; raises as `put_unrolls`.
    """
    values = [[e.level_name, float(e.episode_return), int(e.episode_frames)]
              for e in episodes]
    most = protocol.MAX_EPISODES_PER_CALL
    for start in range(0, max(len(values), 1), most):
      self._episode_sequence += 1
      self._link.call(
          'PutEpisodes',
          lambda connection, part=values[start:start + most]: json.dumps(dict(
              session=connection.session, sequence=self._episode_sequence,
              episodes=part)).encode())

  def sleep(self, seconds):
    """Waits; raises Closed if the client is or gets closed."""
    self._link.sleep(seconds)

  def close(self):
    """Ends all calls; those under way, and later ones, raise `Closed`."""
    self._link.close()
