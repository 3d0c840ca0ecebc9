"""From a configuration and an agent to what acts."""

import types

import numpy as np

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import trajectories
from scalable_agent.assembly import actor as actor_assembly
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.process import timing


def test_every_value_comes_where_it_belongs():
  agent = types.SimpleNamespace(
      num_actions=5,
      initial_state=lambda size: (np.full([size], 7., np.float32),))
  unrolls, episodes, refreshed = [], [], []

  def policy(actions, unused_output, state):
    return (actor.initial_output(len(actions), 5), (state[0] + 1,),
            np.full([len(actions)], 70, np.int64))

  acting = actor_assembly.create_actor(
      config_lib.resolve(dict(
          level_name='pong', unroll_length=3, num_action_repeats=2)),
      agent, ['a', 'b'], policy, unrolls.append, episodes.append,
      timing.StageTimes(), refresh=refreshed.append)
  ids, floats = np.arange(2, dtype=np.int32), np.zeros([2], np.float32)
  for step in range(4):
    is_first = np.full([2], step == 0)
    acting.act(ids, StepOutput(
        floats, StepOutputInfo(floats, np.full([2], step, np.int32)), is_first,
        (floats,)), is_first, np.array([False, step == 3]))

  assert [unroll.level_name for unroll in unrolls] == ['a', 'b']
  for unroll in unrolls:
    assert unroll.agent_outputs.policy_logits.shape == (4, 5)
    assert unroll.agent_state == (7,) and unroll.policy_version == 70
  assert episodes == [trajectories.Episode('b', 0., 6)]
  assert len(refreshed) == 2
