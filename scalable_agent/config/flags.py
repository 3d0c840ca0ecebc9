"""Defines a flag for every setting, of the setting's name, type and help."""

from absl import flags

from scalable_agent import config as config_lib

# So that the flags are those of the module that calls `define`.
flags.disclaim_key_flags()

_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer,
           float: flags.DEFINE_float, str: flags.DEFINE_string,
           list: flags.DEFINE_list}


def define():
  """Defines the flags, as flags of the calling module."""
  for name, declared in config_lib.SETTINGS.items():
    if declared.is_derived:
      continue
    if declared.choices:
      flags.DEFINE_enum(
          name, declared.default, declared.choices, declared.help)
    else:
      _DEFINE[declared.type](name, declared.default, declared.help)
