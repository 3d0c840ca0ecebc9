r"""Trains an expert on each of the Atari games, and tests them.

    python -m scalable_agent.sweeps.atari57_experts --logdir=/data/experts \
        --parallel=4
    python -m scalable_agent.sweeps.atari57_experts --logdir=/data/experts \
        --mode=test --test_num_episodes=200
    python -m scalable_agent.sweeps.atari57_experts --logdir=/data/experts \
        --slurm=submit --slurm_options=--gres=gpu:1,--time=24:00:00

In a checkout `python launch/atari57_experts.py` does the same. Each game has a
directory of its own below --logdir; output.log there is what the process
printed. Run the command again, and games that are done are skipped and the
others resume. A game that crashes is tried twice more. Flags of
`scalable_agent.experiment`, also from a --flagfile, are passed on.
"""

import difflib
import os
import shlex
import shutil
import subprocess
import sys
import time

from absl import app
from absl import flags
from rich import columns
from rich import console as console_lib
from rich import live
from rich import table as table_lib

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import experiment
from scalable_agent.process import signals
from scalable_agent.sweeps import run_processes
from scalable_agent.training import logdir as logdir_lib

FLAGS = flags.FLAGS

flags.DEFINE_list('games', ['all'], 'Games in snake case, or all.')
flags.DEFINE_integer('parallel', 1, 'Processes at a time.', lower_bound=1)
flags.DEFINE_enum(
    'slurm', '', ['', 'print', 'submit'],
    'Instead of running here, print, or submit, a SLURM job array with a task '
    'for each game that is not done.')
flags.DEFINE_list(
    'slurm_options', [], 'Options of sbatch, such as --gres=gpu:1.')
FLAGS.set_default('logdir', '/tmp/atari57_experts')

# How Python finds this program, which runs as `__main__`.
_PROGRAM = 'scalable_agent.sweeps.atari57_experts'
# Set here for each game.
_OWN_FLAGS = ('level_name', 'logdir')
_PAINT_SECONDS = 1.


def _chosen_games():
  if FLAGS.games == ['all']:
    return atari57.GAMES
  for game in FLAGS.games:
    if game not in atari57.GAMES:
      nearest = difflib.get_close_matches(game, atari57.GAMES, n=3, cutoff=.5)
      hint = f'Did you mean {" or ".join(nearest)}?' if nearest else (
          'Expected names in snake case such as space_invaders, or all.')
      raise config_lib.ConfigError(
          f'--games={game} is no Atari game. {hint}')
  if not FLAGS.games:
    raise config_lib.ConfigError('--games names no game.')
  return tuple(dict.fromkeys(FLAGS.games))


def _passed_on():
  """The flags of the experiment that the user set, as arguments."""
  given = FLAGS.flags_by_module_dict()[experiment.__name__]
  return [flag.serialize() for flag in given
          if flag.present and flag.name not in _OWN_FLAGS]


def _make_runs(games):
  """Returns a `ManagedRun` for each game, or raises ConfigError."""
  if FLAGS['level_name'].present:
    raise config_lib.ConfigError(
        f'--level_name={FLAGS.level_name} cannot work: choose with --games.')
  runs = []
  for game in games:
    logdir = os.path.join(FLAGS.logdir, game)
    own = dict(level_name=game, logdir=logdir)
    config = experiment.config_with(own)
    logdir_lib.check(config, {})
    is_done = (run_processes.is_tested if config.mode == 'test' else
               run_processes.is_trained)
    runs.append(run_processes.ManagedRun(
        game, logdir,
        [sys.executable, '-m', experiment.__name__, *_passed_on(),
         *(f'--{name}={value}' for name, value in own.items())],
        lambda config=config, is_done=is_done: is_done(config)))
  return runs


# -- Tables -------------------------------------------------------------------


def _cells(run, total_frames):
  """Returns a row of the table: what a person wants to know of a game."""
  progress = run_processes.read_progress(run.logdir)
  state = run.state
  if run.crashes:
    state += f' ({run.crashes} crashed)'
  is_running = run.state in ('running', 'elsewhere')
  return (
      run.name, state,
      '' if progress.frames is None else
      f'{progress.frames / 1e6:,.2f}M {progress.frames / total_frames:4.0%}',
      f'{progress.fps:,.0f}' if is_running and progress.fps else '',
      '' if progress.mean_return is None else f'{progress.mean_return:,.1f}')


def _make_table(runs, total_frames, height):
  """Shows the state of all games, in tables side by side if they are many."""
  per_table = max(height - 4, 5)
  tables = []
  for start in range(0, len(runs), per_table):
    table = table_lib.Table(box=None, pad_edge=False)
    for name, justify in (('game', 'left'), ('state', 'left'),
                          ('frames', 'right'), ('frames/s', 'right'),
                          ('return', 'right')):
      table.add_column(name, justify=justify, no_wrap=True)
    for run in runs[start:start + per_table]:
      table.add_row(*_cells(run, total_frames))
    tables.append(table)
  return columns.Columns(tables, padding=(0, 4))


def _run_here(runs, total_frames):
  """Runs the processes, and shows their state.

  Returns:
    Whether a signal stopped them.
  """
  console = console_lib.Console()
  table = lambda: _make_table(runs, total_frames, console.height)

  def on_change(run):
    # A terminal has the table; a log has a line for each change.
    if not console.is_terminal:
      print(f'{run.name}: {run.state}', flush=True)
    elif run.state == 'failed':
      console.print(f'{run.name} failed: {run.last_words()}', markup=False)

  with signals.stop_on_signals() as stop, live.Live(
      console=console, auto_refresh=False) as display:
    painted = 0.

    def on_poll():
      nonlocal painted
      if console.is_terminal and time.monotonic() - painted >= _PAINT_SECONDS:
        display.update(table(), refresh=True)
        painted = time.monotonic()

    run_processes.run_all(runs, FLAGS.parallel, stop, on_change, on_poll)
    display.update(table(), refresh=True)
    return stop.is_set()


# -- SLURM --------------------------------------------------------------------


def slurm_script(games, logdir, options, arguments, python_path):
  """Returns the text of a job array with a task for each game.

  Args:
    games: A list of names.
    logdir: The directory of all games.
    options: A list of options of sbatch.
    arguments: A list of flags to pass on.
    python_path: PYTHONPATH for the tasks, '' to leave theirs as it is.
  """
  command = [sys.executable, '-m', _PROGRAM, f'--logdir={logdir}', *arguments]
  return '\n'.join([
      '#!/bin/bash',
      '#SBATCH --job-name=atari57_experts',
      f'#SBATCH --array=0-{len(games) - 1}',
      f'#SBATCH --output={logdir}/slurm-%A_%a.out',
      '# Time to save before the time limit.',
      '#SBATCH --signal=B:TERM@120',
      *(f'#SBATCH {option}' for option in options),
      # The script may be submitted from another shell than this one.
      *([f'export PYTHONPATH={shlex.quote(python_path)}'] if python_path
        else []),
      f'games=({" ".join(games)})',
      f'exec {shlex.join(command)} --games="${{games[$SLURM_ARRAY_TASK_ID]}}"',
      ''])


def _use_slurm(games):
  logdir = os.path.abspath(FLAGS.logdir)
  python_path = os.pathsep.join(
      os.path.abspath(path)
      for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path)
  script = slurm_script(
      games, logdir, FLAGS.slurm_options, _passed_on(), python_path)
  if FLAGS.slurm == 'print':
    print(script, end='')
    return
  if not shutil.which('sbatch'):
    raise config_lib.ConfigError(
        '--slurm=submit needs sbatch, which is not installed here. '
        '--slurm=print shows what it would be given.')
  os.makedirs(logdir, exist_ok=True)
  submitted = subprocess.run(['sbatch'], input=script, text=True, check=False)
  if submitted.returncode:
    sys.exit('Error: sbatch refused the job array.')


def main(argv):
  """Runs what is not done; ends with one line where it cannot."""
  try:
    if len(argv) > 1:
      raise config_lib.ConfigError(
          f'Unexpected arguments: {" ".join(argv[1:])}. Flags are given as '
          '--name=value.')
    runs = _make_runs(_chosen_games())
    left = [run.name for run in runs if run.state != 'done']
    if not left:
      print('All games are done.')
      return
    if FLAGS.slurm:
      _use_slurm(left)
      return
    total_frames = experiment.config_with(
        dict(level_name=left[0])).total_environment_frames
    stopped = _run_here(runs, total_frames)
  except (config_lib.ConfigError, OSError) as e:
    sys.exit(f'Error: {e}')
  failed = [run for run in runs if run.state == 'failed']
  if failed:
    sys.exit('Error: ' + '; '.join(
        f'{run.name} crashed {run.crashes} times (see {run.output_path}): '
        f'{run.last_words()}' for run in failed))
  if stopped:
    sys.exit('Stopped. The same command goes on from here.')


if __name__ == '__main__':
  app.run(main)
