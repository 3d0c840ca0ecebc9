"""Finds the checkpoint that --checkpoint names; needs no TensorFlow."""

import os

from scalable_agent.checkpoints import best_checkpoint
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import ConfigError
from scalable_agent.config.settings import refusal
from scalable_agent.process import errors
from scalable_agent.suites import scores as suite_scores

LATEST, BEST = 'latest', 'best'
_INDEX = '.index'


def find(config):
  """Finds the checkpoints that `config.checkpoint` stands for.

  Args:
    config: A `config.Config`.

  Returns:
    A list of paths without the endings of files, not empty. The last of them
    that can be restored is meant.

  Raises:
    ConfigError: There is none.
  """
  name = config.checkpoint
  if name == LATEST:
    return _find_latest(config)
  if name == BEST:
    return [_find_best(config)]
  path = name.removesuffix(_INDEX)
  if not os.path.isfile(path + _INDEX):
    raise refusal(
        'checkpoint', name, f'there is no file {path + _INDEX}. It has to be '
        f'{LATEST}, {BEST} or the path of a checkpoint, such as '
        f'{checkpoint_files.path_of(config.logdir, 4000000)}')
  return [path]


def fingerprint(config):
  """Returns what tells the checkpoint apart, whole or not, a string.

  Args:
    config: A `config.Config`.

  Raises:
    ConfigError: There is none, and --checkpoint is not 'latest'.
    OSError: It cannot be read, or is removed meanwhile.
  """
  if config.checkpoint == LATEST:
    return checkpoint_files.fingerprint(checkpoint_files.path_of(
        config.logdir, checkpoint_files.newest_frames(config.logdir)))
  return checkpoint_files.fingerprint(find(config)[-1])


def _find_latest(config):
  try:
    paths = checkpoint_files.find(config.logdir)
  except OSError as e:
    raise ConfigError(f'--logdir={config.logdir} cannot be read: '
                      f'{errors.first_line(e)}.') from e
  if not paths:
    raise ConfigError(
        f'--logdir={config.logdir} has no checkpoint. Train first, or name the '
        'log directory of a run.')
  return paths


def _find_best(config):
  try:
    best = best_checkpoint.read(config.logdir)
  except ValueError as e:
    raise refusal('checkpoint', config.checkpoint, str(e)) from e
  except OSError as e:
    raise refusal(
        'checkpoint', config.checkpoint,
        f'{e.filename}: {errors.first_line(e)}') from e
  if best is None:
    _find_latest(config)
    raise refusal(
        'checkpoint', config.checkpoint, f'--logdir={config.logdir} has no '
        'best checkpoint. A run keeps one from when each level has had '
        f'{suite_scores.WINDOW} episodes; --checkpoint={LATEST} is what there '
        'is before')
  return best.path
