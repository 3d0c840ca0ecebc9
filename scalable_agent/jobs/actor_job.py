"""Runs an actor job: makes environments, and acts until training is done."""

from concurrent import futures
import contextlib
import functools
import os
import threading
import time

from absl import logging

from scalable_agent import suites
from scalable_agent.config import seeds
from scalable_agent.jobs import addresses
from scalable_agent.learner_service import client as client_lib
from scalable_agent.process import signals
from scalable_agent.process import tensorflow_environment

_CHECK_SECONDS = .2
# Environments give way to the threads that act. On shared cores they would
# interrupt those, and cost them their caches.
_ENVIRONMENTS_NICENESS = 5


def run(config, stop):
  """Acts until the learner says that training is done, or until told to stop.

  Args:
    config: A `config.Config` of an actor job.
    stop: A `signals.Stop`.

  Raises:
    config.ConfigError: The configuration cannot work.
    environments.PoolError: Environments cannot be made, or died.
    client.Refused: The learner will not work with this job.
  """
  security = addresses.load_security(config)
  address = addresses.learner_address(config)
  # The levels take turns over the environments of all jobs together.
  first = config.task * config.num_environments
  levels = list(dict.fromkeys(
      suites.turns(config, first, config.num_environments)))
  logging.info(
      'Actor %d: %s, %d environments (--envs_per_actor), learner at %s, policy '
      '%s', config.task, ', '.join(levels), config.num_environments,
      address, 'there' if config.inference == 'learner' else 'here')
  if config.inference == 'learner':
    from scalable_agent.jobs import policy_at_learner
    start = policy_at_learner.Actors
  else:
    # Only here, since TensorFlow takes more memory than all the rest.
    tensorflow_environment.load()
    if config.architecture == 'a3c':
      from scalable_agent.jobs import a3c_worker
      start = a3c_worker.start
    else:
      from scalable_agent.jobs import policy_at_actor
      start = policy_at_actor.start
  try:
    pools = _make_pools(config, first, stop)
  except signals.Interrupted:
    return
  with contextlib.ExitStack() as stack:
    for pool in pools:
      stack.callback(pool.close)
    actors = start(config, pools, functools.partial(
        client_lib.make_link, address, security, config.task))
    stack.callback(actors.close)
    try:
      while not stop.wait(_CHECK_SECONDS):
        actors.check()
    except client_lib.TrainingDone:
      logging.info('Training is done.')


def _make_pools(config, first, stop):
  """Returns the pools, from a thread with the priority of the environments.

  Args:
    config: A `config.Config` of an actor job.
    first: Number of the first environment, see `suites.turns`.
    stop: A `signals.Stop`.

  Raises:
    signals.Interrupted: It was told to stop, which may be minutes before the
      last environment has started.
    environments.PoolError: They cannot be made.
  """
  made = futures.Future()

  def make():
    # Threads and processes have the priority of the thread that starts them.
    os.nice(_ENVIRONMENTS_NICENESS)
    try:
      made.set_result(suites.make_pools(
          config, suites.choose_layout(config, config.num_environments),
          # A job that is started again does not play the same episodes again.
          seeds.derive(config.seed, seeds.TRAINING, int(time.time())), first))
    except BaseException as e:  # For the thread that waits.
      made.set_exception(e)

  # A daemon, so that the end of the process does not wait for it.
  threading.Thread(target=make, name='environments', daemon=True).start()
  with stop.interrupting():
    return made.result()
