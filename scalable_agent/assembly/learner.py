"""A configuration's learner, and where its batches come from."""

import functools

from scalable_agent import learner as learner_lib
from scalable_agent import rmsprop
from scalable_agent.algorithms import impala
from scalable_agent.replay import uniform


def create_learner(config, agent, devices, strategy=None):
  """Makes the learner of a configuration; unless given, the strategy is new.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    devices: A `devices.Devices`.
    strategy: None, or the `tf.distribute.Strategy` over several learners.

  Returns:
    A `learner.Learner`.
  """
  return learner_lib.Learner(
      agent,
      impala.make_loss_fn(agent, impala.LossSettings(
          discounting=config.discounting,
          reward_clipping=config.reward_clipping,
          baseline_cost=config.baseline_cost,
          entropy_cost=config.entropy_cost,
          clip_rho_threshold=config.clip_rho_threshold or None,
          clip_pg_rho_threshold=config.clip_pg_rho_threshold or None,
          lambda_=config.vtrace_lambda)),
      rmsprop.RMSProp(config.learning_rate, config.decay, config.momentum,
                      config.epsilon),
      strategy or learner_lib.create_strategy(devices.learner),
      learning_rate=functools.partial(
          learner_lib.annealed_learning_rate, config.learning_rate,
          config.total_environment_frames),
      seed=config.seed,
      frames_per_unroll=config.frames_per_unroll,
      gradient_norm_clip=config.gradient_norm_clip,
      jit_compile=devices.jit_compile_learner)


def create_source(config, queue):
  """Returns what batches are taken from: a queue, with replay if configured.

  Args:
    config: A `config.Config`.
    queue: A `staging.TrajectoryQueue`.
  """
  if not config.num_replayed_unrolls:
    return queue
  return uniform.UniformReplay(queue, config.replay_capacity,
                               config.num_replayed_unrolls, config.seed)
