"""Makes a message of an unroll, and an unroll of a message."""

import collections

import numpy as np

from scalable_agent import trajectories

UnrollMessage = collections.namedtuple(
    'UnrollMessage', 'session sequence level policy_version agent_state '
    'env_outputs agent_outputs gradient stream',
    defaults=((), np.int64(0)))
UnrollMessage.__doc__ = """An `ActorOutput` on its way.

  session: uint64, the number of the sender's session.
  sequence: int64, counts the unrolls of a session, so that one that is sent
    again because its answer was lost is taken once.
  level: int32, index into the levels of the service.
  stream: int64, an environment, among those of the session.
  Others: See `trajectories.ActorOutput`.
"""


def of_unroll(unroll, session, sequence, levels, stream):
  """Returns the `UnrollMessage` of an `ActorOutput`.

  Args:
    unroll: The `ActorOutput`, whose own `stream` is not sent.
    session: Int, see `UnrollMessage`.
    sequence: Int, likewise.
    levels: A list of the level names of the service.
    stream: Int, likewise.

  Raises:
    ValueError: The unroll's level is not among `levels`.
  """
  return UnrollMessage(
      session=np.uint64(session),
      sequence=np.int64(sequence),
      level=np.int32(levels.index(unroll.level_name)),
      policy_version=np.int64(unroll.policy_version),
      agent_state=unroll.agent_state,
      env_outputs=unroll.env_outputs,
      agent_outputs=unroll.agent_outputs,
      gradient=unroll.gradient,
      stream=np.int64(stream))


def to_unroll(message, levels):
  """Returns the `ActorOutput` of an `UnrollMessage`.

  Its `stream` is a pair of ints: the session, and the environment in it.

  Args:
    message: The `UnrollMessage`, decoded: its level is within bounds.
    levels: As for `of_unroll`.
  """
  return trajectories.ActorOutput(
      level_name=levels[message.level],
      agent_state=message.agent_state,
      env_outputs=message.env_outputs,
      agent_outputs=message.agent_outputs,
      gradient=message.gradient,
      policy_version=np.int64(message.policy_version),
      stream=(int(message.session), int(message.stream)))
