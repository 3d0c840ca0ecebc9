"""Small learners and random batches for them."""

import numpy as np

from scalable_agent import learner as learner_lib
from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.staging import ActorOutput

NUM_ACTIONS = 3
T, B = 5, 4


def make_agent(torso='vector', use_lstm=False):
  frame = (ArraySpec((4,), np.float32) if torso == 'vector' else
           ArraySpec((20, 20, 1), np.uint8))
  return networks.Agent(NUM_ACTIONS, (frame,), torso, use_lstm)


def make_batch(seed, torso='vector', use_lstm=False):
  """A random batch of B unrolls of T steps."""
  rng = np.random.default_rng(seed)
  shape = T + 1, B
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  if torso == 'vector':
    frame = normal(*shape, 4)
  else:
    frame = rng.integers(256, size=shape + (20, 20, 1)).astype(np.uint8)
  state = (networks.LSTMState(.1 * normal(B, 256), .1 * normal(B, 256))
           if use_lstm else ())
  return ActorOutput(
      level_name=['level'] * B,
      agent_state=state,
      env_outputs=StepOutput(
          reward=2 * normal(*shape),
          info=StepOutputInfo(normal(*shape), np.zeros(shape, np.int32)),
          done=rng.random(shape) < .2,
          observation=(frame,)),
      agent_outputs=networks.AgentOutput(
          action=rng.integers(NUM_ACTIONS, size=shape).astype(np.int32),
          policy_logits=normal(*shape, NUM_ACTIONS),
          baseline=normal(*shape)),
      policy_version=np.zeros([B], np.int64))


LOSS = learner_lib.LossSettings(
    discounting=.9, reward_clipping='abs_one', baseline_cost=.5,
    entropy_cost=.01)
OPTIMIZER = learner_lib.OptimizerSettings(
    learning_rate=.003, total_environment_frames=100000, decay=.99,
    momentum=.5, epsilon=.1, gradient_norm_clip=40.)


def make_learner(agent=None, strategy=None, loss=LOSS, optimizer=OPTIMIZER,
                 seed=1, jit_compile=False):
  return learner_lib.Learner(
      agent or make_agent(),
      strategy or learner_lib.create_strategy(['/cpu:0']),
      loss, optimizer, seed, frames_per_step=80, jit_compile=jit_compile)
