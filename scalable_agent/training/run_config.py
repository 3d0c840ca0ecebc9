"""Resolves settings; a run that is resumed keeps those of its `config.json`."""

import dataclasses
import json

from scalable_agent import config as config_lib
from scalable_agent.training import logdir as logdir_lib

# Settings that `config.resolve` derives from others unless the user gives them.
_CHOSEN = ('num_actors', 'queue_capacity', 'collective_hosts')


def resolve(values):
  """Makes a configuration; settings not given are those of the run in `logdir`.

  A process that neither writes nor reads the log directory, which may be
  another machine's, gets what `config.resolve` returns.

  Args:
    values: As for `config.resolve`.

  Returns:
    A `Config`.

  Raises:
    ConfigError: As `config.resolve`, or the run's configuration cannot be read,
      or what is given would make it another run.
  """
  config_lib.check_given(values)
  return config_lib.resolve({**_kept(values), **values})


def resolve_trial(values, may_differ=()):
  """Makes the configuration of one of many runs that have the same flags.

  As `resolve`, but refuses to resume a run that was begun as another agent or
  with another seed: a comparison would take both for one. A flag that the user
  left out this time counts as its default, which runs that begin now have.

  Args:
    values: As for `resolve`.
    may_differ: Names of settings of which a begun run may have other values.

  Returns:
    A `Config`.

  Raises:
    ConfigError: The run was begun otherwise; or as `resolve`.
  """
  config = resolve(values)
  found = logdir_lib.read_config(config.logdir, config.mode)
  if not found or config.mode != 'train':
    return config
  # What it lacks counts as equal.
  found = dict(dict(total_environment_frames=config.total_environment_frames,
                    seed=config.seed), **found)
  total = found['total_environment_frames']
  if isinstance(total, int):
    # Runs may become longer, if all do.
    found['total_environment_frames'] = max(
        total, config.total_environment_frames)
  # Through JSON, so that tuples compare as the lists they were written as.
  asked = json.loads(config_lib.resolve(values).to_json())
  was, now = (
      dict(config_lib.effective_values(content, config_lib.AGENT),
           seed=content['seed'])
      for content in (found, asked))
  for name in sorted(now.keys() - set(may_differ), key=_others_need_it):
    if was[name] != now[name]:
      declared = config_lib.SETTINGS[name]
      # What there is no flag for says which flags it follows from.
      dashes, hint = (('', f' {name}: {declared.help}')
                      if declared.is_derived else ('--', ''))
      raise config_lib.ConfigError(
          f'{dashes}{name}={now[name]} cannot work: {config.logdir} was begun '
          f'with {was[name]}. All runs have the same flags, but for what '
          'varies. Give those of the first start, or choose another --logdir.'
          f'{hint}')
  return config


def _others_need_it(name):
  """Orders names: what makes others count first, else by the alphabet."""
  declared = config_lib.SETTINGS.values()
  return (name != 'agent', all(name != other.needs and
                               name not in other.only_with
                               for other in declared), name)


def _kept(values):
  """Returns the settings that the run in `logdir` keeps, a dict."""
  value_of = lambda name: values.get(name, config_lib.SETTINGS[name].default)
  mode, task = value_of('mode'), value_of('task')
  job_name = value_of('job_name')
  is_first_learner = task <= 0 and job_name != 'replay' and (
      task < 0 or job_name == 'learner')
  if mode == 'check' or mode == 'train' and not is_first_learner:
    return {}
  logdir = value_of('logdir')
  found = logdir_lib.read_config(logdir, mode)
  logdir_lib.refuse_another(logdir, found, values, logdir_lib.IDENTITY)
  agent = found.get('agent', config_lib.SETTINGS['agent'].default)
  kept = {name: found[name] for name in config_lib.names_kept(mode)
          if name in found and
          config_lib.SETTINGS[name].agent in (None, agent)}
  chosen = _chosen_names(kept) if kept else ()
  return {name: value for name, value in kept.items() if name not in chosen}


def _chosen_names(kept):
  """Returns the names of settings that nobody gave, to derive them anew."""
  rest = {name: value for name, value in kept.items() if name not in _CHOSEN}
  try:
    chosen = dataclasses.asdict(config_lib.resolve(rest))
  except config_lib.ConfigError:
    return []  # One of them must have been given.
  return [name for name in _CHOSEN if kept.get(name) == chosen[name]]
