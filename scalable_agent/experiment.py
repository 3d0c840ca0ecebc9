r"""IMPALA: trains and tests agents on DeepMind Lab, Atari and Gymnasium levels.

    python -m scalable_agent.experiment --level_name=pong --logdir=/tmp/pong
    python -m scalable_agent.experiment --level_name=pong --logdir=/tmp/pong \
        --mode=test

Run the first command again and it resumes.

Flags that are not given take the paper's value for the level's suite, which the
help text names where it differs from the default: "Atari" is Table G.1. The
resolved values are in LOGDIR/config.json.
"""

import contextlib
import os
import sys

from absl import app
from absl import flags
from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.environments import PoolError
from scalable_agent.process import open_files
from scalable_agent.process import signals
from scalable_agent.process import tensorflow_environment
from scalable_agent.training import logdir as logdir_lib

FLAGS = flags.FLAGS

config_flags.define()


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
  tensorflow_environment.prepare()
  at_once = False
  status = 0
  try:
    if len(argv) > 1:
      raise config_lib.ConfigError(
          f'Unexpected arguments: {" ".join(argv[1:])}. Flags are given as '
          '--name=value, or --name and --noname where they are on or off.')
    config = config_from_flags()
    at_once = config.num_learners > 1
    open_files.raise_limit()
    with signals.stop_on_signals(
        'saving and stopping' if config.writes_logdir else 'stopping') as stop:
      if config.mode == 'test':
        status = _test(config, stop)
      elif config.is_actor_job:
        _act(config, stop)
      else:
        _learn(config, stop)
  except (config_lib.ConfigError, PoolError, _Failure) as e:
    _exit(1, at_once, e)
  except KeyboardInterrupt:
    _exit(130, at_once)
  if at_once or status:
    _exit(status, at_once)


# What follows imports as it goes: bad flags are answered before TensorFlow's
# seconds of loading, and some actor jobs do without it.


def _act(config, stop):
  # Before TensorFlow sees the GPUs, which are the learner's.
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  from scalable_agent.jobs import actor_job
  logging.info('Configuration: %s', config.to_json())
  try:
    actor_job.run(config, stop)
  except actor_job.Refused as e:
    raise _Failure(e) from e


def _learn(config, stop):
  with (logdir_lib.claim(config) if config.writes_logdir
        else contextlib.nullcontext()):
    import tensorflow as tf
    from scalable_agent.jobs import actor_server
    from scalable_agent.training import actor_threads
    from scalable_agent.training import checkpoint
    from scalable_agent.training import peers as peers_lib
    from scalable_agent.training import run as run_lib
    tf.get_logger().setLevel('WARNING')
    logging.info('Configuration: %s', config.to_json())
    start_actors = (
        actor_server.start if config.task >= 0 else actor_threads.start)
    try:
      run_lib.train(config, start_actors, stop)
    except (checkpoint.CheckpointError, run_lib.TrainingError,
            peers_lib.PeerError) as e:
      raise _Failure(e) from e


def _test(config, stop):
  import tensorflow as tf
  from scalable_agent.evaluation import test_mode
  from scalable_agent.training import checkpoint
  tf.get_logger().setLevel('WARNING')
  logging.info('Configuration: %s', config.to_json())
  try:
    test_mode.test(config, stop)
  except checkpoint.CheckpointError as e:
    raise _Failure(e) from e
  except test_mode.Stopped:
    return stop.exit_status
  return 0


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
