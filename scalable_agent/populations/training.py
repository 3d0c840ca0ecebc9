"""Trains a population: shows its members while they run, and draws them."""

import contextlib
import os

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.files import locks
from scalable_agent.populations import fitness
from scalable_agent.populations import lineage
from scalable_agent.populations import making
from scalable_agent.process import errors
from scalable_agent.sweeps import display
from scalable_agent.sweeps import gpus
from scalable_agent.sweeps import program
from scalable_agent.sweeps import shared_replay

_LOCK_FILE, _PICTURE_FILE = 'population.lock', 'lineage.png'


def train(plan, settings, starts):
  """Trains a population from where it was left, until its members are done.

  Args:
    plan: A `making.Plan`.
    settings: A `settings.Settings`.
    starts: As of `start_parameters.draw`.

  Raises:
    ConfigError: A setting cannot work, another process trains the population,
      or the directory holds another one, or cannot be written.
    SystemExit: As `program.carry_out`.
  """
  config = config_lib.resolve(plan.given)
  score = fitness.make(config.level_name, settings.score_range)
  config_lib.resolve({**plan.given, **starts[0]})
  try:
    with config_lib.writing('logdir', plan.logdir):
      os.makedirs(plan.logdir, exist_ok=True)
      lock = locks.acquire(os.path.join(plan.logdir, _LOCK_FILE))
  except locks.Held as e:
    raise config_lib.ConfigError(
        f'--logdir={plan.logdir} is in use: another process trains this '
        'population. Wait for it, stop it, or choose another --logdir.') from e
  try:
    population, configs = making.make(
        plan, config, settings, starts, score)
    try:
      _carry_out(plan, population, configs)
    finally:
      _draw(plan.logdir, population)
  finally:
    os.close(lock)


def _carry_out(plan, population, configs):
  runs = [member.run for member in population.members]
  with contextlib.ExitStack() as stack:
    on_poll = population.on_poll
    if plan.shares_replay:
      job = stack.enter_context(
          shared_replay.SharedReplay(
              plan.logdir, configs[0], runs, plan.arguments))

      def on_poll():
        job.check()
        population.on_poll()

    program.carry_out(
        runs, 'member', environs=gpus.environs(plan.parallel, configs),
        on_poll=on_poll, rank=population.rank,
        more_columns=_columns(population))


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


def _short(value):
  return f'{value:.3g}' if isinstance(value, float) else str(value)


def _draw(logdir, population):
  """Writes the picture; warns where it cannot."""
  path = os.path.join(logdir, _PICTURE_FILE)
  try:
    lineage.write(path, population.history.records,
                  [member.run.logdir for member in population.members])
  except (OSError, ValueError) as e:
    logging.warning('%s cannot be drawn: %s', path, errors.one_line(e))
