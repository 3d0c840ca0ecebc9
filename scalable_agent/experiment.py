"""IMPALA: trains and tests agents on DeepMind Lab, Atari and Gymnasium levels.

    python -m scalable_agent.experiment --level_name=pong --logdir=/tmp/pong
    python -m scalable_agent.experiment --logdir=/tmp/pong
    python -m scalable_agent.experiment --logdir=/tmp/pong --mode=test
    python -m scalable_agent.experiment --logdir=/tmp/pong --mode=export
    python -m scalable_agent.experiment --level_name=dmlab30 --mode=check

The first trains, the second resumes what it finds, the third plays whole
episodes, and the fourth writes a SavedModel. The last says which levels can be
played on this machine.

Flags that are not given take the default of the level's suite, which the help
text names where it differs from the flag's: "Atari" is the paper's Table G.1.
The flags' own defaults, which DeepMind Lab has, are those of the released code.
The resolved values are in LOGDIR/config.json.
"""

import os
import sys

from absl import flags
from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import library
from scalable_agent.config import flags as config_flags
from scalable_agent.environments import PoolError
from scalable_agent.files import open_files
from scalable_agent.machine import nvidia
from scalable_agent.process import binary
from scalable_agent.process import errors
from scalable_agent.process import signals
from scalable_agent.process import tensorflow_environment
from scalable_agent.training import logdir as logdir_lib
from scalable_agent.training import run_config

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(config_flags)


def _say_default_level(config):
  """Warns of a level that nobody has named: a run may have been meant."""
  if FLAGS['level_name'].present:
    return
  if config.is_actor_job:
    logging.warning(
        '--level_name is not given: this actor plays the default, %s. It needs '
        'the level of its learner.', config.level_name)
  elif (config.writes_logdir and
        not logdir_lib.read_config(config.logdir, config.mode)):
    logging.warning(
        '--level_name is not given, and --logdir=%s holds no run to go on '
        'with: a new run trains on the default, %s.', config.logdir,
        config.level_name)


def _say_alone(config):
  """Warns of a job that trains alone since its --task was forgotten."""
  if config.is_learner and config.task < 0 and FLAGS['learner_hosts'].present:
    logging.warning(
        '--learner_hosts is given, and --task is not: this run trains alone, '
        'and no actor job can reach it.')


def _say_unused(config):
  """Warns of flags that make no difference to this run."""
  for name, value in config_flags.given().items():
    declared = config_lib.SETTINGS[name]
    if (config.writes_logdir and declared.needs and
        value != declared.default and not getattr(config, declared.needs)):
      logging.warning('--%s=%s makes no difference, since --%s=%s.', name,
                      value, declared.needs, getattr(config, declared.needs))


def main(argv):
  """Does what the flags say; ends with one line where it cannot."""
  logging.set_verbosity(logging.INFO)
  tensorflow_environment.prepare()
  at_once = False
  status = 0
  try:
    config_flags.refuse_arguments(argv)
    config = run_config.resolve(config_flags.given())
    at_once = config.num_learners > 1
    _say_default_level(config)
    _say_alone(config)
    _say_unused(config)
    open_files.raise_limit()
    with signals.stop_on_signals(
        'saving and stopping' if config.writes_logdir else 'stopping') as stop:
      if config.mode == 'test':
        _test(config, stop)
      elif config.mode == 'export':
        _export(config, stop)
      elif config.mode == 'check':
        status = _check(config, stop)
      elif config.is_actor_job:
        _act(config, stop)
      elif config.is_replay_job:
        _keep_replay(config, stop)
      else:
        library.learn(config, stop)
  except (config_lib.ConfigError, PoolError, errors.Failure) as e:
    _exit(1, at_once, e)
  except signals.Interrupted:
    status = stop.exit_status
  except KeyboardInterrupt:
    _exit(130, at_once)
  if at_once or status:
    _exit(status, at_once)


# What follows imports as it goes: bad flags are answered before TensorFlow's
# seconds of loading, and some actor jobs do without it.


def _act(config, stop):
  nvidia.hide()  # They are the learner's.
  from scalable_agent.jobs import actor_job
  actor_job.run(config, stop)


def _keep_replay(config, stop):
  from scalable_agent.jobs import replay_job
  replay_job.run(config, stop)


def _test(config, stop):
  tensorflow_environment.load()
  from scalable_agent.evaluation import test_mode
  test_mode.test(config, stop)


def _export(config, stop):
  tensorflow_environment.load()
  from scalable_agent.evaluation import export
  with stop.interrupting():
    print(export.export(config))


def _check(config, stop):
  from scalable_agent.evaluation import check_mode
  all_play = check_mode.check(config, stop)
  return stop.exit_status if stop.is_set() else int(not all_play)


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
  binary.run(main)
