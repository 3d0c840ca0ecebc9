"""The replay job that the runs of a sweep or a population share."""

import os
import socket
import sys
import time

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.process import timing
from scalable_agent.studies import outcomes
from scalable_agent.sweeps import progress
from scalable_agent.sweeps import run_processes
from scalable_agent.sweeps import trials

# The replay job's directory, in that of the sweep or the population.
DIRECTORY = 'replay_job'
# Why some runs cannot share.
_NOT_INDEPENDENT = (
    'runs that share replay learn from each other. Make one sweep for each, '
    'with another --seed and --logdir.')
# A job that has run for so long works: earlier crashes do not count.
_STEADY_SECONDS = 600.
# How long the job of a program that was killed may take to end.
_PATIENCE_SECONDS = 60.
# Settings that have to be the same in all runs that share it.
_ALIKE = config_lib.names(config_lib.REPLAY) + ('replay_capacity',)


def choose_host(given, agent):
  """Returns 'host:port' of a replay job.

  Args:
    given: What the user gave, '' to choose a free port of this machine.
    agent: The --agent that all runs are given, '' for none.

  Raises:
    ConfigError: It has no replay that could be shared.
  """
  if agent not in ('', 'impala'):
    raise config_lib.ConfigError(
        f'--share_replay cannot work with --agent={agent}, whose learners have '
        'a replay each.')
  if given:
    return given
  with socket.create_server(('localhost', 0)) as s:
    return f'localhost:{s.getsockname()[1]}'


def check_alike(configs):
  """Refuses runs that cannot share replay.

  Args:
    configs: A list of `config.Config`s.

  Raises:
    ConfigError: They differ in what the unrolls are.
  """
  for config in configs[1:]:
    for name in _ALIKE:
      values = [getattr(c, name) for c in (configs[0], config)]
      if values[0] != values[1]:
        raise config_lib.ConfigError(
            f'Shared replay cannot work: {name} is {values[0]} in one run and '
            f'{values[1]} in another, and runs that share replay need it '
            'alike.')


def check_one_condition(trials_to_run):
  """Refuses trials of several conditions that would share replay.

  Whatever makes one run better helps all that draw its unrolls, so conditions
  could not be told apart. In the paper, agents that share differ in
  hyperparameters alone (LASER, section 5.1).

  Args:
    trials_to_run: A list of `grid.Trial`s.

  Raises:
    ConfigError: They differ in more than hyperparameters.
  """
  compared = list(dict.fromkeys(
      outcomes.split(trial.variant, trial.sample)[0]
      for trial in trials_to_run))
  if len(compared) > 1:
    first, second = (outcomes.describe(variant) if variant else 'the others'
                     for variant in compared[:2])
    raise config_lib.ConfigError(
        f'Shared replay cannot work: the sweep compares {first} with '
        f'{second}, and {_NOT_INDEPENDENT} Only '
        f'{", ".join(outcomes.HYPERPARAMETERS)}, and what --samples draws, may '
        'vary in one.')


def check_sweep(trials_to_run, configs, num_seeds):
  """Refuses a sweep whose runs cannot share replay.

  Args:
    trials_to_run: A list of `grid.Trial`s.
    configs: A list of their `config.Config`s.
    num_seeds: Seeds of each trial, as --seeds says.

  Raises:
    ConfigError: They cannot.
  """
  check_alike(configs)
  if num_seeds:
    raise config_lib.ConfigError(
        f'--seeds={num_seeds} cannot work with shared replay: '
        f'{_NOT_INDEPENDENT}')
  check_one_condition(trials_to_run)


def check_parallel(left, parallel, noun):
  """Refuses what shares replay, and would not go at the same time.

  Args:
    left: How many are left to go.
    parallel: How many may go at a time.
    noun: What they are called, in the plural.

  Raises:
    ConfigError: They are too many.
  """
  if left > parallel:
    raise config_lib.refusal(
        'parallel', parallel, f'all {left} {noun} that share replay go at the '
        f'same time. Set it to {left}')


def check_slurm(slurm):
  """Refuses a replay job here for runs that Slurm starts.

  Args:
    slurm: The value of --slurm.

  Raises:
    ConfigError: Slurm starts them.
  """
  if slurm:
    raise config_lib.ConfigError(
        f'--slurm={slurm} cannot work with --share_replay, whose replay '
        'job is on this machine. Start --job_name=replay where the tasks reach '
        'it, and give them its --replay_host.')


def _num_training(runs):
  """Returns how many of a list of runs still have frames to train."""
  return sum(run.state != 'failed' and
             not progress.is_trained(run.logdir, run.total_frames)
             for run in runs)


class SharedReplay:
  """Keeps a replay job running for the length of a `with` block."""

  def __init__(self, directory, config, runs, arguments):
    """Initializes it; starts nothing.

    Args:
      directory: Of the sweep or the population.
      config: A `config.Config` of one of the runs.
      runs: A list of the `ManagedRun`s that go at the same time.
      arguments: Flags that all of them get, a list of strings.
    """
    logdir = os.path.join(directory, DIRECTORY)
    command = [
        sys.executable, '-m', trials.EXPERIMENT, *arguments,
        '--job_name=replay', f'--replay_host={config.replay_host}',
        f'--logdir={logdir}',
        *trials.memory_arguments(1, 1. - trials.MEMORY_SHARE_BESIDE_REPLAY),
        # What runs have alike is not always in what all get.
        *(f'--{name}={getattr(config, name)}' for name in ('seed', *_ALIKE))]
    self._run = run_processes.ManagedRun(
        'the replay job', logdir, 0,
        lambda: command + [f'--replay_agents={_num_training(runs)}'],
        lambda: False, ends_with_parent=True)
    self._started_time = None
    self._patience = None

  def __enter__(self):
    return self

  def check(self):
    """Starts the job, again if it has crashed.

    Raises:
      ConfigError: The job crashes again and again within minutes, or another
        program's job has not ended in time.
    """
    run = self._run
    if (run.state == 'running' and
        time.monotonic() - self._started_time >= _STEADY_SECONDS):
      run.crashes = 0
    run.poll()
    if run.state == 'waiting' and not run.rests:
      run.start()
      self._started_time = time.monotonic()
    if run.state == 'elsewhere':
      self._wait_for_other()
    else:
      self._patience = None
    if run.state == 'failed':
      raise config_lib.ConfigError(f'The replay job {run.failure()}')

  def _wait_for_other(self):
    run = self._run
    if self._patience is None:
      self._patience = timing.Waited()
      logging.warning(
          'Another program keeps the replay job in %s. It has %g s to end.',
          run.logdir, _PATIENCE_SECONDS)
    elif self._patience.seconds() >= _PATIENCE_SECONDS:
      raise config_lib.ConfigError(
          f'--logdir={os.path.dirname(run.logdir)} is in use: another program '
          'keeps the replay job there. Wait for it, stop it, or choose another '
          '--logdir.')

  def __exit__(self, *unused_args):
    self._run.terminate()
    self._run.wait()
