"""Measures what a plan is made of: what a frame costs on this machine."""

import dataclasses

from absl import logging
import numpy as np

from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.config import checks
from scalable_agent.config import ConfigError
from scalable_agent.machine import cores as machine_cores
from scalable_agent.throughput import loop
from scalable_agent.throughput import parts
from scalable_agent.throughput import plan
from scalable_agent.throughput import transport
from scalable_agent.throughput import unrolls

# With other values, other things pass between jobs, at other times.
_PLANNED = dict(agent='impala', architecture='impala', inference='actor')


def _actor_job(config):
  """Returns the configuration of an actor job, a `config.Config`."""
  return dataclasses.replace(config, job_name='actor', task=0)


def _shape(config):
  """Returns the `unrolls.Shape` of a configuration."""
  for name, planned in _PLANNED.items():
    if getattr(config, name) != planned:
      raise ConfigError(
          f'--{name}={getattr(config, name)} cannot be planned: --plan knows '
          f'--{name}={planned}.')
  # So far the pools of a run on one machine were checked.
  checks.check(_actor_job(config))
  facts = suites.find_facts(config)
  spec = facts.observation_spec[0]
  frame = tuple(spec.shape)
  if len(frame) != 3 or spec.dtype != np.uint8:
    raise ConfigError(
        '--plan measures unrolls of images of bytes, and --level_name='
        f'{config.level_name} has none.')
  return unrolls.Shape(
      frame, config.unroll_length, facts.num_actions, config.use_lstm,
      agent_assembly.choose_network(config, facts), config.channel_multiplier)


def unrolls_begun_at_once(config):
  """How many unrolls of an actor job begin at the same step, an int.

  Args:
    config: A `config.Config`.
  """
  return _acting_size(config) if suites.of(config).has_fixed_batches else 1


def _acting_size(config):
  """Returns for how many environments at once an actor job acts, at most."""
  return suites.choose_layout(
      _actor_job(config), config.envs_per_actor).maximum_batch_size


def measure(config, seconds):
  """Measures the parts, the training loop and the transport.

  Args:
    config: A `config.Config`.
    seconds: To measure for, each; the loop takes twice that.

  Returns:
    A `plan.Costs`.

  Raises:
    ConfigError: It is no system that plans are of.
  """
  shape = _shape(config)
  size = _acting_size(config)
  measured = parts.measure_parts(config, seconds, [size])
  core_seconds = measured['core_seconds']
  logging.info('Measuring the training loop for %g s', 2 * seconds)
  whole = loop.measure_loop(
      config, devices_assembly.choose(config), 2 * seconds)
  logging.info('Measuring the transport for %g s', seconds)
  num_cores = machine_cores.count()
  return plan.Costs(
      core_seconds['environments'],
      measured['inference_core_seconds'][str(size)],
      core_seconds['data_path'], core_seconds['learner'],
      transport.measure_costs(
          shape, num_cores, config.envs_per_actor, seconds),
      whole['cores'] / whole['whole'] / sum(core_seconds.values()),
      min(1., whole['cores'] / num_cores), num_cores)
