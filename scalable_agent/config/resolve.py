"""Completes the settings that a user gave: suite defaults, choices, checks."""

import copy
import dataclasses
import difflib
import os

from scalable_agent import suites
from scalable_agent.config import addresses
from scalable_agent.config import checks
from scalable_agent.config import reactor
from scalable_agent.config.config import Config
from scalable_agent.config.config import SETTINGS
from scalable_agent.config.settings import check_value
from scalable_agent.config.settings import ConfigError
from scalable_agent.config.settings import refusal
from scalable_agent.files import file_names
from scalable_agent.machine import cores as machine_cores

# From a learner's port for actors to the one for the other learners.
_COLLECTIVE_PORT_OFFSET = 1000

# Enough environments to keep a core busy while the policy acts for others.
_ACTORS_PER_CORE = 16
# One waits for its environment while another computes.
_WORKERS_PER_CORE = 2
# Bounds the policy lag, which is about actors / new unrolls in a batch.
_MAX_ACTORS_PER_UNROLL = 4
# Values of settings for paths that name none, the second of --dataset_path.
_NO_PATHS = ('', 'dummy')


def resolve(values):
  """Makes a configuration, with everything chosen that is left open.

  Args:
    values: A dict of a setting's name to its value. What is not in it has the
      default of the suite or the agent, or else the declared one.

  Returns:
    A `Config`.

  Raises:
    ConfigError: A value cannot work, or there is no such setting.
  """
  check_given(values)
  resolved = {name: values.get(name, copy.copy(declared.default))
              for name, declared in SETTINGS.items() if not declared.is_derived}
  for name, declared in SETTINGS.items():
    if declared.is_path:
      resolved[name] = _whole_path(resolved[name])
    if name in values and declared.agent not in (None, resolved['agent']):
      raise refusal(name, resolved[name],
                    f'it is a setting of --agent={declared.agent}, and this is '
                    f'--agent={resolved["agent"]}')
  suite = _find_suite(resolved['level_name'])
  for name, value in _defaults(suite, resolved).items():
    if name not in values:
      resolved[name] = value
  if resolved['agent'] == 'reactor':
    _require_returns(resolved, values)
  config = Config(suite=suite.name, **resolved,
                  shares_replay=bool(resolved['replay_host']))
  checks.check_jobs(config)
  config = _choose(config, suite, values)
  checks.check(config)
  return config


def _whole_path(path):
  if path in _NO_PATHS or file_names.is_remote(path):
    return path
  return os.path.abspath(path)


def defaults(level_name, agent):
  """Returns the settings whose default is another one there, a dict.

  Args:
    level_name: As the setting.
    agent: As the setting.

  Raises:
    LookupError: There is no such level.
  """
  return _defaults(suites.find(level_name),
                   dict(level_name=level_name, agent=agent))


def _defaults(suite, values):
  found = suite.defaults(values['level_name'])
  if values['agent'] == 'reactor':
    found = found | reactor.DEFAULTS | suite.defaults_of_reactor
  return found


def check_given(values):
  """Checks each value by itself.

  Args:
    values: As for `resolve`.

  Raises:
    ConfigError: It cannot work, or there is no such setting.
  """
  refuse_unknown(values)
  for name, value in values.items():
    check_value(SETTINGS[name], value)


def refuse_unknown(values, flag=None):
  """Refuses names that no user can set.

  Args:
    values: Names of settings, or a dict with them as keys.
    flag: The flag that names them, None where each is a flag itself.

  Raises:
    ConfigError: For the first that is no setting.
  """
  names = [name for name, declared in SETTINGS.items()
           if not declared.is_derived]
  for name in values:
    if name not in names:
      nearest = difflib.get_close_matches(name, names)
      raise ConfigError(
          f'There is no setting {name!r} to give' +
          (f', but --{flag} names it.' if flag else '.') +
          (f' Did you mean {" or ".join(nearest)}?' if nearest else ''))


def _find_suite(level_name):
  try:
    return suites.find(level_name)
  except LookupError as e:
    raise ConfigError(f'--level_name={level_name} {e}') from e


def _require_returns(values, given):
  """Refuses Atari's range of returns for other rewards, unless it is given."""
  clipping = values['reward_clipping']
  for name in ('v_min', 'v_max'):
    if clipping != 'abs_one' and name not in given:
      raise refusal(
          name, values[name], 'that is for rewards clipped as on Atari; with '
          f'--reward_clipping={clipping} give --v_min and --v_max, between '
          f'which the discounted returns of {values["level_name"]} lie')


def _choose(config, suite, given):
  """Returns the configuration with what depends on more than one setting."""
  changes = {}
  if config.architecture == 'a3c':
    # A batch is one unroll, of which a second device could have no share.
    config = dataclasses.replace(config, **{
        name: 1 for name in ('batch_size', 'num_learner_devices')
        if name not in given})
  has_them_chosen = (
      suite.has_actors_by_cores or config.architecture != 'impala')
  if ('num_actors' not in given and has_them_chosen and
      config.task < 0 and not config.is_replay_job):
    changes['num_actors'] = _choose_num_actors(
        config, machine_cores.count(), len(suites.level_names(config)))
  if config.num_learners > 1 and not config.collective_hosts:
    changes['collective_hosts'] = _choose_collective_hosts(
        config.learner_hosts)
  if not config.queue_capacity:
    changes['queue_capacity'] = max(config.num_new_unrolls, 1)
  return dataclasses.replace(config, **changes)


def _choose_num_actors(config, num_cores, num_levels):
  num_new, num_pools = max(config.num_new_unrolls, 1), config.num_pools
  if config.is_batched_a2c:
    return config.batch_size
  if config.architecture == 'a3c':
    count = _WORKERS_PER_CORE * num_cores
  else:
    count = max(num_new, min(_ACTORS_PER_CORE * num_cores,
                             _MAX_ACTORS_PER_UNROLL * num_new))
  if num_levels > 1:  # Every pool has the same number of each level.
    num_pools = num_levels * max(num_pools, 1)
    count = max(count - count % num_pools, num_pools)
  return count + -count % max(num_pools, 1)


def _choose_collective_hosts(learner_hosts):
  hosts = []
  for address in learner_hosts:
    host, port = addresses.split('learner_hosts', address)
    hosts.append(addresses.join(host, port + _COLLECTIVE_PORT_OFFSET))
  return hosts
