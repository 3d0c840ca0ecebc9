"""Locks a log directory, checks whose run it holds, and marks it so."""

import contextlib
import dataclasses
import json
import os
import socket
import stat
import tempfile

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import best_checkpoint
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import ConfigError
from scalable_agent.files import file_names
from scalable_agent.files import locks
from scalable_agent.files import log_file
from scalable_agent.files import whole_file
from scalable_agent.process import errors

# Settings that decide which weights fit and what they mean: a log directory
# that was begun with other values is another run's.
IDENTITY = config_lib.names(config_lib.IDENTITY)
CONFIG_FILE, LOCK_FILE = file_names.CONFIG, 'lock'
_FILES = (CONFIG_FILE, checkpoint_files.NOTE_FILE, log_file.METRICS,
          log_file.EPISODES, log_file.EVALUATIONS)


def facts_of(facts):
  """Returns what `config.json` says of the environments, a dict.

  Args:
    facts: The environments' `suites.Facts`, or an agent for them.
  """
  return dict(
      num_actions=facts.num_actions,
      observation_shapes=[spec.shape for spec in facts.observation_spec])


@contextlib.contextmanager
def claim(config):
  """Makes the log directory and locks it for as long as the block lasts.

  Also checks it, as far as the flags alone tell, and removes what killed runs
  have left there.

  Args:
    config: A `config.Config`.

  Raises:
    ConfigError: It cannot be written, is another run's, or another process
      trains there.
  """
  logdir = config.logdir
  with config_lib.writing('logdir', logdir):
    os.makedirs(logdir, exist_ok=True)
    with tempfile.TemporaryFile(dir=logdir):
      pass
    if os.stat(logdir).st_mode & stat.S_IWOTH:
      logging.warning('--logdir=%s can be written by everybody on this '
                      'machine. `chmod o-w` takes that away.', logdir)
  descriptor = _lock(logdir)
  try:
    _check_files(logdir)
    check(config, {})
    with config_lib.writing('logdir', logdir):
      checkpoint_files.clean_up(logdir)
      best_checkpoint.clean_up(logdir)
      for name in (*_FILES, file_names.REPLAY_AGENT):
        whole_file.remove_leftovers(os.path.join(logdir, name))
    yield
  finally:
    locks.release(os.path.join(logdir, LOCK_FILE), descriptor)


def _check_files(logdir):
  for name in _FILES:
    path = os.path.join(logdir, name)
    if os.path.exists(path) and not os.path.isfile(path):
      raise ConfigError(
          f'{path} is no file, but a run writes one of that name. Move it '
          'away, or choose another --logdir.')


def _lock(logdir):
  """Returns the descriptor of the lock."""
  path = os.path.join(logdir, LOCK_FILE)
  try:
    return locks.acquire(
        path, f'process {os.getpid()} on {socket.gethostname()}')
  except locks.Held as e:
    raise ConfigError(
        f'--logdir={logdir} is in use: {e.holder or "another process"} trains '
        'there. Wait for it, stop it, or choose another --logdir.') from e
  except OSError as e:
    raise ConfigError(
        f'{path} cannot be locked ({errors.first_line(e)}), and another '
        'process may train there. Remove what hinders it, or choose another '
        '--logdir.') from e


def note_wait(logdir):
  """Notes that the run that has the lock has no update to make now.

  It sets the time of the lock, which `launch/health.py` takes like the time of
  an update.
  """
  with contextlib.suppress(OSError):
    os.utime(os.path.join(logdir, LOCK_FILE))


def write(config, facts):
  """Writes `config.json`, which marks the directory as this run's.

  Args:
    config: A `config.Config`.
    facts: Of `facts_of`, written along.

  Raises:
    ConfigError: The directory cannot be written.
  """
  path = os.path.join(config.logdir, CONFIG_FILE)
  written = dict(dataclasses.asdict(config), **facts)
  with config_lib.writing('logdir', config.logdir):
    whole_file.write_json(path, written)


def check_is_new(logdir):
  """Refuses logs and a best checkpoint where no other checkpoint is.

  Raises:
    ConfigError: There are such.
  """
  found = [name for name in (log_file.METRICS, log_file.EPISODES,
                             log_file.EVALUATIONS)
           if log_file.has_lines(os.path.join(logdir, name))]
  # A new run would be measured by it.
  if best_checkpoint.exists(logdir):
    found.append(f'{best_checkpoint.DIRECTORY}/')
  if found:
    raise ConfigError(
        f'--logdir={logdir} has logs or a best checkpoint '
        f'({", ".join(found)}), but no checkpoint that they go with. Bring the '
        'checkpoints back, or move these away to start afresh, or choose '
        'another --logdir.')


def read_config(logdir, mode):
  """Returns `config.json`, a dict; empty if the directory is nobody's yet.

  Args:
    logdir: The directory; it need not exist.
    mode: As the setting.

  Raises:
    ConfigError: It cannot be read, or training would resume without it.
  """
  try:
    # A run that ended before its first checkpoint does not own it.
    if mode == 'train' and not checkpoint_files.find(logdir):
      return {}
  except OSError as e:
    raise ConfigError(
        f'--logdir={logdir} cannot be read: {errors.first_line(e)}.') from e
  path = os.path.join(logdir, CONFIG_FILE)
  try:
    return whole_file.read_json(path)
  except (FileNotFoundError, NotADirectoryError):
    if mode == 'train':
      raise ConfigError(
          f'--logdir={logdir} has checkpoints, but no {CONFIG_FILE}, which '
          'says how they were trained. Bring it back, or choose another '
          '--logdir; --warm_start begins with the weights of a checkpoint.')
    return {}
  except (OSError, ValueError) as e:
    raise ConfigError(
        f'{path} is not readable as JSON ({errors.first_line(e)}). Repair it, '
        'or choose another --logdir.') from e


def refuse_another(logdir, found, now, names):
  """Refuses what would be another run in the same directory.

  Args:
    logdir: The directory.
    found: Of `read_config`.
    now: A dict of name to value, of this start.
    names: Of the settings that have to be the same where both have them. A
      run that is older than a setting has the setting's default.

  Raises:
    ConfigError: One of them differs.
  """
  before = _with_younger_settings(found)
  for name in names:
    if name in before and name in now and before[name] != now[name]:
      raise ConfigError(
          f'--logdir={logdir} holds a run with {name}={before[name]}, this one '
          f'has {name}={now[name]}. Choose another --logdir, or the same '
          'settings to resume.')


def _with_younger_settings(found):
  """Adds the settings that a `config.json` lacks, with their defaults."""
  declared = {name: setting.default
              for name, setting in config_lib.SETTINGS.items()
              if not setting.is_derived}
  try:
    theirs = config_lib.defaults(
        found['level_name'], found.get('agent', declared['agent']))
  except LookupError:
    return found
  return {**declared, **theirs, **found}


def check(config, facts):
  """Checks that the directory is this run's, or nobody's.

  Args:
    config: A `config.Config`.
    facts: Of `facts_of`, to check too; empty before they are known.

  Returns:
    A list of lines, one for each setting that differs from the run so far
    without making it another run.

  Raises:
    ConfigError: The directory is another run's, or cannot be read.
  """
  found = read_config(config.logdir, config.mode)
  # Through JSON, so that tuples compare as the lists they were written as.
  now = json.loads(json.dumps(dict(dataclasses.asdict(config), **facts)))
  refuse_another(config.logdir, found, now, (*IDENTITY, *facts))
  return [f'{name} was {found[name]}, is now {now[name]}'
          for name in config_lib.names_kept(config.mode)
          if name in found and found[name] != now[name]]
