"""What a population goes by, and the file that keeps it."""

import collections
import os

from scalable_agent import config as config_lib
from scalable_agent.files import whole_file
from scalable_agent.process import errors

_FILE = 'population.json'
# What the population sets itself, for each member.
OWN = ('logdir', 'seed', 'warm_start')

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
    found = whole_file.read_json(path)
    return {name: parse(name, found[name]) for name in Settings._fields}
  except (FileNotFoundError, NotADirectoryError):
    return {}
  except (OSError, ValueError, KeyError, TypeError) as e:
    raise config_lib.ConfigError(
        f'{path} cannot be read ({errors.first_line(e)}). Repair it, or choose '
        'another --logdir.') from e


def write(logdir, settings):
  """Writes a population's `Settings` for `read`."""
  whole_file.write_json(os.path.join(logdir, _FILE), settings._asdict())
