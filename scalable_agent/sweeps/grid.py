"""The trials of a sweep: every variant with every sample and every seed.

    factors = [parse_vary('policy_lag=0,10', parse_value)]
    trials = combine(factors, samples, seeds=[1, 2])

A factor is a list of alternatives, each a dict of settings that go together. A
variant takes one alternative of every factor.
"""

import collections
import itertools

from scalable_agent import config as config_lib
from scalable_agent.files import file_names

# Settings that say where a run is kept and which job it is.
FIXED = ('logdir', 'mode', 'task', 'job_name', 'learner_hosts',
         'collective_hosts', 'replay_host')

Trial = collections.namedtuple(
    'Trial', 'name variant sample seed sweep_seed', defaults=[None])
Trial.__doc__ = """One run of a sweep.

  name: Of the run, and of its directory below that of the sweep.
  variant: A list of dicts of setting to value, one of each factor.
  sample: A dict of setting to value, empty if nothing is drawn.
  seed: The value of --seed, None to leave it.
  sweep_seed: That of the sweep, where each of its runs has a seed of its own;
    else None.
"""


def settings_of(trial):
  """Returns all that a `Trial` sets, a dict of name to value."""
  settings = {}
  for alternative in trial.variant:
    settings.update(alternative)
  settings.update(trial.sample)
  if trial.seed is not None:
    settings['seed'] = trial.seed
  return settings


def parse_vary(text, parse_value):
  """Reads the values that one setting takes.

  Args:
    text: `name=value,value,...`.
    parse_value: A function of a setting's name and a text that returns the
      setting's value, or raises ConfigError.

  Returns:
    A factor.

  Raises:
    ConfigError: It is none.
  """
  name, separator, values = text.partition('=')
  if not separator or not values:
    raise config_lib.refusal(
        'vary', text, 'it is empty. Expected name=value,value')
  factor = [{name: parse_value(name, value)} for value in values.split(',')]
  if any(factor.count(alternative) > 1 for alternative in factor):
    raise config_lib.refusal('vary', text, 'it names a value twice')
  return factor


def parse_variants(texts, parse_value):
  """Reads alternatives of several settings each.

  Args:
    texts: A list of `name=value name=value ...`.
    parse_value: As in `parse_vary`.

  Returns:
    A factor.

  Raises:
    ConfigError: One is none, or two are equal.
  """
  factor = []
  for text in texts:
    alternative = {}
    for word in text.split():
      name, separator, value = word.partition('=')
      if not separator or name in alternative:
        raise config_lib.refusal(
            'variant', repr(text),
            'expected name=value name=value, with each name once')
      alternative[name] = parse_value(name, value)
    if not alternative or alternative in factor:
      raise config_lib.refusal(
          'variant', repr(text),
          'another one is equal' if alternative else 'it is empty')
    factor.append(alternative)
  return factor


def check_names(factors, drawn, given):
  """Refuses settings that are set twice, or that no sweep can vary.

  Args:
    factors: A list of factors.
    drawn: Names of what the samples set.
    given: Names of what the user set for all runs.

  Raises:
    ConfigError: There is such a setting.
  """
  named = [sorted({name for alternative in factor for name in alternative})
           for factor in factors] + [list(drawn)]
  counts = collections.Counter(itertools.chain(*named))
  for name, count in counts.items():
    if name == 'seed':
      raise config_lib.ConfigError(
          'seed cannot be varied as other settings are: a report would compare '
          'seeds. Give --seeds, and with --seed the first of them.')
    if name in FIXED:
      raise config_lib.ConfigError(f'{name} cannot be varied by a sweep.')
    if count > 1:
      raise config_lib.ConfigError(
          f'{name} is varied twice: --vary, --variant and --range have to name '
          'different settings.')
    if name in given:
      raise config_lib.ConfigError(
          f'--{name} is given for all runs, and the sweep sets it for each '
          '(--vary, --variant; --samples with --range, by default Table D.1). '
          'Leave one out.')


def _named(name, value):
  text = file_names.of_level(str(value))
  # The name of a level needs no `level_name=` before it.
  return text if name == 'level_name' else f'{name}={text}'


def combine(factors, samples=(), seeds=()):
  """Returns the trials, a list of `Trial`s.

  All variants of the first seed and sample come first, so that a sweep that is
  not finished has comparable runs.

  Args:
    factors: A list of factors.
    samples: A list of dicts of setting to value, the same for every variant.
    seeds: A list of values of --seed.

  Raises:
    ConfigError: Two trials would have the same directory.
  """
  trials = []
  for seed, (i, sample), variant in itertools.product(
      seeds or [None], enumerate(samples) if samples else [(None, {})],
      itertools.product(*factors)):
    parts = [_named(name, value) for alternative in variant
             for name, value in alternative.items()]
    parts += [] if i is None else [f'sample={i:02d}']
    parts += [] if seed is None else [f'seed={seed}']
    trials.append(Trial('_'.join(parts), list(variant), sample, seed))
  counts = collections.Counter(trial.name for trial in trials)
  for name, count in counts.items():
    if count > 1:
      raise config_lib.ConfigError(
          f'{count} runs would have the directory {name}. Give values whose '
          'letters, digits, dots and hyphens differ.')
  return trials
