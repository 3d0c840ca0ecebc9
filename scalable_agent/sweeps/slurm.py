"""Runs as a SLURM job array, with a task for each."""

import os
import re
import shlex
import shutil
import subprocess
import sys

from scalable_agent import config as config_lib


def script(program, arguments, chooser, names, logdir, options):
  """Returns the text of a job array.

  Args:
    program: The module that makes the runs.
    arguments: A list of strings, its flags but for those below.
    chooser: The name of its flag that chooses runs by name.
    names: A list of names of runs, none of which has a comma.
    logdir: The directory of all runs.
    options: The value of --slurm_options.

  Raises:
    ConfigError: sbatch would take the directory for another one.
  """
  logdir = os.path.abspath(logdir)
  command = [sys.executable, '-m', program, f'--logdir={logdir}', *arguments]
  # sbatch replaces patterns with % in the name of a log, but none if the name
  # has a backslash.
  for character in ('%', '\\', '\n'):
    if character in logdir:
      raise config_lib.ConfigError(
          f'--logdir={logdir!r} cannot work with --slurm, as sbatch does not '
          f'take {character!r} in the name of a directory. Choose another one.')
  return '\n'.join([
      '#!/bin/bash',
      f'#SBATCH --job-name={program.rpartition(".")[2]}',
      f'#SBATCH --array=0-{len(names) - 1}',
      f'#SBATCH --output={shlex.quote(f"{logdir}/slurm-%A_%a.out")}',
      '# SLURM does not make that directory. It has to be there before: '
      f'mkdir -p {shlex.quote(logdir)}',
      '# Time to save before the time limit.',
      '#SBATCH --signal=B:TERM@120',
      # A comma ends an option if a dash follows; else it is part of a value.
      *(f'#SBATCH {option}'
        for option in re.split(r',\s*(?=-)', options) if option),
      # The script may be submitted from another shell than this one.
      *([f'export PYTHONPATH={shlex.quote(python_path())}'] if python_path()
        else []),
      f'runs=({" ".join(map(shlex.quote, names))})',
      f'exec {shlex.join(command)} '
      f'--{chooser}="${{runs[$SLURM_ARRAY_TASK_ID]}}"',
      ''])


def python_path():
  """Returns PYTHONPATH with absolute paths, '' if there is none."""
  return os.pathsep.join(
      os.path.abspath(path)
      for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path)


def submit(text, logdir):
  """Submits a job array.

  Args:
    text: Of `script`.
    logdir: The directory of all runs, made if need be.

  Raises:
    ConfigError: There is no sbatch.
    SystemExit: sbatch has refused it, and said why.
  """
  if not shutil.which('sbatch'):
    raise config_lib.ConfigError(
        '--slurm=submit needs sbatch, which is not installed here. '
        '--slurm=print shows what it would be given.')
  os.makedirs(logdir, exist_ok=True)
  submitted = subprocess.run(['sbatch'], input=text, text=True, check=False)
  if submitted.returncode:
    sys.exit('Error: sbatch refused the job array.')
