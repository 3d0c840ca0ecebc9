r"""Trains an expert on each of the Atari games, and tests them.

    python -m scalable_agent.sweeps.atari57_experts --logdir=/data/experts \
        --parallel=4
    python -m scalable_agent.sweeps.atari57_experts --logdir=/data/experts \
        --mode=test --test_num_episodes=200
    python -m scalable_agent.sweeps.atari57_experts --logdir=/data/experts \
        --slurm=submit --slurm_options=--gres=gpu:1,--time=24:00:00

In a checkout `python launch/atari57_experts.py` does the same. It is the sweep
`scalable_agent.sweep --vary=level_name=...` over games, which are checked here.
"""

import difflib
import sys

from absl import flags

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.process import binary
from scalable_agent.process import errors
from scalable_agent.results import tested
from scalable_agent.sweeps import flags as sweep_flags
from scalable_agent.sweeps import gpus
from scalable_agent.sweeps import grid
from scalable_agent.sweeps import program
from scalable_agent.sweeps import slurm
from scalable_agent.sweeps import trials as trials_lib

FLAGS = flags.FLAGS

flags.DEFINE_list('games', ['all'], 'Games in snake case, or all.')
sweep_flags.define_parallel()
sweep_flags.define_slurm()

# How Python finds this program, which runs as `__main__`.
_PROGRAM = 'scalable_agent.sweeps.atari57_experts'


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


def _make_runs(games):
  """Makes the run of each game; see `trials.make_runs`."""
  if FLAGS['level_name'].present:
    raise config_lib.refusal(
        'level_name', FLAGS.level_name, 'choose with --games')
  return trials_lib.make_runs(
      grid.combine([[{'level_name': game} for game in games]]), FLAGS.logdir,
      config_flags.given(), _common_arguments(), FLAGS.parallel)


def _common_arguments():
  return config_flags.given_arguments(without=('logdir',))


def _slurm_script(games):
  return slurm.script(
      _PROGRAM, _common_arguments(), 'games', games, FLAGS.logdir,
      FLAGS.slurm_options)


def _print_scores(runs):
  """Prints the scores of the tests, or in one line why it cannot.

  Args:
    runs: A list of `ManagedRun`s.

  Returns:
    Whether it could.
  """
  try:
    print(*tested.lines([run.logdir for run in runs]), sep='\n')
  except (OSError, ValueError) as e:
    print(f'Error: {errors.one_line(e)}', file=sys.stderr)
    return False
  return True


def main(argv):
  """Runs what is not done; ends with one line where it cannot."""
  try:
    config_flags.refuse_arguments(argv)
    sweep_flags.check_slurm()
    runs, configs = _make_runs(_chosen_games())
    are_scores_known = True
    try:
      program.finish(runs, 'game', FLAGS.slurm, _slurm_script,
                     environs=gpus.environs(FLAGS.parallel, configs))
    finally:
      # Also if some games failed, or wait for another start.
      if FLAGS.mode == 'test' and not FLAGS.slurm:
        are_scores_known = _print_scores(runs)
    if not are_scores_known:
      sys.exit(1)
  except (config_lib.ConfigError, OSError) as e:
    sys.exit(f'Error: {e}')


if __name__ == '__main__':
  FLAGS.set_default('logdir', '/tmp/atari57_experts')
  binary.run(main)
