r"""IMPALA: trains and tests agents on DeepMind Lab, Atari and Gymnasium levels.

    python -m scalable_agent.experiment --level_name=pong --logdir=/tmp/pong
    python -m scalable_agent.experiment --level_name=pong --logdir=/tmp/pong \
        --mode=test

Run the first command again and it resumes.

Flags that are not given take the paper's value for the level's suite, which the
help text names where it differs from the default: "Atari" is Table G.1. The
resolved values are in LOGDIR/config.json.
"""

import os
import sys

from absl import app
from absl import flags
from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import logdir as logdir_lib
from scalable_agent.environments import PoolError

FLAGS = flags.FLAGS

flags.DEFINE_string(
    'logdir', '/tmp/agent',
    'Directory of the run: configuration, checkpoints, logs. A run resumes '
    'from what it finds there.')
flags.DEFINE_enum(
    'mode', 'train', ['train', 'test'],
    'Whether to train, or to play whole games with the newest checkpoint.')
flags.DEFINE_integer(
    'test_num_episodes', 10, 'Games to play per level in test mode.')

flags.DEFINE_string(
    'video_dir', '',
    'Directory for a GIF of one more game per level in test mode; the level '
    'has to have images to show.')

flags.DEFINE_integer(
    'task', -1, 'Index of this job among those of its job_name; -1 runs all on '
    'this machine.')
flags.DEFINE_enum(
    'job_name', 'learner', ['learner', 'actor'],
    'What this job is, if --task is not -1.')
flags.DEFINE_list(
    'learner_hosts', ['localhost:8000'],
    'host:port of every learner, in the order of their --task. A learner '
    'listens on its port: on loopback if its host is, on all addresses '
    'otherwise. Actor i talks to learner i modulo their number.')
flags.DEFINE_list(
    'collective_hosts', [],
    'host:port where TensorFlow listens for the other learners, if there are '
    'several, in the order of their --task; by default the hosts of '
    '--learner_hosts, with ports that are higher by 1000.')
flags.DEFINE_integer(
    'envs_per_actor', 1, 'Environments of an actor job.')
flags.DEFINE_enum(
    'inference', 'actor', ['actor', 'learner'],
    'Where the policy of actor jobs runs: at the actor, with weights fetched '
    'before each unroll, or at the learner, which is sent observations and '
    'answers with actions.')
flags.DEFINE_string(
    'auth_token_file', '', 'File with a secret of 16 characters or more that '
    'learners and actors share.')
flags.DEFINE_string(
    'tls_cert', '', 'PEM file with the certificate of this job.')
flags.DEFINE_string('tls_key', '', 'PEM file with the private key to it.')
flags.DEFINE_string(
    'tls_ca', '', 'PEM file with the certificates that the other side\'s has '
    'to be signed by. A learner that has one asks actors for theirs.')
flags.DEFINE_bool(
    'insecure_network', False, 'Let a learner listen on a network without a '
    'token or TLS. Several learners need it, because TensorFlow connects them '
    'without either, on all addresses.')

flags.DEFINE_integer(
    'total_environment_frames', int(1e9),
    'Environment frames to train for; the learning rate is 0 at the end. '
    '(Atari: 200 million, and as many for each game of atari57. gym: 10 '
    'million.)')
flags.DEFINE_integer(
    'num_actors', 4, 'Number of environments. (Atari, gym: 16 per core, but no '
    'less than --batch_size, and no more than 4 times that. atari57: a '
    'multiple of 57. dmlab30: 30.)')
flags.DEFINE_integer(
    'batch_size', 2, 'Unrolls per batch, over all learners and their devices. '
    '(Atari, gym: 32.)')
flags.DEFINE_integer(
    'unroll_length', 100, 'Length of an unroll in agent steps. '
    '(Atari, gym: 20.)')
flags.DEFINE_integer(
    'num_action_repeats', 4, 'Environment frames per agent step. (gym: 1.)')
flags.DEFINE_integer('seed', 1, 'Random seed of weights, actions and levels.')

flags.DEFINE_enum(
    'architecture', 'impala',
    ['impala', 'a2c_sync_step', 'a2c_sync_trajectory'],
    'How actors and learner take turns (paper, section 5.1): impala, neither '
    'waits for the other; or batched A2C, on policy, where all environments '
    'wait for each other at every step, or at the end of every unroll, and '
    'then for the update. A2C needs --batch_size equal to --num_actors.')
flags.DEFINE_float(
    'entropy_cost', 0.00025, 'Multiplier of the entropy loss. '
    '(Atari, gym: 0.01.)')
flags.DEFINE_float('baseline_cost', .5, 'Multiplier of the baseline loss.')
flags.DEFINE_float('discounting', .99, 'Discount factor per agent step.')
flags.DEFINE_enum(
    'reward_clipping', 'abs_one', ['abs_one', 'soft_asymmetric', 'none'],
    'How the learner clips rewards. Logged returns are never clipped. '
    '(gym: none. dmlab30: soft_asymmetric.)')
flags.DEFINE_float(
    'clip_rho_threshold', 1.0, 'rho_bar of V-trace; 0 does not truncate.')
flags.DEFINE_float(
    'clip_pg_rho_threshold', 1.0, 'Level at which the importance weights of '
    'the policy gradient are truncated; 0 does not truncate.')
flags.DEFINE_float(
    'vtrace_lambda', 1.0, 'lambda of V-trace (paper, Remark 2), in [0, 1].')
flags.DEFINE_float(
    'replay_proportion', 0., 'Proportion of every batch that is drawn from '
    'unrolls trained on before (paper, section 5.2.2: 0.5). Frames and policy '
    'lag are counted without them.')
flags.DEFINE_integer(
    'replay_capacity', 10_000, 'Unrolls that each learner keeps for replay, in '
    'memory: an unroll of 20 steps of Atari is 0.6 MB, one of 100 of DeepMind '
    'Lab 2.1 MB.')

flags.DEFINE_string(
    'dataset_path', '',
    'Directory of the images that two psychlab_* levels show.')
flags.DEFINE_string(
    'level_cache_dir', '',
    'Where to keep the maps that DeepMind Lab compiles, so that none is '
    'compiled twice: a directory, or any path that tf.io.gfile knows. '
    'Processes and machines may share it. Empty keeps none.')
flags.DEFINE_string(
    'level_name', 'explore_goal_locations_small',
    'A DeepMind Lab level, dmlab30 for that suite, an Atari game in snake case '
    '(space_invaders), atari57 for all of them, gym:<id> of a Gymnasium '
    'environment with Discrete actions and Box observations (gym:CartPole-v1), '
    'or synthetic:<options> of one that only takes time '
    '(synthetic:step_ms=5,std=0.5).')
flags.DEFINE_integer(
    'width', 96,
    'Width of the observation in pixels. (Atari: 84. gym: unused.)')
flags.DEFINE_integer(
    'height', 72,
    'Height of the observation in pixels. (Atari: 84. gym: unused.)')
flags.DEFINE_bool(
    'full_action_set', False,
    'Use all 18 actions of Atari instead of the game\'s own. (atari57: yes.)')

flags.DEFINE_enum(
    'network', 'deep', ['deep', 'shallow', 'vector', 'auto'],
    'Torso of the network (paper, Figure 3); vector is two linear layers for '
    'observations that are no images; auto is vector or shallow, by the '
    'observation. (Atari: shallow; atari57: deep. gym: auto.)')
flags.DEFINE_bool(
    'use_lstm', True, 'Whether the network has an LSTM core. (Atari, gym: no.)')

flags.DEFINE_enum(
    'precision', 'float32', ['float32', 'bfloat16'],
    'What the convolutions compute in; everything else is float32. bfloat16 '
    'pays on GPUs, and on CPUs with AVX-512 BF16.')
flags.DEFINE_float(
    'learning_rate', 0.00048, 'Learning rate at the start; it falls linearly '
    'to 0. (Atari, gym: 0.0006.)')
flags.DEFINE_float('decay', .99, 'Decay of RMSProp\'s mean square.')
flags.DEFINE_float('momentum', 0., 'Momentum of RMSProp.')
flags.DEFINE_float(
    'epsilon', .1, 'Epsilon of RMSProp, inside the root. (Atari, gym: 0.01.)')
flags.DEFINE_float(
    'gradient_norm_clip', 0., 'Norm to which the gradient over all weights is '
    'clipped; 0 does not clip. (Atari, gym: 40.)')

flags.DEFINE_enum(
    'xla', 'auto', ['auto', 'on', 'off'],
    'Whether XLA compiles the networks; auto does on GPUs.')
flags.DEFINE_integer(
    'num_learner_devices', 0, 'Devices that share a batch: GPUs, or logical '
    'CPUs where there is none; 0 takes all GPUs, or one CPU.')
flags.DEFINE_string(
    'inference_device', '', 'Device of the policy, cpu:0 or gpu:<i>; by '
    'default the learner\'s first. Other GPUs than a gpu:<i> named here learn.')
flags.DEFINE_integer(
    'intra_op_threads', 0, 'Threads that share one operation of TensorFlow on '
    'the CPU; 0 takes half of the cores where no GPU trains, all of them in a '
    'learner job whose actors have the policy, and one in an actor job.')
flags.DEFINE_integer(
    'num_pools', 0, 'Pools that the environments are spread over, each with '
    'its own actor thread; 0 chooses by suite.')
flags.DEFINE_integer(
    'pool_batch_size', 0, 'Environments that a pool hands out at a time at the '
    'most (Atari: exactly); 0 chooses by suite.')
flags.DEFINE_integer(
    'environment_threads', 0, 'Threads (Atari) or processes (gym) per machine '
    'that step environments; 0 takes one per core, and one in an actor job. '
    '(synthetic: one per environment. DeepMind Lab: always one per environment.) '
    'A process of several steps one while the policy acts for the others.')
flags.DEFINE_integer(
    'inference_minimum_batch_size', 1, 'Environments that the policy waits for '
    'before it runs, if there are several pools.')
flags.DEFINE_integer(
    'inference_maximum_batch_size', 1024, 'Environments that the policy runs '
    'on at once at the most.')
flags.DEFINE_integer(
    'inference_timeout_ms', 100, 'Milliseconds after which the policy runs on '
    'fewer environments than the minimum.')
flags.DEFINE_integer(
    'queue_capacity', 0, 'Unrolls that wait for the learner at the most; then '
    'actors wait. 0 takes --batch_size, over the number of learners.')

flags.DEFINE_float(
    'save_checkpoint_secs', 120., 'Seconds between two checkpoints.')
flags.DEFINE_integer('keep_checkpoints', 3, 'Checkpoints to keep.')
flags.DEFINE_float('log_interval_secs', 10., 'Seconds between two log entries.')
flags.DEFINE_float(
    'batch_timeout_secs', 600., 'Seconds without a batch after which training '
    'gives up.')


class _Failure(RuntimeError):
  """What ended a run, of whatever type where that is not imported."""


def config_from_flags():
  """Returns the `config.Config` that the flags ask for.

  Raises:
    config_lib.ConfigError: A flag's value cannot work.
  """
  return config_with({})


def config_with(changes):
  """As `config_from_flags`, as if `changes` (name to value) were given too."""
  values = FLAGS.flag_values_dict()
  given = {name for name in values if FLAGS[name].present}
  return config_lib.resolve(dict(values, **changes), given | set(changes))


def main(argv):
  """Trains or tests as the flags say; ends with one line where it cannot."""
  logging.set_verbosity(logging.INFO)
  at_once = False
  try:
    if len(argv) > 1:
      raise config_lib.ConfigError(
          f'Unexpected arguments: {" ".join(argv[1:])}. Flags are given as '
          '--name=value, or --name and --noname where they are on or off.')
    config = config_from_flags()
    at_once = config.num_learners > 1
    if config.mode == 'train' and config.is_actor_job:
      _act(config)
    else:
      _learn(config)
  except (config_lib.ConfigError, PoolError, _Failure) as e:
    _exit(1, at_once, e)
  except KeyboardInterrupt:
    _exit(130, at_once)
  if at_once:
    _exit(0, at_once)


# What follows imports as it goes: bad flags are answered before TensorFlow's
# seconds of loading, and some actor jobs do without it.


def _act(config):
  # Before TensorFlow sees the GPUs, which are the learner's.
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  from scalable_agent import actor_job
  logging.info('Configuration: %s', config.to_json())
  try:
    actor_job.run(config)
  except actor_job.Refused as e:
    raise _Failure(e) from e


def _learn(config):
  if config.writes_logdir:
    logdir_lib.make(config)
  import tensorflow as tf
  from scalable_agent import checkpoint
  from scalable_agent import remote_actors
  from scalable_agent import synchronization
  from scalable_agent import testing
  from scalable_agent import training
  tf.get_logger().setLevel('WARNING')
  logging.info('Configuration: %s', config.to_json())
  try:
    if config.mode == 'test':
      testing.test(config)
    elif config.task >= 0:
      training.train(config, remote_actors.RemoteActors.start)
    else:
      training.train(config)
  except (checkpoint.CheckpointError, training.TrainingError,
          synchronization.PeerError) as e:
    raise _Failure(e) from e


def _exit(code, at_once, error=None):
  """Ends the process; at once means without what Python does at exit.

  There TensorFlow would wait for the other learners, which may be gone.
  """
  if error:
    sys.stderr.write(f'Error: {error}\n')
  if at_once:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
  sys.exit(code)


if __name__ == '__main__':
  app.run(main)
