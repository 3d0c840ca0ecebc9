"""A configuration's learner, and where its batches come from."""

import functools

from scalable_agent import learner as learner_lib
from scalable_agent.assembly import impala
from scalable_agent.assembly import reactor

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
  algorithm = _algorithm(config)
  return learner_lib.Learner(
      agent,
      algorithm.create_loss_fn(config, agent),
      algorithm.create_optimizer(config),
      strategy or learner_lib.create_strategy(devices.learner),
      learning_rate=_learning_rate(config),
      seed=config.seed,
      frames_per_unroll=config.frames_per_unroll,
      gradient_norm_clip=config.gradient_norm_clip,
      target_update_period=(
          config.target_update_period if algorithm.has_target else 0),
      jit_compile=devices.jit_compile,
      num_parts=_num_parts(config, agent, devices))


def _algorithm(config):
  return dict(impala=impala, reactor=reactor)[config.agent].ALGORITHM


def _num_parts(config, agent, devices):
  """Returns into how many parts a replica splits its share of a batch."""
  entry_bytes = sum(spec.num_bytes for spec in agent.observation_spec)
  share_bytes = (config.learner_batch_size * (config.unroll_length + 1) *
                 entry_bytes / len(devices.learner))
  return devices.num_parts if share_bytes >= _SMALLEST_SPLIT_BYTES else 1


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
  return _algorithm(config).create_source(
      config, source, times, agent, devices, shared)
