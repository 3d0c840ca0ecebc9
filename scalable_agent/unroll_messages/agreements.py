"""Says what two jobs have to agree on, and how they differ."""

import json

import numpy as np

# What the parts of an agreement are called that no flag sets.
_NAMES = dict(
    protocol='the version of the protocol',
    num_actions='the number of actions',
    observations='the list of observations')
_MAX_QUOTED = 200


def agreement_of(version, names, config, facts):
  """Returns what has to be equal at both ends, a dict that JSON can hold.

  Args:
    version: The protocol's, an int.
    names: Of the settings that both ends need alike.
    config: A `config.Config`.
    facts: Has `num_actions` and `observation_spec`, as an
      `environments.Pool`.
  """
  return dict(
      protocol=version, **{name: getattr(config, name) for name in names},
      num_actions=int(facts.num_actions),
      observations=[[list(map(int, spec.shape)), np.dtype(spec.dtype).name]
                    for spec in facts.observation_spec])


def difference(ours, theirs, us, them):
  """Says in a line how the agreement of another job differs; '' if not at all.

  Args:
    ours: The agreement of this end.
    theirs: What the other job sent in its place, anything that JSON can hold.
    us: What this end is called.
    them: What the other job is called.
  """
  if not isinstance(theirs, dict):
    return f'{them} says nothing of its settings'
  for name, value in ours.items():
    if theirs.get(name) != value:
      return (f'{_NAMES.get(name, f"--{name}")} is {quote(value)} at {us}, '
              f'{quote(theirs.get(name))} at {them}')
  return ''


def quote(value):
  """Shows a value that came from outside: one line of ASCII, not too long."""
  try:
    return json.dumps(value)[:_MAX_QUOTED]
  except RecursionError:
    return '[...]'
