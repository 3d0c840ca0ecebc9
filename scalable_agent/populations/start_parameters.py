"""What the members of a population start with."""

from scalable_agent import config as config_lib
from scalable_agent.populations import evolution
from scalable_agent.populations import settings as settings_lib
from scalable_agent.sweeps import grid
from scalable_agent.sweeps import samples as samples_lib

# Settings that are neither drawn nor changed: the population sets them, or they
# decide whether one member's weights fit another.
_SAME = (*grid.FIXED, *settings_lib.OWN, *config_lib.names(config_lib.IDENTITY))
# How often a parameter may change in the same direction.
_MANY_CHANGES = 100


def draw(ranges, adapt, given, size, sample_seed):
  """Returns what each member starts with, a list of dicts of name to value.

  Args:
    ranges: A list of `samples.Range`s.
    adapt: As of `settings.Settings`. What has no range starts as for all runs.
    given: A dict of the settings that the user gave for all members.
    size: How many members.
    sample_seed: Random seed of what is drawn from the ranges.

  Raises:
    ConfigError: A range or `adapt` names what cannot vary.
  """
  for each in ranges:
    if each.name in given:
      raise config_lib.ConfigError(
          f'--{each.name} is given, and drawn too. Leave it out, or name with '
          '--range only what is to be drawn; by default that is Table D.1.')
    if each.name in _SAME:
      raise config_lib.ConfigError(
          f'{each.name} cannot be drawn (--range): members copy the weights of '
          'each other, and the population starts their runs.')
  config_lib.refuse_unknown(adapt, 'adapt')
  config = config_lib.resolve(given)
  starts = []
  for sample in samples_lib.draw(ranges, size, sample_seed):
    parameters = dict(sample)
    for name in adapt:
      value = parameters.setdefault(name, getattr(config, name))
      reason = _reason_to_stay(name, value)
      if reason:
        raise config_lib.refusal('adapt', ','.join(adapt), reason)
    starts.append(parameters)
  return starts


def _reason_to_stay(name, value):
  """Returns why a parameter cannot be multiplied, or must not; or None."""
  if name in _SAME:
    return (f'{name} has to stay as it is, since members copy the weights of '
            'each other, and the population starts their runs')
  if not isinstance(value, float) or value <= 0:
    return (f'{name} starts at {value}, and what is multiplied by 1.2 has to '
            'be positive, and need not be whole')
  check = config_lib.SETTINGS[name].check
  if check and not check.holds(
      value * evolution.PERTURB_FACTOR**_MANY_CHANGES):
    return f'factors of 1.2 could make {name} too large: {check.expected}'
  return None
