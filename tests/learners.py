"""Small learners and random batches for them."""

import collections
import functools

import numpy as np
import tensorflow as tf
import tree

from scalable_agent import adam
from scalable_agent import learner as learner_lib
from scalable_agent import networks
from scalable_agent import rmsprop
from scalable_agent import trajectories
from scalable_agent.algorithms import impala
from scalable_agent.algorithms import reactor
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo

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
  unrolls = trajectories.ActorOutput(
      level_name=['level'] * B,
      agent_state=state,
      env_outputs=StepOutput(
          reward=2 * normal(*shape),
          info=StepOutputInfo(normal(*shape), np.zeros(shape, np.int32)),
          done=rng.random(shape) < .2,
          observation=(frame,)),
      agent_outputs=trajectories.AgentOutput(
          action=rng.integers(NUM_ACTIONS, size=shape).astype(np.int32),
          policy_logits=normal(*shape, NUM_ACTIONS),
          baseline=normal(*shape)),
      policy_version=np.zeros([B], np.int64))
  return trajectories.Batch(
      unrolls, np.zeros([B], bool), np.ones([B], np.float32),
      np.arange(B, dtype=np.int64))


WORDS = 5


def make_language_agent():
  """An agent whose observations are vectors and instructions of 5 words."""
  return networks.Agent(
      NUM_ACTIONS, (ArraySpec((4,), np.dtype(np.float32)),
                    ArraySpec((WORDS,), np.dtype(np.int32))),
      'vector', False)


def with_words(batch, ids):
  """A batch of B unrolls, each with one instruction all the time.

  Args:
    batch: Of `make_batch`.
    ids: Word ids [B, WORDS], -1 for no word.
  """
  env_outputs = batch.unrolls.env_outputs
  words = np.broadcast_to(
      np.array(ids, np.int32), env_outputs.reward.shape + (WORDS,)).copy()
  return batch._replace(unrolls=batch.unrolls._replace(
      env_outputs=env_outputs._replace(
          observation=env_outputs.observation + (words,))))


OptimizerSettings = collections.namedtuple(
    'OptimizerSettings', 'learning_rate total_environment_frames decay '
    'momentum epsilon gradient_norm_clip')

LOSS = impala.LossSettings(
    discounting=.9, reward_clipping='abs_one', baseline_cost=.5,
    entropy_cost=.01)
OPTIMIZER = OptimizerSettings(
    learning_rate=.003, total_environment_frames=100000, decay=.99,
    momentum=.5, epsilon=.1, gradient_norm_clip=40.)


def make_learner(agent=None, strategy=None, loss=LOSS, optimizer=OPTIMIZER,
                 seed=1, loss_fn=None, **kwargs):
  """Makes a learner whose batches of B unrolls hold 80 frames."""
  agent = agent or make_agent()
  return learner_lib.Learner(
      agent, loss_fn or impala.make_loss_fn(agent, loss),
      rmsprop.RMSProp(optimizer.learning_rate, optimizer.decay,
                      optimizer.momentum, optimizer.epsilon),
      strategy or learner_lib.create_strategy(['/cpu:0']),
      functools.partial(
          learner_lib.annealed_learning_rate, optimizer.learning_rate,
          optimizer.total_environment_frames),
      seed, frames_per_unroll=80 // B,
      gradient_norm_clip=optimizer.gradient_norm_clip, **kwargs)


class SmallAgent:
  """A few weights, for what does not depend on the network.

  To trace their updates takes a small part of the time that one takes.
  """

  def initial_params(self, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32)
            for name, shape in (('layer/w', (4, 100)), ('layer/b', (100,)),
                                ('table', (50, 8)))}


def small_loss(params, unused_target_params, batch):
  """A sum over unrolls by all they hold; of the table it uses three rows."""
  env_outputs = batch.unrolls.env_outputs
  frame, = env_outputs.observation
  values = tf.tanh(
      tf.tensordot(frame, params['layer/w'], 1) + params['layer/b'])
  words = tf.gather(params['table'], batch.unrolls.agent_outputs.action)
  errors = tf.reduce_mean(values, -1) + tf.reduce_sum(words, -1)
  for state in tree.flatten(batch.unrolls.agent_state):
    errors += tf.reduce_mean(state, -1)
  errors = tf.square(errors - env_outputs.reward)
  priorities = tf.reduce_mean(errors, 0)
  loss = tf.reduce_sum(batch.weights * priorities)
  return loss, dict(
      total_loss=loss,
      priority_mean=(tf.reduce_sum(priorities),
                     tf.cast(tf.size(priorities), tf.float32))), priorities


def make_small_learner(**kwargs):
  """Makes a learner as `make_learner`, whose updates are quickly traced."""
  return make_learner(SmallAgent(), loss_fn=small_loss, **kwargs)


REACTOR_LOSS = reactor.LossSettings(
    discounting=.9, reward_clipping='abs_one', entropy_cost=.3, lambda_=.8,
    policy_gradient='beta_loo', beta_loo_clip=1.5)


def make_reactor_agent(use_lstm=False):
  return networks.ReactorAgent(
      NUM_ACTIONS, (ArraySpec((4,), np.float32),), 'vector', use_lstm,
      num_atoms=5, v_min=-2., v_max=2., policy_uniform=.01)


def make_reactor_batch(seed, weights, agent_state=()):
  """A random batch, whose behaviour has log-probabilities."""
  batch = make_batch(seed)
  agent_outputs = batch.unrolls.agent_outputs
  return batch._replace(
      weights=np.array(weights, np.float32),
      unrolls=batch.unrolls._replace(
          agent_state=agent_state,
          agent_outputs=agent_outputs._replace(
              policy_logits=tf.nn.log_softmax(
                  agent_outputs.policy_logits).numpy())))


def make_reactor_learner(agent, strategy=None, **kwargs):
  """Makes a learner of Reactor, with Adam and target weights."""
  return learner_lib.Learner(
      agent, reactor.make_loss_fn(agent, REACTOR_LOSS),
      adam.Adam(beta_1=0., epsilon=1e-3),
      strategy or learner_lib.create_strategy(['/cpu:0']),
      lambda frames: .003, 1, frames_per_unroll=20, target_update_period=2,
      **kwargs)
