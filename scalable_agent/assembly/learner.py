"""A configuration's learner, and where its batches come from."""

import fractions
import functools

from scalable_agent import adam
from scalable_agent import config as config_lib
from scalable_agent import learner as learner_lib
from scalable_agent import rmsprop
from scalable_agent import suites
from scalable_agent.assembly import loss as loss_assembly
from scalable_agent.config import seeds
from scalable_agent.replay import buffer
from scalable_agent.replay import episode_buffer
from scalable_agent.replay import prioritized_sequences
from scalable_agent.replay import replayed_queue
from scalable_agent.replay import replayer
from scalable_agent.replay import sequence_store

# To split a batch with smaller observations costs more than it gains.
_SMALLEST_SPLIT_BYTES = 2_000_000


def create_learner(config, agent, devices, strategy=None):
  """Makes the learner of a configuration.

  Args:
    config: A `config.Config`.
    agent: Of `agent.create_agent`.
    devices: A `devices.Devices`.
    strategy: The `tf.distribute.Strategy` over several learners, or None for
      the process's own over its devices.

  Returns:
    A `learner.Learner`.
  """
  return learner_lib.Learner(
      agent,
      loss_assembly.create_loss_fn(config, agent),
      _create_optimizer(config),
      strategy or learner_lib.create_strategy(devices.learner),
      learning_rate=_learning_rate(config),
      seed=config.seed,
      frames_per_unroll=config.frames_per_unroll,
      gradient_norm_clip=config.gradient_norm_clip,
      target_update_period=(
          config.target_update_period if config.agent == 'reactor' else 0),
      jit_compile=devices.jit_compile,
      num_parts=_num_parts(config, agent, devices))


def _num_parts(config, agent, devices):
  """Returns into how many parts a replica splits its share of a batch."""
  entry_bytes = sum(spec.num_bytes for spec in agent.observation_spec)
  share_bytes = (config.learner_batch_size * (config.unroll_length + 1) *
                 entry_bytes / len(devices.learner))
  return devices.num_parts if share_bytes >= _SMALLEST_SPLIT_BYTES else 1


def _create_optimizer(config):
  if config.agent == 'reactor':
    return adam.Adam(beta_1=config.momentum, beta_2=config.decay,
                     epsilon=config.epsilon)
  return rmsprop.RMSProp(config.learning_rate, config.decay, config.momentum,
                         config.epsilon)


def _learning_rate(config):
  if config.learning_rate_schedule == 'constant':
    return lambda unused_frames: config.learning_rate
  return functools.partial(
      learner_lib.annealed_learning_rate, config.learning_rate,
      config.total_environment_frames)


def create_source(config, source, times, agent, devices, shared=None):
  """Returns what batches are taken from, with replay if that is configured.

  Args:
    config: A `config.Config`.
    source: The source of new unrolls, such as a `staging.TrajectoryQueue`.
    times: A `timing.StageTimes`.
    agent: An agent of `networks`.
    devices: A `devices.Devices`.
    shared: None, or what this learner uses in place of a buffer of its own. It
      has the methods of `buffer.Buffer` or, if core states are recomputed, of
      `episode_buffer.EpisodeBuffer`.

  Raises:
    config_lib.ConfigError: Replay is too small for what it is to hold.
  """
  if config.agent == 'reactor':
    _check_lanes(config)
    try:
      return prioritized_sequences.PrioritizedSequences(
          source, config.replay_steps, config.replay_min_steps,
          config.unroll_length, _steps_per_update(config),
          config.replay_uniform, _replay_seed(config), times,
          suites.of(config).has_stacked_frames(config),
          config.num_known_environments)
    except ValueError as e:
      raise config_lib.ConfigError(f'--replay_steps: {e}') from e
  if not config.num_replayed_unrolls:
    return source
  if config.replay_state == 'stored':
    return replayed_queue.ReplayedQueue(
        source,
        shared or buffer.Buffer(config.replay_capacity, _replay_seed(config)),
        config.num_replayed_unrolls, config.train_on_new)
  episodes = replayer.Replayer(
      shared or episode_buffer.EpisodeBuffer(
          config.replay_capacity, config.unroll_length, _replay_seed(config)),
      agent, config.unroll_length, devices.learner[0], devices.jit_compile)
  return replayed_queue.ReplayedQueue(
      source, episodes, config.num_replayed_unrolls, config.train_on_new,
      episodes.publish)


def _steps_per_update(config):
  """Returns a learner's share of --steps_per_update, a `Fraction`."""
  # The number that the user wrote, and not the nearest float.
  return fractions.Fraction(str(config.steps_per_update)) / config.num_learners


def _replay_seed(config):
  """Returns the seed of a learner's draws; other learners have others."""
  return seeds.derive(
      config.seed, seeds.REPLAY, task=max(config.task, 0))


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
