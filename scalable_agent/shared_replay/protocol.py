"""Says what a replay job and its learners agree on, and lays out messages.

    Hello      who a learner is -> its session, and the number of its agent
    Insert     new unrolls -> b'', once they are in and it may go on
    Draw       how many -> so many unrolls, in several messages; one without
               any while there is none
    Episode    -> which unrolls an episode is in, nothing while there is none
    Fetch      numbers -> these unrolls, in several messages, as far as they
               are kept

All but Hello are streams. Before what is drawn or fetched, and before an
episode or none, there is a `State`. An unroll is an `UnrollMessage` of
`unroll_messages`, without core states, which mean nothing to other agents. In
the replay job `session` becomes the number of the agent that acted, and
`sequence` the number of the insert.
"""

import collections
import struct

import numpy as np

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import agreements
from scalable_agent.unroll_messages import call_sizes
from scalable_agent.unroll_messages import unroll_layouts

VERSION = 3
SERVICE = 'scalable_agent.Replay'
US, THEM = 'the replay job', 'the learner'
MAX_DRAWN = 1 << 16
MAX_FETCHED = 1 << 16
MAX_NAME = 500
# New unrolls in a learner's batch.
MAX_BATCH = 1 << 20

_DRAW = struct.Struct('<QQ')
_SESSION = struct.Struct('<Q')
_STATE = struct.Struct('<QQQ')

State = collections.namedtuple('State', 'num_inserted num_kept num_bytes')
State.__doc__ = """What answers say of the replay job, ints.

  num_inserted: Unrolls that were ever inserted.
  num_kept: Unrolls that are kept of these.
  num_bytes: Memory that the kept ones take.
"""


def agreement(config, facts):
  """Returns what has to be equal at both ends, see `agreements`."""
  return agreements.agreement_of(
      VERSION, config_lib.names(config_lib.REPLAY), config, facts)


def unroll_layout(config, facts, num_levels):
  """Returns the `wire.Layout` of unrolls.

  Args:
    config: A `config.Config` of either end, or what has its `unroll_length`.
    facts: As for `agreement`.
    num_levels: Levels that the replay job knows.
  """
  return unroll_layouts.unroll_layout(
      (), actor.initial_output(1, facts.num_actions), facts.observation_spec,
      config.unroll_length, num_levels, finite=True)


def max_message_bytes(layout):
  """Returns the length of the largest message, either way.

  Args:
    layout: Of `unroll_layout`.
  """
  return max(
      _STATE.size + max(call_sizes.max_call_bytes(layout),
                        call_sizes.MAX_CALL_BYTES),
      _DRAW.size + 8 * MAX_FETCHED)


def encode_draw(session, count):
  """Returns a message of `Draw`."""
  return _DRAW.pack(session, count)


def decode_draw(message):
  """Returns session and count, or raises `wire.WireError`."""
  session, count = _unpack(_DRAW, message)
  if not 1 <= count <= MAX_DRAWN:
    raise wire.WireError(f'{count} unrolls were asked for, expected 1 to '
                         f'{MAX_DRAWN}')
  return session, count


def encode_session(session):
  """Returns a message of `Episode`."""
  return _SESSION.pack(session)


def decode_session(message):
  """Returns the session, or raises `wire.WireError`."""
  return _unpack(_SESSION, message)[0]


def encode_fetch(session, numbers):
  """Returns a message of `Fetch`, for a sequence of ints."""
  return _SESSION.pack(session) + np.asarray(numbers, '<i8').tobytes()


def decode_fetch(message):
  """Returns session and numbers, a list, or raises `wire.WireError`."""
  session, = _unpack(_SESSION, message[:_SESSION.size])
  count, rest = divmod(len(message) - _SESSION.size, 8)
  if rest or not 1 <= count <= MAX_FETCHED:
    raise wire.WireError('expected the numbers of unrolls')
  return session, np.frombuffer(
      message, '<i8', offset=_SESSION.size).tolist()


def encode_episode(episode):
  """Returns what follows the `State`, for an `EpisodeSpan` or None."""
  if episode is None:
    return b''
  return np.array([episode.offset, episode.num_steps, *episode.numbers],
                  '<i8').tobytes()


def decode_episode(message, unroll_length):
  """Returns offset, steps and numbers, or None; raises `wire.WireError`.

  Args:
    message: Bytes.
    unroll_length: T, of the unrolls that it is in and of those to be cut out.
  """
  if not message:
    return None
  if len(message) < 24 or len(message) % 8:
    raise wire.WireError('expected an episode')
  offset, num_steps, *numbers = np.frombuffer(message, '<i8').tolist()
  num_cut = -(-num_steps // unroll_length)
  # With an offset, each that is cut out ends in the next one.
  if (num_steps < 1 or not 0 <= offset < unroll_length or
      len(numbers) != num_cut + (offset > 0)):
    raise wire.WireError('expected an episode')
  return offset, num_steps, numbers


def join(state, messages):
  """Returns a `State` and the messages after it as one, bytes."""
  return wire.join(messages, _STATE.pack(*state))


def split(message):
  """Returns the `State` and the rest, a view, of what `join` returned.

  Raises:
    wire.WireError: It is shorter than that.
  """
  view = memoryview(message)
  return State(*_unpack(_STATE, view[:_STATE.size])), view[_STATE.size:]


def _unpack(layout, message):
  try:
    return layout.unpack(message)
  except struct.error as e:
    raise wire.WireError(
        f'{len(message)} bytes, expected {layout.size}') from e
