r"""Population based training, as in the paper's Appendix F.

    python -m scalable_agent.population --logdir=/tmp/pbt --parallel=2 \
        --population=8 --burn_in_frames=50000 --episodes=200 \
        --score_range=0,500 --level_name=gym:CartPole-v1
    python -m scalable_agent.population --logdir=/data/pbt --parallel=24 \
        --flagfile=launch/flags/dmlab30_population.flags

Each member is a run of `scalable_agent.experiment` in a directory below
--logdir, and gets the flags of that program. If there are more members than
--parallel, they take turns. After --episodes new episodes a member evolves: it
may copy the weights and hyperparameters of another, and changes its own.
With --share_replay all members draw from the unrolls of all (LASER), and go at
the same time. evolution.jsonl has every evolution, lineage.png shows them. Run
the command again, and it goes on from where it was.
"""

import contextlib
import math
import os
import sys

from absl import flags
from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.config import flags as config_flags
from scalable_agent.files import locks
from scalable_agent.process import binary
from scalable_agent.studies import lineage
from scalable_agent.sweeps import display
from scalable_agent.sweeps import evolution
from scalable_agent.sweeps import fitness
from scalable_agent.sweeps import flags as sweep_flags
from scalable_agent.sweeps import gpus
from scalable_agent.sweeps import members as members_lib
from scalable_agent.sweeps import population_settings
from scalable_agent.sweeps import program
from scalable_agent.sweeps import samples as samples_lib
from scalable_agent.sweeps import shared_replay
from scalable_agent.sweeps import trials
from scalable_agent.sweeps.population_settings import Settings
from scalable_agent.training import run_config

FLAGS = flags.FLAGS

flags.DEFINE_integer('population', 24, 'Members. 2 or more.')
flags.DEFINE_integer(
    'burn_in_frames', 20_000_000, 'Environment frames of a member before its '
    'first evolution.', lower_bound=0)
flags.DEFINE_integer(
    'episodes', 5000, 'Episodes of a member, over all levels, from one '
    'evolution to the next. Its score is the mean over as many.', lower_bound=1)
flags.DEFINE_list(
    'score_range', [], 'Returns that are 0 and 100 percent, as in 0,500, for '
    'levels where nobody knows what a human scores.')
flags.DEFINE_list(
    'adapt', None,
    'Hyperparameters that evolve. One without a --range starts at the value of '
    'its flag. What has a --range and is not named here stays as drawn. Unless '
    'set: entropy_cost, learning_rate and epsilon; on Atari also '
    'gradient_norm_clip.')
flags.DEFINE_float(
    'turn_secs', 300., 'Seconds that a member trains before another that waits '
    'takes its place. A change takes about ten seconds more.', lower_bound=1.)
sweep_flags.define_ranges()
sweep_flags.define_parallel()
sweep_flags.define_share_replay()

_HISTORY_FILE, _PICTURE_FILE = 'evolution.jsonl', 'lineage.png'
_LOCK_FILE = 'population.lock'


def _refusal(name, reason):
  return config_lib.refusal(name, FLAGS[name].value, reason)


def _check_flags():
  if FLAGS.population < 2:
    raise _refusal('population', 'a member evolves by comparing itself with '
                   'another, so there have to be 2 or more')
  if math.isnan(FLAGS.turn_secs):  # Which the bound lets through.
    raise _refusal('turn_secs', 'it has to be a number')
  if FLAGS['warm_start'].present:
    raise _refusal('warm_start', 'members start from each other')
  if FLAGS.mode != 'train':
    raise _refusal('mode', 'a population trains; test one of its members with '
                   'scalable_agent.experiment')
  if FLAGS.task >= 0:
    raise _refusal('task', 'each member is one process')
  if FLAGS.job_name != 'learner':
    raise _refusal('job_name', 'each member trains')
  if FLAGS.share_replay and FLAGS.parallel < FLAGS.population:
    raise _refusal(
        'parallel', f'with --share_replay, all {FLAGS.population} members go '
        f'at the same time. Set it to {FLAGS.population}')


def read_settings():
  """Returns the `Settings`: what is not given is as in --logdir, if it has any.

  Raises:
    config_lib.ConfigError: They cannot be read, or a member's flag cannot work.
  """
  values = {name: FLAGS[name].value for name in Settings._fields}
  for name, found in population_settings.read(FLAGS.logdir, _parse).items():
    if not FLAGS[name].present:
      values[name] = found
    elif values[name] != found:
      logging.warning('%s is given, and it was %s so far.',
                      FLAGS[name].serialize(), found)
  if values['adapt'] is None:
    config = config_lib.resolve(config_flags.given())
    values['adapt'] = list(suites.of(config).adapted)
  return Settings(**values)


def _parse(name, value):
  if value is None:
    raise ValueError(f'{name} is null')
  try:
    return FLAGS[name].parser.parse(value)
  except (TypeError, ValueError) as e:
    raise ValueError(f'flag --{name}={value}: {e}') from e


def start_parameters(adapt):
  """Returns `population_settings.start_parameters`, of the flags."""
  return population_settings.start_parameters(
      samples_lib.parse_all(FLAGS.range, config_flags.parse), adapt,
      config_flags.given(), FLAGS.population, FLAGS.sample_seed)


def _read_history(begun):
  """Returns the `evolution.History`, without records where there is none.

  Args:
    begun: Its first records if it is that of this population.

  Raises:
    config_lib.ConfigError: It is another population's.
  """
  history = evolution.History(os.path.join(FLAGS.logdir, _HISTORY_FILE))
  found = history.records[:FLAGS.population]
  more = {record.member for record in history.records} - set(
      range(FLAGS.population))
  if history.records and (found != begun or more):
    raise config_lib.ConfigError(
        f'--logdir={FLAGS.logdir} holds a population of another size, or with '
        'other start parameters. Choose another --logdir, or the same '
        '--population, --range, --sample_seed and --adapt.')
  return history


def _check_evolves(settings, configs):
  """Refuses, or warns of, settings with which no member ever evolves.

  Args:
    settings: The `Settings`.
    configs: The `config.Config`s of the members.
  """
  num_levels = len(suites.level_names(configs[0]))
  if not settings.score_range and settings.episodes < num_levels:
    raise config_lib.refusal(
        'episodes', settings.episodes,
        f'--level_name={FLAGS.level_name} has {num_levels} levels, and a score '
        'takes episodes of each, so that no member would have one and evolve. '
        f'Set it well above {num_levels}, or give --score_range')
  total = max(config.total_environment_frames for config in configs)
  if settings.burn_in_frames >= total:
    logging.warning(
        '--burn_in_frames=%d is not below --total_environment_frames=%d: no '
        'member will evolve. Lower the one or raise the other.',
        settings.burn_in_frames, total)


def _make_population(settings, starts, score):
  """Makes the population, or raises ConfigError.

  Args:
    settings: The `Settings`.
    starts: As of `start_parameters`.
    score: As of `fitness.make`.

  Returns:
    A pair of the `members.Population` and the `config.Config`s of its members.
  """
  begun = [evolution.start(i, parameters)
           for i, parameters in enumerate(starts)]
  history = _read_history(begun)
  population = members_lib.Population(
      history, score, settings.burn_in_frames, settings.episodes,
      FLAGS.turn_secs, settings.adapt, FLAGS.seed)
  arguments = [
      *trials.memory_arguments(
          min(FLAGS.parallel, FLAGS.population),
          shared_replay.MEMORY_SHARE_OF_RUNS if FLAGS.share_replay else 1.),
      *config_flags.given_arguments(without=population_settings.OWN)]
  variant = [dict(population=FLAGS.population)]
  shared, configs = {}, []
  if FLAGS.share_replay:
    shared['replay_host'] = shared_replay.choose_host(FLAGS.replay_host)
  for i, start in enumerate(starts):
    logdir = os.path.join(FLAGS.logdir, f'{i:02d}')
    own = dict(_schedule(), logdir=logdir,
               seed=trials.own_seed(FLAGS.seed, i), **shared)
    last = history.last(i) if history.records else begun[i]
    config = run_config.resolve_trial(
        config_flags.given(dict(own, **last.parameters)),
        {*start, 'warm_start'})
    configs.append(config)

    def make_command(changes, own=own, start=start):
      trials.mark(own['logdir'], variant, start)
      return trials.experiment_command(arguments, dict(own, **changes))

    population.members.append(members_lib.Member(
        population, i, logdir, config.total_environment_frames, make_command))
  if FLAGS.share_replay:
    shared_replay.check_alike(configs)
  _check_evolves(settings, configs)
  # Where a member was refused, the directory holds no population yet.
  with config_lib.writing('logdir', FLAGS.logdir):
    population_settings.write(FLAGS.logdir, settings)
  if not history.records:
    history.add(*begun)
  return population, configs


def _schedule():
  # What is multiplied must not be annealed as well.
  name = 'learning_rate_schedule'
  return {} if FLAGS[name].present else {name: 'constant'}


def _short(value):
  return f'{value:.3g}' if isinstance(value, float) else str(value)


def _columns(population):
  """Returns the columns that members have beside those of all runs."""
  indices = {member.run.name: member.index for member in population.members}

  def last(run):
    return population.history.last(indices[run.name])

  def score(run, unused_progress):
    value = last(run).score
    return '' if value is None else f'{value:.1f}'

  def evolutions(run, unused_progress):
    return str(len(population.history.of(indices[run.name])) - 1)

  names = population.history.records[0].parameters
  return [display.Column('score', 'right', score),
          display.Column('evolved', 'right', evolutions)] + [
              display.Column(name, 'right', lambda run, unused_progress, name=
                             name: _short(last(run).parameters[name]))
              for name in names]


def _draw(population):
  """Writes the picture; warns where it cannot."""
  path = os.path.join(FLAGS.logdir, _PICTURE_FILE)
  try:
    lineage.write(path, population.history.records,
                  [member.run.logdir for member in population.members])
  except (OSError, ValueError) as e:
    logging.warning('%s cannot be drawn: %s', path,
                    ' '.join(str(e).splitlines()))


def _carry_out(population, configs):
  runs = [member.run for member in population.members]
  with contextlib.ExitStack() as stack:
    on_poll = population.on_poll
    if FLAGS.share_replay:
      num_left = sum(run.state != 'done' for run in runs)
      job = stack.enter_context(
          shared_replay.SharedReplay(FLAGS.logdir, configs[0], num_left))

      def on_poll():
        job.check()
        population.on_poll()

    program.carry_out(
        runs, 'member', environs=gpus.environs(FLAGS.parallel, configs),
        on_poll=on_poll, rank=population.rank,
        more_columns=_columns(population))


def _train():
  _check_flags()
  settings = read_settings()
  starts = start_parameters(settings.adapt)
  score = fitness.make(FLAGS.level_name, settings.score_range)
  config_lib.resolve(config_flags.given(starts[0]))
  try:
    with config_lib.writing('logdir', FLAGS.logdir):
      os.makedirs(FLAGS.logdir, exist_ok=True)
      lock = locks.acquire(os.path.join(FLAGS.logdir, _LOCK_FILE))
  except locks.Held as e:
    raise config_lib.ConfigError(
        f'--logdir={FLAGS.logdir} is in use: another process trains this '
        'population. Wait for it, stop it, or choose another --logdir.') from e
  try:
    population, configs = _make_population(settings, starts, score)
    try:
      _carry_out(population, configs)
    finally:
      _draw(population)
  finally:
    os.close(lock)


def main(argv):
  """Trains a population; ends with one line where it cannot."""
  try:
    config_flags.refuse_arguments(argv)
    _train()
  except (config_lib.ConfigError, OSError) as e:
    sys.exit(f'Error: {e}')


if __name__ == '__main__':
  FLAGS.set_default('logdir', '/tmp/population')
  binary.run(main)
