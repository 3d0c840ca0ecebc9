"""A flag for every setting, of its name, type and help; what a user gave.

A program has them in its help after `flags.adopt_module_key_flags`.
"""

from absl import flags

from scalable_agent import config as config_lib

FLAGS = flags.FLAGS

_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer,
           float: flags.DEFINE_float, str: flags.DEFINE_string,
           list: flags.DEFINE_list}


def _define():
  for name, declared in config_lib.SETTINGS.items():
    if declared.is_derived:
      continue
    if declared.choices:
      flags.DEFINE_enum(
          name, declared.default, declared.choices, declared.help)
    else:
      _DEFINE[declared.type](name, declared.default, declared.help)


_define()


def _names_given():
  return [name for name in config_lib.SETTINGS
          if name in FLAGS and FLAGS[name].present]


def given(changes=()):
  """Returns the settings that the user gave, a dict of name to value.

  Args:
    changes: A dict of name to value, as if these were given too.
  """
  return {name: FLAGS[name].value for name in _names_given()} | dict(changes)


def given_arguments(without):
  """Returns the settings that the user gave as arguments, a list of strings.

  Args:
    without: Names of settings to leave out.
  """
  return [FLAGS[name].serialize() for name in _names_given()
          if name not in without]


def parse(name, text, flag):
  """Returns the value that a user wrote as name=text in another flag.

  Args:
    name: A setting's, if it is one.
    text: The value.
    flag: The name of the other flag.

  Raises:
    config_lib.ConfigError: There is no such setting, or it has no such value.
  """
  config_lib.refuse_unknown([name], flag)
  try:
    return FLAGS[name].parser.parse(text)
  except ValueError as e:
    raise config_lib.refusal(name, text, e) from e


def refuse_arguments(argv):
  """Raises ConfigError for arguments that are no flags."""
  if len(argv) > 1:
    raise config_lib.ConfigError(
        f'Unexpected arguments: {" ".join(argv[1:])}. Flags are given as '
        '--name=value, or --name and --noname where they are on or off.')
