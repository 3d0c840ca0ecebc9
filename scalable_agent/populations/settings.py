"""What a population goes by, and what its members start with."""

import collections
import json
import os

from scalable_agent import config as config_lib
from scalable_agent.files import whole_file
from scalable_agent.process import errors
from scalable_agent.populations import evolution
from scalable_agent.sweeps import grid
from scalable_agent.sweeps import samples as samples_lib

_FILE = 'population.json'
# What the population sets itself, for each member.
OWN = ('logdir', 'seed', 'warm_start')
# Settings that are neither drawn nor changed: the population sets them, or they
# decide whether one member's weights fit another.
_SAME = (*grid.FIXED, *OWN, *config_lib.names(config_lib.IDENTITY))
# How often a parameter may change in the same direction.
_MANY_CHANGES = 100

Settings = collections.namedtuple(
    'Settings', 'burn_in_frames episodes score_range adapt')
Settings.__doc__ = """What evolutions go by that no record of them says.

  burn_in_frames: Environment frames of a member before its first evolution.
  episodes: Episodes of a member from one evolution to the next.
  score_range: As for `fitness.make`.
  adapt: Names of the hyperparameters that evolve, a list.
"""


def read(logdir, parse):
  """Reads the settings of the population in a directory.

  Args:
    logdir: The directory.
    parse: A function of the name and the value of a setting, as it was written,
      that returns the value, or raises ValueError.

  Returns:
    A dict of the fields of `Settings` to their values, {} if there are none.

  Raises:
    ConfigError: They cannot be read.
  """
  path = os.path.join(logdir, _FILE)
  try:
    with open(path, 'rb') as f:
      found = json.loads(f.read().decode())
    return {name: parse(name, found[name]) for name in Settings._fields}
  except (FileNotFoundError, NotADirectoryError):
    return {}
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
    raise config_lib.ConfigError(
        f'{path} cannot be read ({errors.first_line(e)}). Repair it, or choose '
        'another --logdir.') from e


def write(logdir, settings):
  """Writes a population's `Settings` for `read`."""
  whole_file.write(os.path.join(logdir, _FILE),
                   (json.dumps(settings._asdict()) + '\n').encode())


def start_parameters(ranges, adapt, given, size, sample_seed):
  """Returns what each member starts with, a list of dicts of name to value.

  Args:
    ranges: A list of `samples.Range`s.
    adapt: As of `Settings`. What has no range starts as for all runs.
    given: A dict of the settings that the user gave for all members.
    size: How many members.
    sample_seed: Random seed of what is drawn from the ranges.

  Raises:
    ConfigError: A range or `adapt` names what cannot vary.
  """
  for each in ranges:
    if each.name in given:
      raise config_lib.ConfigError(
          f'--{each.name} is given, and drawn too (--range). Leave one out.')
    if each.name in _SAME:
      raise config_lib.ConfigError(
          f'{each.name} cannot be drawn (--range): members copy the weights of '
          'each other, and the population starts their runs.')
  config_lib.refuse_unknown(adapt)
  config = config_lib.resolve(given)
  starts = []
  for sample in samples_lib.draw(ranges, size, sample_seed):
    parameters = dict(sample)
    for name in adapt:
      value = parameters.setdefault(name, getattr(config, name))
      reason = _reason_to_stay(name, value)
      if reason:
        raise config_lib.refusal('adapt', ','.join(adapt), reason)
    starts.append(parameters)
  return starts


def _reason_to_stay(name, value):
  """Returns why a parameter cannot be multiplied, or must not; or None."""
  if name in _SAME:
    return (f'{name} has to stay as it is, since members copy the weights of '
            'each other, and the population starts their runs')
  if not isinstance(value, float) or value <= 0:
    return (f'{name} starts at {value}, and what is multiplied by 1.2 has to '
            'be positive, and need not be whole')
  check = config_lib.SETTINGS[name].check
  if check and not check.holds(
      value * evolution.PERTURB_FACTOR**_MANY_CHANGES):
    return f'factors of 1.2 could make {name} too large: {check.expected}'
  return None
