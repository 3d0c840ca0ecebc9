"""Unrolls that are told apart by a number."""

import numpy as np
import tree

from scalable_agent import trajectories
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo


def make(number, observation=None):
  """Returns an `ActorOutput` of a number, an int.

  Args:
    number: Its `policy_version`.
    observation: An array [T+1, ...], by default of 2 entries.
  """
  if observation is None:
    observation = np.full([2, 3], number, np.float32)
  length = len(observation)
  floats = lambda *shape: np.full((length, *shape), number, np.float32)
  return trajectories.ActorOutput(
      level_name=f'level_{number}', agent_state=(),
      env_outputs=StepOutput(
          floats(), StepOutputInfo(floats(), np.zeros([length], np.int32)),
          np.zeros([length], bool), (observation,)),
      agent_outputs=trajectories.AgentOutput(
          np.zeros([length], np.int32), floats(3), floats()),
      policy_version=np.int64(number))


def with_value(unroll, leaf, value):
  """Returns an unroll with a value in the middle of one of its float arrays.

  Args:
    unroll: An `ActorOutput`, which stays as it is.
    leaf: Which array, counted among those of floats.
    value: A float.
  """
  leaves = [np.copy(a) if isinstance(a, np.ndarray) else a
            for a in tree.flatten(unroll)]
  floats = [a for a in leaves if isinstance(a, np.ndarray) and
            a.dtype.kind == 'f']
  floats[leaf].flat[floats[leaf].size // 2] = value
  return tree.unflatten_as(unroll, leaves)


def make_all(numbers):
  return [make(number) for number in numbers]


def numbers_of(unrolls):
  """Returns the numbers of unrolls, a list; what they hold has to fit it."""
  for unroll in unrolls:
    assert unroll.level_name == f'level_{unroll.policy_version}'
    assert (unroll.env_outputs.reward == unroll.policy_version).all()
  return [int(unroll.policy_version) for unroll in unrolls]
