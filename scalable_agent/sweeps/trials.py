"""Makes the runs of the trials of a sweep."""

import collections
import os
import sys

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import chosen_checkpoint
from scalable_agent.files import file_names
from scalable_agent.machine import memory as machine_memory
from scalable_agent.studies import outcomes
from scalable_agent.studies import sweep_file
from scalable_agent.sweeps import grid
from scalable_agent.sweeps import progress
from scalable_agent.sweeps import run_processes
from scalable_agent.training import logdir as logdir_lib
from scalable_agent.training import run_config

EXPERIMENT = 'scalable_agent.experiment'
# Of the free memory, what runs that share a replay job have together. The job
# has the rest.
MEMORY_SHARE_BESIDE_REPLAY = .5
_SEED_STEP = 1000


def experiment_command(arguments, settings):
  """Returns the command of a run, a list of strings.

  Args:
    arguments: A list of flags that all runs get.
    settings: A dict of name to value, what this one gets beside them.
  """
  return [sys.executable, '-m', EXPERIMENT, *arguments,
          *(f'--{name}={value}' for name, value in settings.items())]


def memory_arguments(num_processes, share):
  """Returns flags that give each run its share of the free memory, a list.

  Runs that start together would each find all of it free.

  Args:
    num_processes: Runs that go at the same time.
    share: Of the free memory, what they have together.
  """
  free_bytes = machine_memory.free_bytes()
  if free_bytes is None or (num_processes < 2 and share == 1.):
    return []
  return [f'--memory_gb={share * free_bytes / num_processes / 1e9:.6f}']


def _check_mark(trial, logdir):
  """Refuses the directory of another trial.

  Raises:
    ConfigError: Another trial has it, or the file that says so cannot be read.
  """
  found = sweep_file.read(logdir)
  if found and (found['variant'], found['sample']) != (
      trial.variant, trial.sample):
    raise config_lib.ConfigError(
        f'{logdir} was begun with other values of what is varied or drawn. '
        'Choose another --logdir, or the same --vary, --variant, --range and '
        '--sample_seed.')


def own_seed(first, index):
  """Returns the seed of one of several agents that help each other.

  Agents of one seed begin with the same weights in the same environments, so
  they would share much the same unrolls. The seeds are so far apart that agents
  of several sweeps or populations differ too, if these begin with seeds 1, 2
  and so on.

  Args:
    first: The seed of the first agent, an int.
    index: Which agent, an int.
  """
  return first + index * _SEED_STEP


def with_own_seeds(trials, first):
  """Gives each run of a sweep the seed of `own_seed`.

  The agents of what is compared have the same seeds.

  Args:
    trials: A list of `grid.Trial`s. Those of each seed are a sweep.
    first: The seed of those that have none.

  Returns:
    Such a list.
  """
  found, counts = [], collections.Counter()
  for trial in trials:
    seed = first if trial.seed is None else trial.seed
    sweep = seed, outcomes.split(trial.variant, trial.sample)[0]
    found.append(trial._replace(
        seed=own_seed(seed, counts[sweep]), sweep_seed=seed))
    counts[sweep] += 1
  return found


def _check(trial, config):
  """Refuses what cannot be a run of a sweep, and the directory of another run.

  Args:
    trial: A `grid.Trial`.
    config: Its `config.Config`.

  Raises:
    ConfigError: It says why.
  """
  if config.task >= 0:
    raise config_lib.refusal(
        'task', config.task, 'each run of a sweep is one process')
  if config.mode not in ('train', 'test'):
    raise config_lib.refusal(
        'mode', config.mode, 'a sweep trains or tests')
  if config.is_replay_job:
    raise config_lib.refusal(
        'job_name', config.job_name, 'each run of a sweep trains. Runs share a '
        'replay job with --share_replay')
  logdir_lib.check(config, {})
  _check_mark(trial, config.logdir)


def _make_run(trial, values, arguments, ends_with_parent=False):
  """Makes the run of a trial.

  Args:
    trial: A `grid.Trial`.
    values: A dict of name to value, the run's settings as for
      `run_config.resolve_trial`.
    arguments: A list of flags that all runs get.
    ends_with_parent: As for `ManagedRun`.

  Returns:
    A pair of the `ManagedRun` and its `config.Config`.

  Raises:
    ConfigError: It cannot work, or its directory is another run's.
  """
  config = run_config.resolve_trial(values)
  _check(trial, config)
  settings = dict(grid.settings_of(trial), logdir=config.logdir)
  if config.video_dir:
    settings['video_dir'] = config.video_dir

  def check_again():
    # Another program may have begun it meanwhile.
    run_config.resolve_trial(values)
    _check_mark(trial, config.logdir)

  def is_trained():
    if config.mode == 'test' or not progress.is_trained(
        config.logdir, config.total_environment_frames):
      return False
    check_again()
    return True

  def is_done():
    if config.mode == 'test':
      return progress.is_tested(config)
    return is_trained() and progress.is_evaluated(
        config.logdir, config.evaluate_every_frames)

  def prepare():
    check_again()
    if config.mode == 'test':
      chosen_checkpoint.find(config)  # Or there is nothing to test.
    else:
      sweep_file.write(
          config.logdir, trial.variant, trial.sample, trial.sweep_seed)
    return experiment_command(arguments, settings)

  return run_processes.ManagedRun(
      trial.name, config.logdir, config.total_environment_frames, prepare,
      is_done, is_trained, ends_with_parent), config


def make_runs(trials, logdir, given, arguments, parallel, replay_host=''):
  """Makes the runs of trials.

  Args:
    trials: A list of `grid.Trial`s.
    logdir: The directory of the sweep.
    given: A dict of name to value, the settings that the user gave for all
      runs.
    arguments: These as flags, without --logdir; a list of strings.
    parallel: Runs at a time.
    replay_host: 'host:port' of the replay job that all runs share, '' without
      one.

  Returns:
    A pair of lists: the `ManagedRun`s, and their `config.Config`s.

  Raises:
    ConfigError: One cannot work, or its directory is another run's.
  """
  # Of two flags of one name the last wins: that of the trial, as for --seed.
  arguments = [
      *memory_arguments(min(parallel, len(trials)),
                        MEMORY_SHARE_BESIDE_REPLAY if replay_host else 1.),
      *arguments]
  changes = {}
  if replay_host:
    changes['replay_host'] = replay_host
    arguments.append(f'--replay_host={replay_host}')
  runs, configs = [], []
  for trial in trials:
    own = dict(changes, logdir=os.path.join(logdir, trial.name))
    if given.get('video_dir'):
      # A film is named after its level, which runs may have in common. In the
      # log directory of a run, the report finds them.
      own['video_dir'] = os.path.join(
          given['video_dir'], trial.name, file_names.VIDEOS)
    run, config = _make_run(
        trial, {**given, **grid.settings_of(trial), **own}, arguments,
        # Without the replay job they could not go on.
        ends_with_parent=bool(replay_host))
    runs.append(run)
    configs.append(config)
  return runs, configs
