"""What Reactor learns with: its loss, optimizer and prioritized sequences."""

import fractions

from scalable_agent import adam
from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.algorithms import reactor
from scalable_agent.assembly import algorithm
from scalable_agent.config import seeds
from scalable_agent.replay import prioritized_sequences
from scalable_agent.replay import sequence_store


def _create_loss_fn(config, agent):
  return reactor.make_loss_fn(agent, reactor.LossSettings(
      discounting=config.discounting,
      reward_clipping=config.reward_clipping,
      entropy_cost=config.entropy_cost,
      lambda_=config.retrace_lambda,
      policy_gradient=config.policy_gradient,
      beta_loo_clip=config.beta_loo_clip))


def _create_optimizer(config):
  return adam.Adam(beta_1=config.momentum, beta_2=config.decay,
                   epsilon=config.epsilon)


def _create_source(
    config, source, times, unused_agent, unused_devices, unused_shared):
  _check_lanes(config)
  # Of the number that the user wrote, and not of the nearest float.
  steps_per_update = fractions.Fraction(str(config.steps_per_update))
  try:
    return prioritized_sequences.PrioritizedSequences(
        source, config.replay_steps, config.replay_min_steps,
        config.unroll_length, steps_per_update / config.num_learners,
        config.replay_uniform, seeds.of_replay(config.seed, config.task), times,
        suites.of(config).has_stacked_frames(config),
        config.num_known_environments)
  except ValueError as e:
    raise config_lib.ConfigError(f'--replay_steps: {e}') from e


def _check_lanes(config):
  """Refuses environments that would push each other out of replay."""
  num_environments = config.num_known_environments
  if num_environments is None:
    return
  lane_length = sequence_store.lane_length(
      config.replay_steps, config.unroll_length, num_environments)
  # Each environment has a lane that is full, and one that it fills.
  needed = 2 * lane_length * num_environments
  if config.replay_steps < needed:
    raise config_lib.ConfigError(
        f'--replay_steps={config.replay_steps} cannot work: it is kept in '
        f'lanes of {lane_length} steps of an environment, of which each of '
        f'--num_actors={config.num_actors} needs two. Give {needed}.')


ALGORITHM = algorithm.Algorithm(
    create_loss_fn=_create_loss_fn, create_optimizer=_create_optimizer,
    create_source=_create_source, has_target=True)
