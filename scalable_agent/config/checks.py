"""Checks of settings against each other.

A value that cannot work whatever the others are is refused by its declaration.
"""

import math

import numpy as np

from scalable_agent import suites
from scalable_agent.config import addresses
from scalable_agent.config import settings
from scalable_agent.config.config import SETTINGS


def _require(config, condition, name, expected):
  if not condition:
    raise settings.refusal(name, getattr(config, name), expected)


def check_jobs(config):
  """Checks which job this is, and which others there are.

  Args:
    config: A `Config`, perhaps with `collective_hosts` still to be chosen.

  Raises:
    ConfigError: It cannot work.
  """
  if config.is_replay_job:
    _require(config, config.replay_host, 'replay_host',
             '--job_name=replay needs the host:port to listen on')
    _require(config, config.task <= 0, 'task',
             'there is one replay job, leave it at -1')
    return
  _require(config, config.job_name != 'replay', 'job_name',
           f'it serves runs that train, leave out --mode={config.mode}')
  if config.task < 0:
    _require(config, config.job_name == 'learner', 'task',
             'an actor job needs its index among the actor jobs, from 0')
    return
  _require(config, not config.is_batched_a2c, 'architecture',
           'batched A2C runs on one machine alone, leave --task at -1')
  _require(config, config.architecture != 'a3c' or config.num_learners == 1,
           'learner_hosts', '--architecture=a3c has one learner, to which all '
           'workers send')
  _require(config, config.learner_hosts, 'learner_hosts',
           'a job needs the host:port of every learner')
  if config.job_name == 'learner':
    _require(config, config.task < len(config.learner_hosts), 'task',
             f'--learner_hosts names {len(config.learner_hosts)}')


def check(config):
  """Checks a `Config` in which nothing is left to be chosen.

  Raises:
    ConfigError: It cannot work.
  """
  _check_agent(config)
  _check_batch(config)
  _check_profile(config)
  _check_replay(config)
  _check_shared_replay(config)
  _check_environments(config)
  _check_lag(config)
  _check_architecture(config)
  _require(config, config.mode == 'test' or not config.video_dir, 'video_dir',
           'films are made by --mode=test')
  _require(config, config.mode == 'export' or not config.export_dir,
           'export_dir', 'exports are made by --mode=export')
  if config.mode == 'train':
    _require(config, config.checkpoint == 'latest', 'checkpoint',
             'training goes on from the newest, the others are for --mode=test '
             'and --mode=export')
    if config.is_learner:
      _check_inference(config)
  if config.num_learners > 1:
    _check_collectives(config)


def _check_agent(config):
  if config.agent == 'reactor':
    _require(config, -math.inf < config.v_min < config.v_max < math.inf,
             'v_min', 'it has to be finite, and less than a finite '
             f'--v_max={config.v_max}')
    atoms = np.linspace(config.v_min, config.v_max, config.num_atoms)
    _require(config, len(set(atoms.astype(np.float32))) == config.num_atoms,
             'v_min', f'of the --num_atoms={config.num_atoms} up to '
             f'--v_max={config.v_max} some are equal in float32')
    fill = config.frames_before_updates
    _require(config, config.mode != 'train' or not config.is_learner or
             fill < config.total_environment_frames, 'replay_min_steps',
             f'replay takes {fill} environment frames to fill, and '
             f'--total_environment_frames={config.total_environment_frames} '
             'would be over before the first update')
    _require(config, config.replay_min_steps <= config.replay_steps,
             'replay_min_steps', 'it would never be reached with '
             f'--replay_steps={config.replay_steps}')
    for name in 'momentum', 'decay':
      _require(config, getattr(config, name) < 1., name,
               'it is a share of Adam\'s means that stays, and has to be below '
               '1')


def _check_batch(config):
  learners = config.num_learners
  # Reactor takes one unroll at a time. What is no learner takes none, and an
  # actor job does not know each learner's share of a batch.
  _require(config, config.agent == 'reactor' or not config.is_learner or
           config.queue_capacity >= config.num_new_unrolls,
           'queue_capacity',
           f'a batch of --batch_size={config.batch_size} unrolls ' + (
               f'over {learners} learners ' if learners > 1 else '') +
           'could never fill; make it at least as large, or 0')
  replicas = max(config.num_learner_devices, 1)
  _require(config, config.batch_size % (learners * replicas) == 0, 'batch_size',
           'it has to be a multiple of ' + (
               f'{learners} learners (--learner_hosts) times ' if learners > 1
               else '') + f'--num_learner_devices={replicas}')
  replayed = config.replay_proportion * config.learner_batch_size
  _require(config, math.isclose(replayed, config.num_replayed_unrolls) and
           config.num_new_unrolls > 0,
           'replay_proportion', f'of {config.learner_batch_size} unrolls in a '
           f'batch, that is {replayed:g}: it has to be whole, and not all')


def _check_replay(config):
  _require(config, config.train_on_new or config.num_replayed_unrolls,
           'train_on_new', 'without --replay_proportion there would be nothing '
           'to train on')
  # The replay job does not know the networks of its learners.
  _require(config, config.replay_state == 'stored' or config.use_lstm or
           config.is_replay_job,
           'replay_state', 'without an LSTM there are no states, which '
           '--use_lstm has')
  _require(config, not config.max_policy_lag or
           not config.num_replayed_unrolls or config.replay_state == 'stored',
           'max_policy_lag', 'with --replay_state=recomputed a dropped unroll '
           'takes its whole episode out of replay, leave it at 0')
  _require(config, config.entropy_on_replay or config.train_on_new,
           'entropy_on_replay', 'with --notrain_on_new there would be no '
           'entropy loss')
  _require(config, not config.trust_region_threshold or (
      config.off_policy_correction, config.q_estimate) == ('vtrace', 'target'),
           'trust_region_threshold', 'the trust region is that of V-trace, '
           'leave --off_policy_correction and --q_estimate')
  # The trust region's relevance is computed from truncated weights.
  _require(config, not config.trust_region_threshold or
           0 < config.clip_rho_threshold < math.inf,
           'trust_region_threshold', 'with --clip_rho_threshold='
           f'{config.clip_rho_threshold:g} nothing is too far off the policy')


def _check_shared_replay(config):
  if not config.replay_host:
    return
  _require(config, config.num_learners == 1, 'replay_host',
           'several learners of one agent have a buffer each')
  # A replay job trains on nothing, so it need not draw.
  _require(config, config.num_replayed_unrolls or not config.is_learner,
           'replay_proportion', 'nothing would be drawn from the replay that '
           'agents share, set it above 0')
  _require(config, config.replay_state == 'recomputed' or
           not config.use_lstm or config.is_replay_job,
           'replay_state', 'with --replay_host unrolls are of other agents '
           'too, whose LSTM states mean nothing to this one: set it to '
           'recomputed')


def _check_profile(config):
  if not config.profile_updates or not config.writes_logdir:
    return
  updates = math.ceil(
      (config.total_environment_frames - config.frames_before_updates) /
      config.frames_per_step)
  _require(config, config.updates_to_profile[1] <= updates, 'profile_updates',
           f'the run ends after update {updates} '
           f'(--total_environment_frames={config.total_environment_frames})')


def _check_environments(config):
  # Tests and evaluations lay out pools of their own.
  if config.mode == 'train' and not config.is_replay_job and (
      config.is_actor_job or config.task < 0):
    _check_pools(config)
  refused = suites.of(config).refuse(config)
  if refused:
    name, expected = refused
    raise settings.refusal(name, getattr(config, name), expected)


def _check_pools(config):
  pools = max(config.num_pools, 1)
  count_name = 'envs_per_actor' if config.is_actor_job else 'num_actors'
  count = config.num_environments
  _require(config, count % pools == 0, count_name,
           f'it has to be a multiple of --num_pools={pools}')
  per_pool = count // pools
  _require(config, config.pool_batch_size == 0 or
           per_pool % config.pool_batch_size == 0,
           'pool_batch_size',
           f'it has to divide the {per_pool} environments of a pool')
  layout = suites.choose_layout(config, count)
  at_once = 1
  if suites.of(config).has_fixed_batches:
    num_levels = len(suites.level_names(config))
    if num_levels > 1:  # A pool hands out all environments of a game at once.
      at_once = math.ceil(layout.size / num_levels)
  most = min(layout.maximum_batch_size + at_once - 1, layout.size)
  if config.is_batched_a2c:  # All act together once they have an update.
    most = layout.size
  _require(
      config,
      config.inference_maximum_batch_size >= max(
          config.inference_minimum_batch_size, most),
      'inference_maximum_batch_size',
      f'it has to hold the {most} environments of one pool that may act at a '
      f'time (--{count_name}={count}), and be no less than '
      f'--inference_minimum_batch_size={config.inference_minimum_batch_size}')


def _check_inference(config):
  """Refuses batches of the policy that may never fill."""
  minimum = config.inference_minimum_batch_size
  if config.task < 0:
    layout = suites.choose_layout(config, config.num_actors)
    # When all pools wait for the policy, so many environments do.
    sure = layout.num_pools * layout.minimum_batch_size
    if minimum > sure:
      # With one environment in each pool, all would wait.
      more = ', or raise --num_pools' if (
          minimum <= config.num_actors and not config.pool_batch_size) else ''
      raise settings.refusal(
          'inference_minimum_batch_size', minimum,
          f'only a batch of {sure} is sure to fill, since --num_pools is '
          f'{layout.num_pools} and the fewest environments that a pool hands '
          f'out at a time are {layout.minimum_batch_size}. Set it to {sure} or '
          f'less{more}')
  elif config.inference == 'learner':
    # The learner does not know how many actor jobs and environments will come.
    _require(config, config.inference_maximum_batch_size >= minimum,
             'inference_maximum_batch_size', 'it has to be no less than '
             f'--inference_minimum_batch_size={minimum}')


def _check_collectives(config):
  hosts = config.collective_hosts
  _require(config, len(hosts) == config.num_learners, 'collective_hosts',
           f'--learner_hosts names {config.num_learners}')
  for address in hosts:
    addresses.split('collective_hosts', address)
  _require(config, len(set(hosts + config.learner_hosts)) == 2 * len(hosts),
           'collective_hosts', 'all addresses of it and of --learner_hosts '
           'have to be different')
  _require(config, config.insecure_network, 'insecure_network',
           'TensorFlow connects several learners without a password or '
           'encryption, and listens on all addresses. Set it where the network '
           'keeps others away from --collective_hosts')


def _check_lag(config):
  limit = config.max_policy_lag
  _require(config, not limit or limit >= config.policy_lag, 'max_policy_lag',
           f'with --policy_lag={config.policy_lag} every unroll would be older')


def _check_architecture(config):
  if config.architecture == 'a3c':
    _check_a3c(config)
  elif config.is_batched_a2c:
    _check_batched_a2c(config)


def _check_a3c(config):
  a3c = '--architecture=a3c'
  _require(config, config.batch_size == 1, 'batch_size',
           f'{a3c} makes an update of every unroll, so it has to be 1')
  _require(config, not config.replay_proportion, 'replay_proportion',
           f'{a3c} has the gradients of unrolls, and could not take others')
  for name in ('policy_lag', 'max_policy_lag'):
    _require(config, not getattr(config, name), name,
             f'the lag of {a3c} follows from its number of workers')
  _require(config, config.inference == 'actor', 'inference',
           f'the workers of {a3c} have the policy')
  if config.is_actor_job:
    _require(config, config.envs_per_actor == 1, 'envs_per_actor',
             f'an actor job of {a3c} is one worker, with one environment')
  for name in ('num_pools', 'pool_batch_size'):
    _require(config, not getattr(config, name), name,
             f'each worker of {a3c} has a pool of one environment, leave it '
             'at 0')
  for name in ('inference_minimum_batch_size', 'inference_timeout_ms'):
    default = SETTINGS[name].default
    _require(config, getattr(config, name) == default, name,
             f'each worker of {a3c} acts by itself, leave it at {default}')


def _check_batched_a2c(config):
  a2c = f'--architecture={config.architecture}'
  _require(config, not config.replay_proportion, 'replay_proportion',
           f'{a2c} is on policy, which replayed unrolls are not')
  _require(config, config.batch_size == config.num_actors, 'batch_size',
           f'{a2c} trains on one unroll of every environment, so it has to '
           f'equal --num_actors={config.num_actors}')
  if config.architecture == 'a2c_sync_step':
    _require(config, config.num_pools <= 1, 'num_pools',
             f'{a2c} steps all environments together, in one pool')
    _require(config, config.pool_batch_size in (0, config.num_actors),
             'pool_batch_size',
             f'{a2c} steps all --num_actors={config.num_actors} together')
  elif suites.of(config).has_fixed_batches:
    per_pool = config.num_actors // max(config.num_pools, 1)
    _require(config, config.pool_batch_size in (0, per_pool), 'pool_batch_size',
             f'with {a2c} a pool of {config.level_name} steps all of its '
             f'{per_pool} environments together')
