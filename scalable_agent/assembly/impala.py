"""What IMPALA learns with: its loss, optimizer and replay; A3C's gradient."""

from scalable_agent import a3c
from scalable_agent import rmsprop
from scalable_agent.algorithms import impala
from scalable_agent.assembly import algorithm
from scalable_agent.config import seeds
from scalable_agent.replay import buffer
from scalable_agent.replay import episode_buffer
from scalable_agent.replay import replayed_queue
from scalable_agent.replay import replayer


def _create_loss_fn(config, agent):
  return impala.make_loss_fn(agent, impala.LossSettings(
      discounting=config.discounting,
      reward_clipping=config.reward_clipping,
      baseline_cost=config.baseline_cost,
      entropy_cost=config.entropy_cost,
      clip_rho_threshold=config.clip_rho_threshold or None,
      clip_pg_rho_threshold=config.clip_pg_rho_threshold or None,
      lambda_=config.vtrace_lambda,
      off_policy_correction=config.off_policy_correction,
      q_estimate=config.q_estimate,
      trust_region_threshold=config.trust_region_threshold or None,
      entropy_on_replay=config.entropy_on_replay))


def create_gradient_fn(config, agent, device, jit_compile):
  """Returns what workers of A3C share: see `a3c.make_gradient_fn`.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    device: Name of the device to run on.
    jit_compile: Whether XLA compiles loss and gradients.
  """
  return a3c.make_gradient_fn(
      _create_loss_fn(config, agent), device, jit_compile)


def _create_optimizer(config):
  return rmsprop.RMSProp(config.learning_rate, config.decay, config.momentum,
                         config.epsilon)


def _create_source(config, source, unused_times, agent, devices, shared):
  if not config.num_replayed_unrolls:
    return source
  seed = seeds.of_replay(config.seed, config.task)
  if config.replay_state == 'stored':
    return replayed_queue.ReplayedQueue(
        source, shared or buffer.Buffer(config.replay_capacity, seed),
        config.num_replayed_unrolls, config.train_on_new)
  episodes = replayer.Replayer(
      shared or episode_buffer.EpisodeBuffer(
          config.replay_capacity, config.unroll_length, seed),
      agent, config.unroll_length, devices.learner[0], devices.jit_compile)
  return replayed_queue.ReplayedQueue(
      source, episodes, config.num_replayed_unrolls, config.train_on_new,
      episodes.publish)


ALGORITHM = algorithm.Algorithm(
    create_loss_fn=_create_loss_fn, create_optimizer=_create_optimizer,
    create_source=_create_source, has_target=False)
