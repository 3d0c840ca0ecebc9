"""Environments whose every entry says whose it is and when it was."""

import numpy as np
import tree

from scalable_agent import trajectories
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo

# Steps of a life are told apart from those of another by this.
_LIFE = 1000


class Stream:
  """An environment that hands out unrolls, each from the last entry on."""

  def __init__(self, name, unroll_length):
    self.name = name
    self._length = unroll_length
    self._step = 0
    self._life = 0

  @property
  def stream(self):
    """What the environment has and no other, nor itself in another life."""
    return self.name, self._life

  def unroll(self, version=0):
    """Returns the next `ActorOutput`."""
    steps = self._step + np.arange(self._length + 1)
    self._step += self._length
    values = (100 * self.name * _LIFE + self._life * _LIFE + steps)
    floats = values.astype(np.float32)
    return trajectories.ActorOutput(
        level_name=f'level_{self.name}',
        agent_state=(np.ones([3], np.float32),),
        env_outputs=StepOutput(
            reward=floats, info=StepOutputInfo(floats, steps.astype(np.int32)),
            done=steps % 3 == 0,
            observation=(np.stack([values, steps], -1).astype(np.int32),)),
        agent_outputs=trajectories.AgentOutput(
            action=steps.astype(np.int32),
            policy_logits=np.stack([floats, -floats], -1), baseline=-floats),
        policy_version=np.int64(version), stream=self.stream)

  def lose_an_unroll(self):
    """The next unroll does not go on where the last one ended."""
    self._step += self._length

  def replace(self):
    """Makes another environment of it."""
    self._life += 1
    self._step = 0


def values_of(unroll):
  """What tells the entries of an unroll apart, a list; checks that all agree.
  """
  env_outputs, agent_outputs = unroll.env_outputs, unroll.agent_outputs
  (observation,) = env_outputs.observation
  values, steps = observation.T
  for floats in (env_outputs.reward, env_outputs.info.episode_return,
                 agent_outputs.policy_logits[:, 0], -agent_outputs.baseline):
    np.testing.assert_array_equal(floats, values)
  for ints in (env_outputs.info.episode_step, agent_outputs.action):
    np.testing.assert_array_equal(ints, steps)
  np.testing.assert_array_equal(env_outputs.done, steps % 3 == 0)
  assert unroll.level_name == f'level_{values[0] // (100 * _LIFE)}'
  assert not unroll.agent_state[0].any()
  return values.tolist()


def num_bytes(column):
  """The bytes of the arrays that a column of a store holds."""
  values = [np.asarray(value) if isinstance(value, memoryview) else value
            for value in vars(column).values()]
  return sum(array.nbytes for array in tree.flatten(values)
             if isinstance(array, np.ndarray))
