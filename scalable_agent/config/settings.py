"""How a setting is declared: once, with everything that is to be said of it.

    learning_rate: float = setting(
        .00048, 'Learning rate at the start.', LEARNERS | AGENT,
        FINITE_NOT_NEGATIVE)

is a field of a dataclass that says the setting's name, type, default, help,
scopes, and which values can work. Flags, and the lists of settings that jobs,
log directories and reports compare, are derived from it.
"""

import collections
import contextlib
import dataclasses
import enum
import math

from scalable_agent.files import file_names
from scalable_agent.process import errors

_METADATA_KEY = 'setting'
_TYPES = {bool: 'True or False', int: 'a whole number', float: 'a number',
          str: 'text', list: 'a list'}


class ConfigError(ValueError):
  """A setting cannot work; the message is one line that says which and why."""


class Scope(enum.Flag):
  """Where a setting has to be the same.

  IDENTITY: In all that is done in a log directory. The setting decides which
    weights fit and what they mean, so another value makes another run.
  ACTORS: At a learner and its actor jobs.
  LEARNERS: At all learners that update the same weights.
  AGENT: In runs that a report takes for seeds of one agent.
  WORKERS: At a learner and the workers of A3C, which compute its loss.
  REPLAY: At a replay job and the learners that share it.
  """
  IDENTITY = enum.auto()
  ACTORS = enum.auto()
  LEARNERS = enum.auto()
  AGENT = enum.auto()
  WORKERS = enum.auto()
  REPLAY = enum.auto()


IDENTITY, ACTORS, LEARNERS, AGENT, WORKERS, REPLAY = Scope
NOWHERE = Scope(0)

Check = collections.namedtuple('Check', 'holds expected')
Check.__doc__ = """Which values of a setting can work, whatever the others are.

  holds: A function of a value that says whether it can work.
  expected: What to tell the user of a value that cannot, as in "it has to be
    positive".
"""

NOT_NEGATIVE = Check(lambda value: value >= 0, 'it has to be 0 or more')
ONE_OR_MORE = Check(lambda value: value >= 1, 'it has to be 1 or more')
POSITIVE = Check(lambda value: value > 0, 'it has to be positive')
FRACTION = Check(lambda value: 0 <= value <= 1, 'it has to be in [0, 1]')
FINITE_NOT_NEGATIVE = Check(
    lambda value: math.isfinite(value) and value >= 0,
    'it has to be finite, and 0 or more')
FINITE_POSITIVE = Check(
    lambda value: math.isfinite(value) and value > 0,
    'it has to be finite and positive')
# What Python would write to gs://bucket/run goes to a folder called `gs:`.
LOCAL_PATH = Check(
    lambda value: not file_names.is_remote(value),
    'it has to be a path of the file system, and no URL. Mount the storage, '
    'and name where it is mounted')


def _is_no_pattern(path):
  try:
    path.encode()
  except UnicodeEncodeError:  # Bytes of the command line that are no UTF-8.
    return False
  return not set(path) & set('[]*?\\')


_NO_PATTERN = (
    'in UTF-8, and without [, ], *, ? and \\, which TensorFlow takes for a '
    'pattern, so that it would not find the files')
# Of what TensorFlow reads and writes.
NO_PATTERN = Check(_is_no_pattern, f'it has to be {_NO_PATTERN}')
LOCAL_NO_PATTERN = Check(
    lambda value: LOCAL_PATH.holds(value) and _is_no_pattern(value),
    f'it has to be a path of the file system, and no URL, {_NO_PATTERN}')


def between(least, most):
  """Returns the `Check` of whole numbers from one to another, inclusive."""
  return Check(lambda value: least <= value <= most,
               f'it has to be from {least} to {most}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """What the declaration of a setting says.

  Attributes:
    name: Of the field, and of the flag.
    type: bool, int, float, str or list (of strings).
    default: The value if neither the user nor the suite sets it. None if the
      setting is derived.
    help: For the user, with the unit.
    scopes: A `Scope`, where it has to be the same.
    check: A `Check`, or None if all values of the type can work.
    choices: A tuple of the strings that can work, empty if others can.
    needs: The name of another setting or None. If that one is 0, this one makes
      no difference.
    only_with: A dict of names of other settings to their values. With any other
      value, this one makes no difference where its scopes are compared.
    agent: The only agent that has it, None if all have it.
    is_path: Whether it is the path of a file or a directory, which is kept
      whole: a run may go on in another working directory.
    is_derived: Whether it follows from others, so that there is no flag.
  """
  name: str
  type: type
  default: object
  help: str
  scopes: Scope
  check: Check
  choices: tuple
  needs: str
  only_with: dict
  agent: str
  is_path: bool
  is_derived: bool


def setting(default, help_text, scopes, check=None, *, choices=(), needs=None,
            only_with=None, agent=None, is_path=False):
  """Declares a setting; see `Setting` for the arguments.

  Returns:
    A field for a dataclass.
  """
  declared = dict(help=help_text, scopes=scopes, check=check,
                  choices=tuple(choices), needs=needs,
                  only_with=dict(only_with or {}), agent=agent,
                  is_path=is_path, is_derived=False)
  if isinstance(default, list):
    return _field(declared, default_factory=lambda: list(default))
  return _field(declared, default=default)


def derived(help_text, scopes, *, needs=None, **default):
  """Declares a setting that follows from others; see `Setting`.

  Args:
    help_text, scopes, needs: As of `Setting`.
    **default: `default`, what runs had before there was the setting; None if
      all have it.
  """
  return _field(dict(help=help_text, scopes=scopes, check=None, choices=(),
                     needs=needs, only_with={}, agent=None, is_path=False,
                     is_derived=True),
                **default)


def _field(declared, **kwargs):
  if not isinstance(declared['scopes'], Scope):
    raise TypeError(
        f'scopes are {declared["scopes"]!r}, expected a Scope such as '
        'LEARNERS | AGENT, or NOWHERE.')
  return dataclasses.field(metadata={_METADATA_KEY: declared}, **kwargs)


def describe(cls):
  """Returns the settings that the fields of a dataclass declare.

  Args:
    cls: A dataclass.

  Returns:
    A dict of name to `Setting`, in the order of the fields.

  Raises:
    TypeError: A field is not declared by `setting` or `derived`, so that its
      scopes are unknown, or it needs a setting that does not exist.
  """
  settings = {}
  for field in dataclasses.fields(cls):
    if _METADATA_KEY not in field.metadata:
      raise TypeError(f'{cls.__name__}.{field.name} is declared without scopes.'
                      ' Use setting() or derived().')
    declared = field.metadata[_METADATA_KEY]
    settings[field.name] = Setting(
        name=field.name, type=field.type, default=_default_of(field),
        **declared)
  for declared in settings.values():
    for other in (declared.needs, *declared.only_with):
      if other is not None and other not in settings:
        raise TypeError(
            f'{cls.__name__}.{declared.name} needs {other!r}, which is no '
            'setting.')
  return settings


def _default_of(field):
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return None if field.default is dataclasses.MISSING else field.default


def check_value(declared, value):
  """Refuses a value that cannot work, whatever the other settings are.

  Args:
    declared: A `Setting`.
    value: Of that setting.

  Raises:
    ConfigError: It cannot work.
  """
  allowed = (int, float) if declared.type is float else declared.type
  # To Python, True is a whole number too.
  if not isinstance(value, allowed) or (
      isinstance(value, bool) and declared.type is not bool):
    raise refusal(declared.name, value,
                  f'it has to be {_TYPES[declared.type]}, and its type is '
                  f'{type(value).__name__}')
  if declared.type is str:
    _refuse_home(declared.name, value)
  if declared.choices and value not in declared.choices:
    raise refusal(declared.name, value,
                  f'it has to be {" or ".join(declared.choices)}')
  if declared.check is not None and not declared.check.holds(value):
    raise refusal(declared.name, value, declared.check.expected)


def _refuse_home(name, value):
  """Refuses ~, which shells do not replace behind --name=."""
  if value.startswith('~'):
    raise refusal(name, value, 'no shell has replaced ~, which would be the '
                  'name of a folder. Write $HOME in its place')


def refusal(name, value, expected):
  """Returns the error that refuses a setting's value.

  Args:
    name: The setting's.
    value: What cannot work.
    expected: A clause that says what would, or why it cannot.
  """
  return ConfigError(f'--{name}={value} cannot work: {expected}.')


@contextlib.contextmanager
def writing(name, path):
  """Names the flag when the `with` block cannot write.

  Args:
    name: The flag's.
    path: Its value.

  Raises:
    ConfigError: The block has raised OSError, or the path begins with ~.
  """
  _refuse_home(name, path)
  try:
    yield
  except OSError as e:
    raise ConfigError(f'--{name}={path} cannot be written: '
                      f'{errors.first_line(e)}.') from e
