"""The configuration of a run: plain values, suite defaults, checks."""

import dataclasses
import difflib
import json
import math
import os

from scalable_agent import atari57
from scalable_agent import dmlab30

# What a user who did not set the flag gets, where that is not the flag's own
# default (DMLab: paper, Table D.3, and the released code).
SUITE_DEFAULTS = {
    'dmlab': {},
    # One environment for each level; Table D.3 for this suite.
    'dmlab30': dict(num_actors=30, reward_clipping='soft_asymmetric'),
    # Table G.1. `decay` is TensorFlow 1's value in the released code.
    'atari': dict(
        width=84, height=84, num_action_repeats=4, unroll_length=20,
        batch_size=32, learning_rate=0.0006, epsilon=0.01, entropy_cost=0.01,
        gradient_norm_clip=40., reward_clipping='abs_one',
        total_environment_frames=200_000_000, network='shallow',
        use_lstm=False),
    # On top of that, the multi-task agent has the deep network and all actions
    # (Appendix G), and 200 million frames of each game (section 5.3.2). The
    # paper has no fixed learning rate, entropy cost, epsilon and norm clip for
    # it: a population adapts them. A single agent keeps the experts'.
    'atari57': dict(
        network='deep', full_action_set=True,
        total_environment_frames=11_400_000_000),
    # Table G.1's optimisation on environments that need no Atari preprocessing.
    'gym': dict(
        num_action_repeats=1, unroll_length=20, batch_size=32,
        learning_rate=0.0006, epsilon=0.01, entropy_cost=0.01,
        gradient_norm_clip=40., reward_clipping='none',
        total_environment_frames=10_000_000, network='auto', use_lstm=False),
    # For measurements, so that nothing but time matters.
    'synthetic': dict(
        num_action_repeats=1, unroll_length=20, batch_size=32, network='auto',
        use_lstm=False),
}

# From a learner's port for actors to the one for the other learners.
_COLLECTIVE_PORT_OFFSET = 1000

# Enough environments to keep a core busy while the policy acts for others.
_ACTORS_PER_CORE = 16
# Bounds the policy lag, which is about actors / unrolls in a batch.
_MAX_ACTORS_PER_UNROLL = 4

_DMLAB_PREFIXES = (
    'contributed/', 'dmlab30', 'rooms_', 'language_', 'lasertag_', 'natlab_',
    'skymaze_', 'psychlab_', 'explore_', 'seekavoid_', 'nav_maze_', 'lt_',
    'stairway_to_melon', 'tests/')


class ConfigError(ValueError):
  """A setting cannot work; the message is one line that says which and why."""


@dataclasses.dataclass(frozen=True)
class Config:
  """Everything a run depends on; the flags' help explains each value."""
  logdir: str
  mode: str
  suite: str
  level_name: str
  test_num_episodes: int
  video_dir: str
  total_environment_frames: int
  task: int
  job_name: str
  learner_hosts: list
  collective_hosts: list
  inference: str
  envs_per_actor: int
  auth_token_file: str
  tls_cert: str
  tls_key: str
  tls_ca: str
  insecure_network: bool
  num_actors: int
  batch_size: int
  unroll_length: int
  num_action_repeats: int
  seed: int
  architecture: str
  entropy_cost: float
  baseline_cost: float
  discounting: float
  reward_clipping: str
  clip_rho_threshold: float
  clip_pg_rho_threshold: float
  vtrace_lambda: float
  replay_proportion: float
  replay_capacity: int
  dataset_path: str
  level_cache_dir: str
  width: int
  height: int
  full_action_set: bool
  network: str
  use_lstm: bool
  precision: str
  learning_rate: float
  decay: float
  momentum: float
  epsilon: float
  gradient_norm_clip: float
  xla: str
  num_learner_devices: int
  inference_device: str
  intra_op_threads: int
  num_pools: int
  pool_batch_size: int
  environment_threads: int
  inference_minimum_batch_size: int
  inference_maximum_batch_size: int
  inference_timeout_ms: int
  queue_capacity: int
  save_checkpoint_secs: float
  keep_checkpoints: int
  log_interval_secs: float
  batch_timeout_secs: float

  @property
  def frames_per_step(self):
    """Environment frames in one batch that were not in one before."""
    return (self.num_new_unrolls * self.num_learners * self.unroll_length *
            self.num_action_repeats)

  @property
  def num_environments(self):
    """Environments of this job: those of all actors if it is on its own."""
    return self.envs_per_actor if self.is_actor_job else self.num_actors

  @property
  def is_actor_job(self):
    """Whether this is one of several jobs, and acts."""
    return self.task >= 0 and self.job_name == 'actor'

  @property
  def leaves_acting_to_others(self):
    """Whether this is a learner job whose actors have the policy."""
    return (self.mode == 'train' and self.task >= 0 and
            self.job_name == 'learner' and self.inference == 'actor')

  @property
  def num_learners(self):
    """Learners that update the same weights together with this job."""
    trains = self.mode == 'train' and not self.is_actor_job
    return len(self.learner_hosts) if trains and self.task >= 0 else 1

  @property
  def learner_batch_size(self):
    """Unrolls per batch at this learner."""
    return self.batch_size // self.num_learners

  @property
  def num_replayed_unrolls(self):
    """Unrolls of a batch at this learner that come from replay."""
    return round(self.learner_batch_size * self.replay_proportion)

  @property
  def num_new_unrolls(self):
    """Unrolls of a batch at this learner that come from actors."""
    return self.learner_batch_size - self.num_replayed_unrolls

  @property
  def writes_logdir(self):
    """Whether this job trains, and writes to the log directory."""
    return self.mode == 'train' and not self.is_actor_job and self.task <= 0

  def to_json(self):
    """The configuration as an indented JSON object."""
    return json.dumps(dataclasses.asdict(self), indent=2) + '\n'


def suite_of(level_name):
  """Returns 'atari', 'gym', 'synthetic' or 'dmlab'.

  Raises:
    ConfigError: No suite has such a level; the message names the nearest.
  """
  if level_name.startswith('gym:'):
    return 'gym'
  if level_name.startswith('synthetic:'):
    return 'synthetic'
  if level_name in atari57.GAMES or level_name == 'atari57':
    return 'atari'
  if level_name.startswith(_DMLAB_PREFIXES):
    return 'dmlab'
  nearest = difflib.get_close_matches(
      level_name, ('atari57',) + atari57.GAMES, n=3, cutoff=.5)
  hint = (f'Did you mean {" or ".join(nearest)}?' if nearest else
          'Expected an Atari game in snake case (pong, space_invaders), '
          'atari57 for all of them, or gym:<id> (gym:CartPole-v1).')
  raise ConfigError(f'--level_name={level_name} is no known level. {hint}')


def _choose_num_actors(architecture, batch_size, num_pools, num_cores,
                       num_levels):
  if architecture != 'impala':
    return batch_size
  count = max(batch_size, min(_ACTORS_PER_CORE * num_cores,
                              _MAX_ACTORS_PER_UNROLL * batch_size))
  if num_levels > 1:  # Every pool has the same number of each level.
    num_pools = num_levels * max(num_pools, 1)
    count = max(count - count % num_pools, num_pools)
  return count + -count % max(num_pools, 1)


def resolve(values, given):
  """Makes the configuration from flag values.

  Args:
    values: A dict of flag name to value, for every field of `Config` but
      `suite`; further entries are ignored.
    given: Names of the flags that the user set; these win over the defaults of
      the suite.

  Returns:
    A `Config`.

  Raises:
    ConfigError: A value cannot work.
  """
  suite = suite_of(values['level_name'])
  names = [field.name for field in dataclasses.fields(Config)]
  resolved = {name: values[name] for name in names if name != 'suite'}
  defaults = dict(SUITE_DEFAULTS[suite],
                  **SUITE_DEFAULTS.get(values['level_name'], {}))
  for name, value in defaults.items():
    if name not in given:
      resolved[name] = value
  if ('num_actors' not in given and suite != 'dmlab' and
      resolved['task'] < 0):
    resolved['num_actors'] = _choose_num_actors(
        resolved['architecture'], resolved['batch_size'],
        resolved['num_pools'], len(os.sched_getaffinity(0)),
        len(atari57.GAMES) if resolved['level_name'] == 'atari57' else 1)
  config = Config(suite=suite, **resolved)
  if config.num_learners > 1 and not config.collective_hosts:
    config = dataclasses.replace(
        config, collective_hosts=_collective_hosts(config.learner_hosts))
  if not config.queue_capacity:
    config = dataclasses.replace(
        config, queue_capacity=max(config.learner_batch_size, 1))
  _check(config)
  return config


def _collective_hosts(learner_hosts):
  hosts = []
  for address in learner_hosts:
    host, _, port = address.rpartition(':')
    if not host or not port.isdigit():
      raise ConfigError(f'--learner_hosts: {address!r} is no address, expected '
                        'host:port.')
    hosts.append(f'{host}:{int(port) + _COLLECTIVE_PORT_OFFSET}')
  return hosts


def _check(config):
  def require(condition, name, expected):
    if not condition:
      raise ConfigError(
          f'--{name}={getattr(config, name)} cannot work: {expected}.')

  for name in ('batch_size', 'unroll_length', 'num_actors',
               'num_action_repeats', 'total_environment_frames',
               'test_num_episodes', 'width', 'height', 'keep_checkpoints',
               'inference_minimum_batch_size', 'envs_per_actor',
               'replay_capacity'):
    require(getattr(config, name) >= 1, name, 'it has to be 1 or more')
  for name in ('num_learner_devices', 'intra_op_threads', 'num_pools',
               'pool_batch_size', 'environment_threads', 'inference_timeout_ms',
               'clip_rho_threshold', 'clip_pg_rho_threshold',
               'gradient_norm_clip', 'learning_rate', 'entropy_cost',
               'baseline_cost', 'momentum'):
    require(getattr(config, name) >= 0, name, 'it has to be 0 or more')
  for name in ('gradient_norm_clip', 'learning_rate', 'entropy_cost',
               'baseline_cost', 'momentum', 'epsilon'):
    require(math.isfinite(getattr(config, name)), name, 'it has to be finite')
  for name in ('discounting', 'decay', 'vtrace_lambda'):
    require(0 <= getattr(config, name) <= 1, name, 'it has to be in [0, 1]')
  require(0 <= config.replay_proportion < 1, 'replay_proportion',
          'it has to be in [0, 1)')
  for name in ('epsilon', 'log_interval_secs', 'save_checkpoint_secs',
               'batch_timeout_secs'):
    require(getattr(config, name) > 0, name, 'it has to be positive')
  learners = config.num_learners
  require(config.queue_capacity >= config.num_new_unrolls, 'queue_capacity',
          f'a batch of --batch_size={config.batch_size} unrolls ' + (
              f'over {learners} learners ' if learners > 1 else '') +
          'could never fill; make it at least as large, or 0')
  replicas = max(config.num_learner_devices, 1)
  require(config.batch_size % (learners * replicas) == 0, 'batch_size',
          'it has to be a multiple of ' + (
              f'{learners} learners (--learner_hosts) times ' if learners > 1
              else '') + f'--num_learner_devices={replicas}')
  replayed = config.replay_proportion * config.learner_batch_size
  require(math.isclose(replayed, config.num_replayed_unrolls) and
          config.num_new_unrolls > 0,
          'replay_proportion', f'of {config.learner_batch_size} unrolls in a '
          f'batch, that is {replayed:g}: it has to be whole, and not all')
  if config.is_actor_job or config.task < 0:
    _check_pools(config, require)
  _check_atari57(config, require)
  _check_dmlab30(config, require)
  _check_architecture(config, require)
  _check_jobs(config, require)


def _check_atari57(config, require):
  if config.level_name != 'atari57':
    return
  require(config.full_action_set, 'full_action_set',
          'one policy plays all games of atari57, whose own action sets differ')
  require(config.task >= 0 or config.mode == 'test' or
          config.num_actors // max(config.num_pools, 1) >= len(atari57.GAMES),
          'num_actors', f'atari57 needs one for each of {len(atari57.GAMES)} '
          'games, in each of --num_pools')


def _check_dmlab30(config, require):
  num_levels = len(dmlab30.LEVEL_MAPPING)
  if (config.level_name == 'dmlab30' and config.task < 0 and
      config.mode == 'train'):
    require(config.num_actors // max(config.num_pools, 1) >= num_levels,
            'num_actors', f'dmlab30 needs one for each of {num_levels} levels, '
            'in each of --num_pools')


def _check_pools(config, require):
  pools = max(config.num_pools, 1)
  count_name = 'envs_per_actor' if config.is_actor_job else 'num_actors'
  require(getattr(config, count_name) % pools == 0, count_name,
          f'it has to be a multiple of --num_pools={pools}')
  per_pool = getattr(config, count_name) // pools
  require(config.pool_batch_size == 0 or per_pool % config.pool_batch_size == 0,
          'pool_batch_size', f'it has to divide the {per_pool} environments of '
          'a pool')
  require(
      config.inference_maximum_batch_size >= max(
          config.inference_minimum_batch_size,
          config.pool_batch_size or per_pool),
      'inference_maximum_batch_size',
      'it has to hold what one pool hands out and be no less than '
      '--inference_minimum_batch_size')


def _check_jobs(config, require):
  require(config.task >= -1, 'task', 'it is -1, or the index of a job')
  if config.task < 0:
    return
  require(config.architecture == 'impala', 'architecture',
          'batched A2C runs on one machine alone, leave --task at -1')
  require(config.learner_hosts, 'learner_hosts',
          'a job needs the host:port of every learner')
  if config.job_name == 'learner':
    require(config.task < len(config.learner_hosts), 'task',
            f'--learner_hosts names {len(config.learner_hosts)}')
  if config.num_learners > 1:
    _check_collectives(config, require)


def _check_collectives(config, require):
  hosts = config.collective_hosts
  require(len(hosts) == config.num_learners, 'collective_hosts',
          f'--learner_hosts names {config.num_learners}')
  for address in hosts:
    host, _, port = address.rpartition(':')
    require(host and port.isdigit() and 0 < int(port) < 2**16,
            'collective_hosts', f'{address!r} is no address, expected '
            'host:port with a port below 65536')
  require(len(set(hosts + config.learner_hosts)) == 2 * len(hosts),
          'collective_hosts', 'all addresses of it and of --learner_hosts have '
          'to be different')
  require(config.insecure_network, 'insecure_network',
          'TensorFlow connects several learners without a password or '
          'encryption, and listens on all addresses. Set it where the network '
          'keeps others away from --collective_hosts')


def _check_architecture(config, require):
  if config.architecture == 'impala':
    return
  a2c = f'--architecture={config.architecture}'
  require(not config.replay_proportion, 'replay_proportion',
          f'{a2c} is on policy, which replayed unrolls are not')
  require(config.batch_size == config.num_actors, 'batch_size',
          f'{a2c} trains on one unroll of every environment, so it has to '
          f'equal --num_actors={config.num_actors}')
  if config.architecture == 'a2c_sync_step':
    require(config.num_pools <= 1, 'num_pools',
            f'{a2c} steps all environments together, in one pool')
    require(config.pool_batch_size in (0, config.num_actors), 'pool_batch_size',
            f'{a2c} steps all --num_actors={config.num_actors} together')
  elif config.suite == 'atari':
    per_pool = config.num_actors // max(config.num_pools, 1)
    require(config.pool_batch_size in (0, per_pool), 'pool_batch_size',
            f'with {a2c} a pool of Atari games steps all of its {per_pool} '
            'together')
