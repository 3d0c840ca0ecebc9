"""Carries out a list of runs, as every program of many runs does."""

import os
import sys

from scalable_agent import config as config_lib
from scalable_agent.files import whole_file
from scalable_agent.process import signals
from scalable_agent.sweeps import display
from scalable_agent.sweeps import run_processes
from scalable_agent.sweeps import slurm

_MAX_NAMED = 5


def finish(runs, kind, slurm_action, slurm_script, environs,
           on_poll=lambda: None):
  """Runs what is not done, here or as a SLURM job array.

  Args:
    runs: A list of `ManagedRun`s, all below one directory.
    kind: What a run is called, as in 'game'.
    slurm_action: '' to run here, 'print' or 'submit'.
    slurm_script: A function of a list of names that returns the job array.
    environs, on_poll: See `run_processes.run_all`.

  Raises:
    SystemExit: As `carry_out`.
    ConfigError: As `slurm.submit`.
  """
  left = [run for run in runs if run.state != 'done']
  if not left:
    print(f'All {kind}s are done.')
  elif slurm_action == 'print':
    print(slurm_script([run.name for run in left]), end='')
  elif slurm_action == 'submit':
    slurm.submit(slurm_script([run.name for run in left]),
                 os.path.dirname(left[0].logdir))
  else:
    carry_out(runs, kind, environs, on_poll)


def carry_out(runs, kind, environs, on_poll, rank=lambda run: 0,
              more_columns=()):
  """Runs what is not done, shows it, and ends the process if not all is done.

  Args:
    runs: A list of `ManagedRun`s.
    kind: What a run is called, as in 'game'.
    environs, on_poll, rank: See `run_processes.run_all`.
    more_columns: See `display.Display`.

  Raises:
    ConfigError: The directory that they are below cannot be written.
    SystemExit: A run has failed, or a signal has stopped them all; the message
      is one line that says so.
  """
  directory = os.path.dirname(runs[0].logdir)
  with config_lib.writing('logdir', directory):
    os.makedirs(directory, exist_ok=True)
    whole_file.check(os.path.join(directory, kind))
  with signals.stop_on_signals() as stop, display.Display(
      runs, kind, more_columns) as shown:

    def poll_and_show():
      on_poll()
      shown.on_poll()

    run_processes.run_all(
        runs, environs, stop, shown.on_change, poll_and_show, rank)
  failed = [run for run in runs if run.state == 'failed']
  if failed:
    rest = len(failed) - _MAX_NAMED
    sys.exit('Error: ' + '; '.join(
        f'{run.name} {run.failure()}'.rstrip('.')
        for run in failed[:_MAX_NAMED]) + (
            f'; and {rest} more' if rest > 0 else ''))
  if stop.is_set():
    sys.exit('Stopped. The same command goes on from here.')
