"""The mark of a run of a sweep: a file that says which trial the run is.

It has `variant`, a list of objects of setting to value that go together, and
`sample`, such an object. Where each run of a sweep has a seed of its own, it
also has `sweep_seed`, the seed of the sweep.
"""

import os

from scalable_agent import config as config_lib
from scalable_agent.files import whole_file

NAME = 'sweep.json'


def read(logdir):
  """Returns the mark in a run's directory, a dict; None if there is none.

  Raises:
    ConfigError: It cannot be read.
  """
  path = os.path.join(logdir, NAME)
  try:
    mark = whole_file.read_json(path)
    for settings in (*mark['variant'], mark['sample']):
      # A value that cannot be compared was not written by a sweep.
      hash(tuple(settings.items()))
    if not isinstance(mark.get('sweep_seed'), (int, type(None))):
      raise ValueError('sweep_seed is no integer')
    return mark
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
    raise config_lib.ConfigError(
        f'{path} cannot be read ({e!r}). Repair it, or choose another '
        'directory.') from e


def write(logdir, variant, sample, sweep_seed=None):
  """Marks a run, unless the file says the same.

  A file of an earlier start, which ended before its first checkpoint, may name
  another seed.

  Raises:
    ConfigError, OSError: The file cannot be read, or not be written.
  """
  mark = dict(variant=variant, sample=sample)
  if sweep_seed is not None:
    mark['sweep_seed'] = sweep_seed
  if read(logdir) != mark:
    whole_file.write_json(os.path.join(logdir, NAME), mark)
