r"""Trains many runs: of a grid, of samples from ranges, of seeds.

    python -m scalable_agent.sweep --logdir=/tmp/lag --parallel=2 --seeds=10 \
        --vary=policy_lag=0,10,100,300 --level_name=gym:CartPole-v1
    python -m scalable_agent.sweep --logdir=/tmp/table2 --parallel=2 \
        --samples=24 --vary=replay_proportion=0,0.5 --level_name=pong

A variant takes one value of each --vary, and one of the --variants. Each
variant is run with the same samples, drawn from the paper's Table D.1 unless
--range says otherwise, and each of these with all seeds. Each run has a
directory of its own below --logdir; output.log there is what the process
printed. Run the command again, and runs that are done are skipped and the
others resume. A run that crashes is tried twice more, counted from its last
checkpoint. Flags of `scalable_agent.experiment`, also from a --flagfile, are
passed on; --helpfull lists them, with --logdir, --seed and --mode.

With --share_replay all runs draw from the unrolls of all (LASER). Then they may
differ in hyperparameters alone: a sweep for each of what is to be compared.

`python -m scalable_agent.report --study=best3,stability` compares the variants.
"""

import contextlib
import functools
import sys

from absl import flags

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.process import binary
from scalable_agent.sweeps import choice
from scalable_agent.sweeps import flags as sweep_flags
from scalable_agent.sweeps import gpus
from scalable_agent.sweeps import grid
from scalable_agent.sweeps import program
from scalable_agent.sweeps import samples as samples_lib
from scalable_agent.sweeps import shared_replay
from scalable_agent.sweeps import slurm
from scalable_agent.sweeps import trials as trials_lib

FLAGS = flags.FLAGS

flags.DEFINE_multi_string(
    'vary', [], 'Values that a setting takes: name=value,value. Give it once '
    'for each setting; all combinations are run.')
flags.DEFINE_multi_string(
    'variant', [], 'Settings that go together: \'name=value name=value\'. Give '
    'it once for each alternative.')
flags.DEFINE_integer(
    'samples', 0, 'Combinations of hyperparameters to draw. The paper has 24.',
    lower_bound=0)
flags.DEFINE_integer(
    'seeds', 0, 'Seeds of each combination, from --seed on; 0 is one, that is '
    'not in the name of the run.', lower_bound=0)
flags.DEFINE_bool(
    'own_seeds', False, 'Give each run its own seed, as --share_replay does. '
    'For sweeps that are compared with such ones. Each of --seeds is a sweep.')
flags.DEFINE_integer(
    'best', 0, 'Of each variant, runs this many samples alone: those whose '
    'runs so far have the best final returns. For a second round with other '
    'seeds. 0 runs all.', lower_bound=0)
flags.DEFINE_list('only', None, 'Names of runs; the others are left out.')
sweep_flags.define_ranges()
sweep_flags.define_parallel()
sweep_flags.define_share_replay()
sweep_flags.define_slurm()

# How Python finds this program, which runs as `__main__`.
_PROGRAM = 'scalable_agent.sweep'
_OWN_FLAGS = ('vary', 'variant', 'samples', 'range', 'sample_seed', 'seeds',
              'own_seeds', 'best')


def make_trials():
  """Returns the `grid.Trial`s that the flags ask for, all of them.

  Raises:
    config_lib.ConfigError: They are none, or cannot be.
  """
  parse = {flag: functools.partial(config_flags.parse, flag=flag)
           for flag in ('vary', 'variant', 'range')}
  factors = [grid.parse_vary(text, parse['vary']) for text in FLAGS.vary]
  if FLAGS.variant:
    factors.append(grid.parse_variants(FLAGS.variant, parse['variant']))
  ranges = samples_lib.parse_all(FLAGS.range, parse['range'])
  for name in ('range', 'sample_seed'):
    if FLAGS[name].present and not FLAGS.samples:
      raise config_lib.ConfigError(
          f'--{name} needs --samples, of which there are none.')
  drawn = [each.name for each in ranges] if FLAGS.samples else []
  grid.check_names(factors, drawn, config_flags.given())
  if not factors and not FLAGS.samples and not FLAGS.seeds:
    raise config_lib.ConfigError(
        'Nothing varies. Give --vary, --variant, --samples or --seeds.')
  seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.seeds)
  trials = grid.combine(
      factors, samples_lib.draw(ranges, FLAGS.samples, FLAGS.sample_seed),
      seeds)
  if FLAGS.own_seeds or _shares_replay():
    trials = trials_lib.with_own_seeds(trials, FLAGS.seed)
  return trials


def _shares_replay():
  """Whether runs draw from one replay job, of the sweep or of the user."""
  # Tests share nothing.
  return FLAGS.mode == 'train' and bool(FLAGS.share_replay or FLAGS.replay_host)


def _common_arguments():
  return config_flags.given_arguments(without=('logdir',))


def _slurm_script(names):
  return slurm.script(
      _PROGRAM, [*_common_arguments(), *sweep_flags.serialize(_OWN_FLAGS)],
      'only', names, FLAGS.logdir, FLAGS.slurm_options)


def main(argv):
  """Runs what is not done; ends with one line where it cannot."""
  try:
    config_flags.refuse_arguments(argv)
    sweep_flags.check_slurm()
    trials = choice.choose(
        make_trials(), FLAGS.logdir, FLAGS.best, FLAGS.only)
    # Of the job that is started here.
    given = config_flags.given()
    replay_host = (
        shared_replay.choose_host(FLAGS.replay_host, given.get('agent', ''))
        if FLAGS.share_replay and _shares_replay() else '')
    runs, configs = trials_lib.make_runs(
        trials, FLAGS.logdir, given, _common_arguments(),
        FLAGS.parallel, replay_host)
    with contextlib.ExitStack() as stack:
      on_poll = lambda: None
      if _shares_replay():
        shared_replay.check_sweep(trials, configs, FLAGS.seeds)
        if not FLAGS.slurm:
          shared_replay.check_parallel(
              sum(run.state != 'done' for run in runs), FLAGS.parallel, 'runs')
      if replay_host:
        shared_replay.check_slurm(FLAGS.slurm)
        job = shared_replay.SharedReplay(
            FLAGS.logdir, configs[0], runs, _common_arguments())
        on_poll = stack.enter_context(job).check
      program.finish(runs, 'run', FLAGS.slurm, _slurm_script,
                     environs=gpus.environs(FLAGS.parallel, configs),
                     on_poll=on_poll)
  except (config_lib.ConfigError, OSError) as e:
    sys.exit(f'Error: {e}')


if __name__ == '__main__':
  FLAGS.set_default('logdir', '/tmp/sweep')
  binary.run(main)
