"""Makes a population: its members, new or as they were left."""

import collections
import os

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.populations import evolution
from scalable_agent.populations import members as members_lib
from scalable_agent.populations import settings as settings_lib
from scalable_agent.studies import sweep_file
from scalable_agent.sweeps import shared_replay
from scalable_agent.sweeps import trials
from scalable_agent.training import run_config

_HISTORY_FILE = 'evolution.jsonl'

Plan = collections.namedtuple(
    'Plan', 'logdir given arguments parallel turn_seconds shares_replay')
Plan.__doc__ = """How a population is trained, which each start may change.

  logdir: The directory of the population.
  given: A dict of name to value, the settings that the user gave for all
    members.
  arguments: These as flags, without `settings.OWN`; a list of strings.
  parallel: Members that train at the same time.
  turn_seconds: How long a member may train while others wait.
  shares_replay: Whether all members draw from the unrolls of all.
"""


def make(plan, config, settings, starts, score):
  """Makes a population, and writes what it goes by into its directory.

  Args:
    plan: A `Plan`.
    config: The `config.Config` of what the user gave for all members.
    settings: A `settings.Settings`.
    starts: As of `start_parameters.draw`.
    score: As of `fitness.make`.

  Returns:
    A pair of the `members.Population` and the `config.Config`s of its members.

  Raises:
    ConfigError: A member cannot work, or the directory holds another
      population, or cannot be written.
  """
  begun = [evolution.start(i, parameters)
           for i, parameters in enumerate(starts)]
  history = _read_history(plan.logdir, begun)
  population = members_lib.Population(
      history, score, settings.burn_in_frames, settings.episodes,
      plan.turn_seconds, settings.adapt, config.seed)
  arguments = [
      *trials.memory_arguments(
          min(plan.parallel, len(starts)),
          trials.MEMORY_SHARE_BESIDE_REPLAY if plan.shares_replay else 1.),
      *plan.arguments]
  variant = [dict(population=len(starts))]
  common, configs = {}, []
  if 'learning_rate_schedule' not in plan.given:
    # What is multiplied must not be annealed as well.
    common['learning_rate_schedule'] = 'constant'
  if plan.shares_replay:
    common['replay_host'] = shared_replay.choose_host(
        config.replay_host, config.agent)
  for i, start in enumerate(starts):
    logdir = os.path.join(plan.logdir, f'{i:02d}')
    own = dict(common, logdir=logdir, seed=trials.own_seed(config.seed, i))
    last = history.last(i) if history.records else begun[i]
    configs.append(run_config.resolve_trial(
        {**plan.given, **own, **last.parameters}, {*start, 'warm_start'}))

    def make_command(changes, own=own, start=start):
      sweep_file.write(own['logdir'], variant, start)
      return trials.experiment_command(arguments, dict(own, **changes))

    population.members.append(members_lib.Member(
        population, i, logdir, configs[-1].total_environment_frames,
        make_command, configs[-1].evaluate_every_frames))
  if plan.shares_replay:
    shared_replay.check_alike(configs)
  _check_evolves(settings, configs)
  # Where a member was refused, the directory holds no population yet.
  with config_lib.writing('logdir', plan.logdir):
    settings_lib.write(plan.logdir, settings)
  if not history.records:
    history.add(*begun)
  return population, configs


def _read_history(logdir, begun):
  """Returns the `evolution.History`, without records where there is none.

  Args:
    logdir: The directory of the population.
    begun: Its first records if it is that of this population.

  Raises:
    ConfigError: It is another population's.
  """
  history = evolution.History(os.path.join(logdir, _HISTORY_FILE))
  found = history.records[:len(begun)]
  more = {record.member for record in history.records} - set(range(len(begun)))
  if history.records and (found != begun or more):
    raise config_lib.ConfigError(
        f'--logdir={logdir} holds a population of another size, or with '
        'other start parameters. Choose another --logdir, or the same '
        '--population, --range, --sample_seed and --adapt.')
  return history


def _check_evolves(settings, configs):
  """Refuses, or warns of, settings with which no member ever evolves.

  Args:
    settings: The `settings.Settings`.
    configs: The `config.Config`s of the members.
  """
  level_name, num_levels = (
      configs[0].level_name, len(suites.level_names(configs[0])))
  if not settings.score_range and settings.episodes < num_levels:
    raise config_lib.refusal(
        'episodes', settings.episodes,
        f'--level_name={level_name} has {num_levels} levels, and a score '
        'takes episodes of each, so that no member would have one and evolve. '
        f'Set it well above {num_levels}, or give --score_range')
  total = max(config.total_environment_frames for config in configs)
  if settings.burn_in_frames >= total:
    logging.warning(
        '--burn_in_frames=%d is not below --total_environment_frames=%d: no '
        'member will evolve. Lower the one or raise the other.',
        settings.burn_in_frames, total)
