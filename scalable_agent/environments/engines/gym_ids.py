"""Finds the environments that level names of Gymnasium stand for."""

import collections
import difflib
import importlib
import re

from scalable_agent import atari57
from scalable_agent.environments import PoolError
from scalable_agent.process import errors

PREFIX = 'gym:'
_LIKE_ID = re.compile(r'(\w+/.+|\w+)-v\d+')
# What older versions of Gym append to the name of a game.
_OLD_SUFFIXES = re.compile('(NoFrameskip|Deterministic)$')

_Package = collections.namedtuple('_Package', 'name module register')
_Package.__doc__ = """What registers the ids of a namespace.

  name: As it is installed.
  module: The module to import.
  register: The module's function to call, None if importing it does.
"""
_PACKAGES = {
    'ALE': _Package('ale-py', 'ale_py', None),
    'MinAtar': _Package('minatar', 'minatar.gym', 'register_envs')}

# From the level of the paper's protocol to the namespace ALE's name of a game,
# and back.
_ALE_NAMES = {game: game.title().replace('_', '') for game in atari57.GAMES}
_ATARI_LEVELS = {name: game for game, name in _ALE_NAMES.items()}


def is_like_id(name):
  """Whether a name looks like an id, as no level of DeepMind Lab's own does."""
  return bool(_LIKE_ID.fullmatch(name))


def is_ale(level_name):
  """Whether a level is one of ALE's own, 'gym:ALE/<game>'."""
  return _namespace(level_name) == 'ALE'


def atari_level(level_name):
  """Returns the level that plays the same game by the paper's protocol.

  Args:
    level_name: One of ALE's own levels, or another name of an environment.

  Returns:
    A string, such as 'pong' for 'gym:ALE/Pong-v5' and 'PongNoFrameskip-v4';
    None if the paper has no such game.
  """
  name, _, _ = re.split('[/:]', level_name)[-1].partition('-')
  return _ATARI_LEVELS.get(_OLD_SUFFIXES.sub('', name))


def registered():
  """Returns the levels that Gymnasium itself has, a list; empty without it."""
  try:
    import gymnasium
  except ImportError:
    return []
  return [PREFIX + environment_id for environment_id in gymnasium.registry]


def make(level_name, **kwargs):
  """Makes an environment.

  Args:
    level_name: A string, 'gym:<id>'.
    **kwargs: Arguments of the environment's constructor.

  Returns:
    A `gymnasium.Env`.

  Raises:
    PoolError: It is unknown, or needs a missing package.
  """
  if not level_name.startswith(PREFIX):
    raise PoolError(
        f'{level_name}: level names of Gymnasium start with {PREFIX}')
  try:
    import gymnasium
  except ImportError as error:
    raise PoolError(
        f'{level_name}: Gymnasium cannot be imported: {error}') from error
  environment_id = level_name[len(PREFIX):]
  _register(level_name, gymnasium.registry)
  try:
    # The checker would only warn, at a cost in every step.
    return gymnasium.make(environment_id, disable_env_checker=True, **kwargs)
  except gymnasium.error.UnregisteredEnv as error:
    suggestion = _suggestion(environment_id, gymnasium.registry)
    raise PoolError(
        f'{level_name}: {errors.one_line(error)}{suggestion}') from error
  except (gymnasium.error.Error, ImportError) as error:
    raise PoolError(f'{level_name}: {errors.one_line(error)}') from error


def _namespace(level_name):
  """Returns the namespace of a level's id, '' if it has none."""
  environment_id = level_name[len(PREFIX):].rpartition(':')[2]
  return environment_id.rpartition('/')[0]


def _register(level_name, registry):
  """Lets a known package register its ids, or raises PoolError."""
  namespace = _namespace(level_name)
  package = _PACKAGES.get(namespace)
  if package is None:
    return
  try:
    module = importlib.import_module(package.module)
  except ImportError as error:
    raise PoolError(
        f'{level_name}: it needs the package {package.name}, which cannot be '
        f'imported ({errors.one_line(error)}). Install it with: pip install '
        f'{package.name}') from error
  known = {spec.namespace for spec in registry.values()}
  if package.register and namespace not in known:
    getattr(module, package.register)()


def _suggestion(environment_id, registry):
  """Returns text to append, naming what may have been meant."""
  is_of_atari = _namespace(PREFIX + environment_id) in ('', 'ALE')
  level = is_of_atari and atari_level(environment_id)
  if level:
    return (f' (Atari: {level} by the paper\'s protocol, or '
            f'gym:ALE/{_ALE_NAMES[level]}-v5)')
  similar = difflib.get_close_matches(
      environment_id.split(':')[-1], list(registry))
  if not similar:
    return ''
  return f' (similar: {", ".join(PREFIX + name for name in similar)})'
