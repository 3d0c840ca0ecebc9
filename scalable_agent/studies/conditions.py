"""Tells the conditions of several sweeps apart, and names them."""

import collections
import os

from scalable_agent.studies import outcomes as outcomes_lib

# The name of a condition that differs from the usual settings in nothing.
_USUAL = 'usual settings'

Conditions = collections.namedtuple('Conditions', 'usual sweeps')
Conditions.__doc__ = """Sweeps, sorted by what was different in them.

  usual: The settings that a condition has unless its name says otherwise, a
    string; '' if the names say all.
  sweeps: A dict of the name of a condition to a list of its sweeps, each a list
    of the `outcomes.Outcome`s of its agents.
"""


def by_condition(outcomes):
  """Sorts outcomes on one level into sweeps.

  Agents of a sweep are below one directory, and differ in hyperparameters at
  the most. Where they do not depend on each other, those of one
  `outcomes.repetition` are a sweep.

  Args:
    outcomes: A list of `outcomes.Outcome`s.

  Returns:
    `Conditions`.

  Raises:
    ValueError: Two sweeps of a condition have the same seed, an agent has none,
      or two conditions have the same name.
  """
  described = {}
  groups = collections.defaultdict(lambda: collections.defaultdict(list))
  for outcome in outcomes:
    if outcome.seed is None:
      raise ValueError(
          f'{outcome.logdir} has no config.json with a seed, by which sweeps '
          'are compared. Leave it out.')
    directory = os.path.dirname(os.path.normpath(outcome.logdir))
    repetition = directory, (
        None if outcomes_lib.has_dependent_runs(outcome) else
        outcomes_lib.repetition(outcome))
    condition = _condition(outcome)
    # A varied setting is in the name, also where it has its usual value.
    described.setdefault(condition, (outcome.variant, condition[1]))
    groups[condition][repetition].append(outcome)
  for repetitions in groups.values():
    _refuse_equal_seeds(repetitions)
  usual, names = _usual_and_names(list(described.values()))
  sweeps = {}
  for condition, repetitions in groups.items():
    name = names[described[condition]]
    if name in sweeps:
      raise ValueError(
          f'Two conditions that are both called "{name}" cannot be told apart. '
          'Report on each of them by itself.')
    sweeps[name] = list(repetitions.values())
  return Conditions(usual, sweeps)


def _refuse_equal_seeds(repetitions):
  """Refuses sweeps that would be one point of a comparison by seed.

  Args:
    repetitions: A dict of anything to a list of `Outcome`s.
  """
  first = {}
  for agents in repetitions.values():
    least = min(agents, key=outcomes_lib.repetition)
    seed = outcomes_lib.repetition(least)
    other = first.setdefault(seed, least)
    if other is not least:
      raise ValueError(
          f'{other.logdir} and {least.logdir} are of two sweeps of the same '
          f'condition and seed ({seed}). Leave one out, and give each '
          'sweep a --seed of its own.')


def _condition(outcome):
  """What two sweeps have to have in common, a pair of hashable values."""
  tried = {*outcomes_lib.HYPERPARAMETERS, *dict(outcome.sample)}
  if (outcomes_lib.is_of_population(outcome) or
      not outcome.settings.get('warm_start')):
    # Members that copied weights have different paths there, and an empty path
    # tells nothing.
    tried.add('warm_start')
  settings = {name: value for name, value in sorted(outcome.settings.items())
              if name not in tried}
  # A setting is the same whether it was varied or given for a whole sweep.
  varied = [(name, value) for alternative in outcome.variant
            for name, value in alternative if settings.get(name) != value]
  return tuple(varied), tuple(settings.items())


def _usual_and_names(conditions):
  """Returns the settings of most conditions, and how each is named by the rest.

  Returns:
    A string, '' if there are none; and a dict of condition to its name.
  """
  settings = [dict(rest) for _, rest in conditions]
  differing = [name for name in sorted(set().union(*settings)) if len(
      {found.get(name) for found in settings}) > 1]
  usual = {}
  for name in differing:
    counts = collections.Counter(
        found[name] for found in settings if found.get(name) is not None)
    (value, count), = counts.most_common(1)
    # A setting that some conditions lack, such as one of replay, is not named
    # in those that have it with the one common value.
    if len(counts) == 1 or count > len(settings) / 2:
      usual[name] = value
  names = _name_all(conditions, differing, usual)
  if len(set(names.values())) < len(names):
    usual = {}
    names = _name_all(conditions, differing, usual)
  return outcomes_lib.describe([tuple(usual.items())]) if usual else '', names


def _name_all(conditions, differing, usual):
  names = {}
  for variant, rest in conditions:
    found = dict(rest)
    varied = {name for alternative in variant for name, _ in alternative}
    others = tuple(
        (name, found[name]) for name in differing if name not in varied and
        found.get(name) is not None and found[name] != usual.get(name))
    named = (*variant, others)
    names[variant, rest] = (
        outcomes_lib.describe(named) if any(named) or not usual else _USUAL)
  return names
