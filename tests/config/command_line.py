"""What a command line makes of the settings."""

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags


def resolve(*arguments, **values):
  """Resolves what a command line says, given as text or by keyword."""
  arguments += tuple(f'--{name}={value}' for name, value in values.items())
  with flagsaver.flagsaver():
    flags.FLAGS(['experiment', *arguments])
    return config_lib.resolve(config_flags.given())


def message_of(*arguments, **values):
  """The message of the error that a command line gets; it is one line."""
  with pytest.raises(config_lib.ConfigError) as caught:
    resolve(*arguments, **values)
  assert '\n' not in str(caught.value)
  return str(caught.value)
