"""The log directory of a run: checks that it is this run's, and marks it so."""

import contextlib
import dataclasses
import json
import os
import tempfile

from scalable_agent import config as config_lib
from scalable_agent.config import ConfigError

# Settings that decide which weights fit and what they mean: a log directory
# that was begun with other values is another run's.
IDENTITY = config_lib.names(config_lib.IDENTITY)


def facts_of(facts):
  """Returns what `config.json` says of the environments, a dict.

  Args:
    facts: Has `num_actions` and `observation_spec`, as an
      `environments.Pool`.
  """
  return dict(
      num_actions=facts.num_actions,
      observation_shapes=[spec.shape for spec in facts.observation_spec])


@contextlib.contextmanager
def _writing_to(logdir):
  try:
    yield
  except OSError as e:
    raise ConfigError(
        f'--logdir={logdir} cannot be written: {e.strerror}.') from e


def make(config):
  """Makes the log directory, or checks it as far as the flags alone tell.

  Raises:
    ConfigError: It cannot be written, or is another run's.
  """
  with _writing_to(config.logdir):
    os.makedirs(config.logdir, exist_ok=True)
    with tempfile.TemporaryFile(dir=config.logdir):
      pass
  check(config, {})


def prepare(config, facts):
  """Writes the configuration, after checking that it belongs to this run.

  Args:
    config: A `config.Config`.
    facts: A dict of what the environments turned out to be, written along and
      checked: the number of actions, shapes.

  Returns:
    A list of lines, one for each setting that differs from the run so far
    without making it another run.

  Raises:
    ConfigError: The directory cannot be written, or is another run's.
  """
  make(config)
  changed = check(config, facts)
  path = os.path.join(config.logdir, 'config.json')
  temporary = f'{path}.{os.getpid()}.tmp'
  written = dict(dataclasses.asdict(config), **facts)
  with _writing_to(config.logdir):
    with open(temporary, 'w') as f:
      f.write(json.dumps(written, indent=2) + '\n')
    os.replace(temporary, path)
  return changed


def check(config, facts):
  """As `prepare`, without writing anything."""
  path = os.path.join(config.logdir, 'config.json')
  if not os.path.exists(path):
    return []
  try:
    with open(path) as f:
      found = json.load(f)
    if not isinstance(found, dict):
      raise ValueError('no object')
  except ValueError as e:
    raise ConfigError(
        f'{path} is not readable as JSON ({e}). Repair it, or choose another '
        '--logdir.') from e
  # Through JSON, so that tuples compare as the lists they were written as.
  now = json.loads(json.dumps(dict(dataclasses.asdict(config), **facts)))
  different = [name for name in now
               if name in found and found[name] != now[name]
               and name not in ('logdir', 'mode')]
  for name in different:
    if name in IDENTITY or name in facts:
      raise ConfigError(
          f'--logdir={config.logdir} holds a run with {name}={found[name]}, '
          f'this one has {name}={now[name]}. Choose another --logdir, or the '
          'same settings to resume.')
  return [f'{name} was {found[name]}, is now {now[name]}'
          for name in different]
