"""Which runs are of one agent, what to call it, and how it was set."""

import collections
import os

from scalable_agent import config as config_lib
from scalable_agent.results import blocks
from scalable_agent.results import runs as runs_lib
from scalable_agent.results import tables

# Settings that make an agent what it is. The others are about the machine, or
# name the run.
SETTINGS = config_lib.names(config_lib.AGENT)

# The beginning of every name says these. An agent for a suite of games has all
# actions.
_IN_BASE = ('agent', 'use_lstm', 'full_action_set')


def settings_of(run):
  """Returns the settings that make an agent what it is.

  Args:
    run: A `runs.Run`.

  Returns:
    A dict of name to value, None for what made no difference. It is empty if
    the run has no configuration.
  """
  if not run.config:
    return {}
  return config_lib.effective_values(run.config, config_lib.AGENT)


def group(all_runs):
  """Puts the runs of an agent together.

  Two runs are of one agent if they differ in nothing but level, seed and what
  is about the machine. A run without a configuration is an agent of its own.

  Args:
    all_runs: A list of `runs.Run`s.

  Returns:
    A list of lists of `runs.Run`s, one for each agent.
  """
  found = collections.defaultdict(list)
  for run in all_runs:
    key = run.logdir
    if run.config:
      key = (*settings_of(run).items(), runs_lib.is_of_suite(run))
    found[key].append(run)
  return list(found.values())


def _observes_a_vector(run):
  match run.config.get('observation_shapes'):
    case [[_]]:
      return True
  return False


def _base(run):
  if not run.config:
    name = os.path.basename(os.path.normpath(run.logdir))
    # What is no text cannot be drawn.
    return os.fsencode(name).decode(errors='backslashreplace')
  settings = settings_of(run)
  network = settings['network'].rpartition(':')[2]
  is_chosen = network == 'auto'
  if settings['agent'] == 'reactor':
    # Never the agent's name alone, which is that of a published agent.
    parts = ['Reactor'] + ([] if is_chosen else [network]) + [
        'LSTM' if settings['use_lstm'] else 'no LSTM']
  else:
    if is_chosen:
      network = 'vector' if _observes_a_vector(run) else 'auto network'
    parts = [network] + (['LSTM'] if settings['use_lstm'] else [])
  if runs_lib.is_of_suite(run):
    parts.append('multi-task')
  return ', '.join(parts)


def _default(run, setting):
  try:
    defaults = config_lib.defaults(
        run.config.get('level_name') or '', settings_of(run)['agent'])
  except LookupError:
    defaults = {}
  return defaults.get(setting, config_lib.SETTINGS[setting].default)


def _part(run, name):
  """What a setting adds to a name: nothing if it is as if not set."""
  value = settings_of(run).get(name)
  if value is None or value == _default(run, name):
    return ''
  if name == 'total_environment_frames':
    return f', {tables.frames_text(value)}'
  if isinstance(value, bool):
    return f', {name}' if value else f', no {name}'
  return f', {name}={value:g}' if isinstance(value, float) else (
      f', {name}={value}')


def name(groups):
  """Gives agents the shortest names that tell them apart.

  A name says the network, and of the settings as few as it takes.

  Args:
    groups: Of `group`, those that are to be told apart.

  Returns:
    A dict of name to a list of `runs.Run`s.
  """
  firsts = [runs[0] for runs in groups]
  names = list(map(_base, firsts))
  algorithms = [settings_of(run).get('agent') for run in firsts]
  if 'reactor' in algorithms:
    names = [f'IMPALA, {text}' if algorithm == 'impala' else text
             for text, algorithm in zip(names, algorithms)]
  candidates = [setting for setting in SETTINGS if setting not in _IN_BASE]

  def extended(setting):
    counts = collections.Counter(names)
    return [text + _part(run, setting) if counts[text] > 1 else text
            for text, run in zip(names, firsts)]

  while len(set(names)) < len(names):
    # The first of those that tell the most agents apart.
    best = max(candidates, key=lambda setting: len(set(extended(setting))),
               default=None)
    if best is None or len(set(extended(best))) == len(set(names)):
      break
    candidates.remove(best)
    names = extended(best)
  counts = collections.Counter(names)
  return {text if counts[text] == 1 else f'{text} ({runs[0].logdir})': runs
          for text, runs in zip(names, groups)}


def _value_text(value):
  if value is None:
    return tables.MISSING
  return f'{value:g}' if isinstance(value, float) else str(value)


def settings_tables(agents):
  """Lays out the settings of agents.

  Args:
    agents: A dict of name to a list of `runs.Run`s.

  Returns:
    A list of `blocks.Table`s, none of which is empty: of the settings that
    differ, with a column for each agent, and of those that all share. What made
    no difference to any of them is in neither.
  """
  known = {text: settings_of(runs[0]) for text, runs in agents.items()
           if runs[0].config}
  differing, shared = [], []
  for setting in SETTINGS if known else ():
    texts = [_value_text(values[setting]) for values in known.values()]
    if len(set(texts)) > 1:
      differing.append([setting, *texts])
    elif texts[0] != tables.MISSING:
      shared.append([setting, texts[0]])
  found = [blocks.Table(['differs', *known], differing),
           blocks.Table(['setting', 'value'], shared)]
  return [table for table in found if table.rows]
