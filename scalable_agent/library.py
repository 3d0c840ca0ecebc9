"""Training, and trained agents, for programs of the user's.

    import scalable_agent

    scalable_agent.train('/tmp/cartpole', level_name='gym:CartPole-v1')
    policy = scalable_agent.load('/tmp/cartpole', checkpoint='best')
    action = policy.step(observation, reward, done).action

The functions import what they need when they are called.
"""

import contextlib
import os

from scalable_agent import config as config_lib
from scalable_agent.files import open_files
from scalable_agent.process import tensorflow_environment
from scalable_agent.training import logdir as logdir_lib
from scalable_agent.training import run_config


def train(logdir, stop=None, **settings):
  """Trains an agent on this machine until its frames are used up.

  If `logdir` holds a run, that is resumed.

  Args:
    logdir: The run's directory; it is made if need be.
    stop: None, or a `process.signals.Stop` that ends training early, once it
      is saved.
    **settings: As the flags of `scalable_agent.experiment`. Each has a default.

  Raises:
    config.ConfigError: A setting cannot work, there is no such setting, or the
      log directory is another run's.
    environments.PoolError: Environments cannot be made, or died.
    checkpoints.checkpoint.CheckpointError: There are checkpoints and all are
      damaged, or none can be written.
    training.batches.TrainingError: Training cannot go on.
  """
  config = run_config.resolve(dict(settings, logdir=os.fspath(logdir)))
  if not config.is_learner:
    raise config_lib.ConfigError(
        'scalable_agent.train trains, for anything else start '
        'python -m scalable_agent.experiment.')
  learn(config, stop)


def learn(config, stop=None):
  """Trains as a configuration says; see `train`.

  Args:
    config: A `config.Config` of a process that trains.
    stop: As for `train`.
  """
  open_files.raise_limit()
  with (logdir_lib.claim(config) if config.writes_logdir
        else contextlib.nullcontext()):
    tensorflow_environment.load()
    from scalable_agent.evaluation import evaluator
    from scalable_agent.jobs import actor_server
    from scalable_agent.jobs import replay_link
    from scalable_agent.training import actor_threads
    from scalable_agent.training import loop
    start_actors = (
        actor_server.start if config.task >= 0 else actor_threads.start)
    loop.train(
        config, start_actors, stop, evaluator.start, replay_link.start)


def load(logdir, checkpoint='latest', seed=0):
  """Returns a trained agent, a `evaluation.trained_policy.TrainedPolicy`.

  Args:
    logdir: The directory of a run, which may go on.
    checkpoint: 'latest', 'best' or the path of a checkpoint.
    seed: An int that the actions are drawn by.

  Raises:
    config.ConfigError: There is no such checkpoint, or it is another run's.
    environments.PoolError: An environment of the level, which is asked for its
      actions and observations, cannot be made.
    checkpoints.checkpoint.CheckpointError: The checkpoint is damaged.
  """
  config = run_config.resolve(
      dict(logdir=os.fspath(logdir), checkpoint=os.fspath(checkpoint),
           mode='export'))
  tensorflow_environment.load()
  from scalable_agent import suites
  from scalable_agent.evaluation import trained
  from scalable_agent.evaluation import trained_policy
  restored = trained.restore(config)
  actions = [value for _, value in suites.find_actions(config, restored.facts)]
  return trained_policy.TrainedPolicy(
      config.level_name, restored, actions, seed)
