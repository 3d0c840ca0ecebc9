r"""Population based training, as in the paper's Appendix F.

    python -m scalable_agent.population --logdir=/tmp/pbt --parallel=2 \
        --population=8 --burn_in_frames=50000 --episodes=200 \
        --score_range=0,500 --level_name=gym:CartPole-v1
    python -m scalable_agent.population --logdir=/data/pbt --parallel=24 \
        --flagfile=launch/flags/dmlab30_population.flags

Each member is a run of `scalable_agent.experiment` in a directory below
--logdir, and gets the flags of that program, which --helpfull lists. If there
are more members than --parallel, they take turns. After --episodes new episodes
a member evolves: it may copy the weights and hyperparameters of another, and
changes its own.
With --share_replay all members draw from the unrolls of all (LASER), and go at
the same time. evolution.jsonl has every evolution, lineage.png shows them. Run
the command again, and it goes on from where it was.
"""

import functools
import math
import sys

from absl import flags
from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.config import flags as config_flags
from scalable_agent.populations import making
from scalable_agent.populations import settings as settings_lib
from scalable_agent.populations import start_parameters as start_parameters_lib
from scalable_agent.populations import training
from scalable_agent.process import binary
from scalable_agent.sweeps import flags as sweep_flags
from scalable_agent.sweeps import samples as samples_lib
from scalable_agent.sweeps import shared_replay

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
    'gradient_norm_clip, if it is not 0.')
flags.DEFINE_float(
    'turn_secs', 300., 'Seconds that a member trains before another takes its '
    'place that waits and has not trained on more frames. A change takes about '
    'ten seconds more.', lower_bound=1.)
sweep_flags.define_ranges()
sweep_flags.define_parallel()
sweep_flags.define_share_replay()


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
  if FLAGS.share_replay or FLAGS.replay_host:
    shared_replay.check_parallel(
        FLAGS.population, FLAGS.parallel, 'members')


def read_settings():
  """Returns the `settings.Settings` of the flags.

  What is not given is as the population in --logdir has it, if there is one.

  Raises:
    config_lib.ConfigError: They cannot be read, or a member's flag cannot work.
  """
  values = {name: FLAGS[name].value for name in settings_lib.Settings._fields}
  for name, found in settings_lib.read(FLAGS.logdir, _parse).items():
    if not FLAGS[name].present:
      values[name] = found
    elif values[name] != found:
      logging.warning('%s is given, and it was %s so far.',
                      FLAGS[name].serialize(), found)
  if values['adapt'] is None:
    config = config_lib.resolve(config_flags.given())
    drawn = {each.name for each in _ranges()}
    # What is 0, as a clip that Reactor does not have, stays so.
    values['adapt'] = [name for name in suites.of(config).adapted
                       if name in drawn or getattr(config, name)]
  return settings_lib.Settings(**values)


def _parse(name, value):
  if value is None:
    raise ValueError(f'{name} is null')
  try:
    return FLAGS[name].parser.parse(value)
  except (TypeError, ValueError) as e:
    raise ValueError(f'flag --{name}={value}: {e}') from e


def start_parameters(adapt):
  """Returns what each member starts with, by the flags."""
  return start_parameters_lib.draw(
      _ranges(), adapt, config_flags.given(), FLAGS.population,
      FLAGS.sample_seed)


def _ranges():
  return samples_lib.parse_all(
      FLAGS.range, functools.partial(config_flags.parse, flag='range'))


def main(argv):
  """Trains a population; ends with one line where it cannot."""
  try:
    config_flags.refuse_arguments(argv)
    _check_flags()
    settings = read_settings()
    plan = making.Plan(
        FLAGS.logdir, config_flags.given(),
        config_flags.given_arguments(without=settings_lib.OWN),
        FLAGS.parallel, FLAGS.turn_secs, FLAGS.share_replay)
    training.train(plan, settings, start_parameters(settings.adapt))
  except (config_lib.ConfigError, OSError) as e:
    sys.exit(f'Error: {e}')


if __name__ == '__main__':
  FLAGS.set_default('logdir', '/tmp/population')
  binary.run(main)
