"""Hyperparameters that are drawn from ranges, such as those of Table D.1.

    ranges = [parse('learning_rate=5e-6:5e-3', parse_value), ...]
    samples = draw(ranges, count=24, seed=1)
"""

import collections
import math

import numpy as np

from scalable_agent import config as config_lib

# The paper's Table D.1, for sweeps and for the members of a population.
TABLE_D1 = ('entropy_cost=5e-5:1e-2', 'learning_rate=5e-6:5e-3',
            'epsilon=1e-1,1e-3,1e-5,1e-7')

Range = collections.namedtuple('Range', 'name low high choices')
Range.__doc__ = """What a setting is drawn from.

  name: The setting's.
  low, high: The ends of a log-uniform distribution, None where there are
    `choices`.
  choices: A list of values that are equally likely, None where there are ends.
"""


def parse(text, parse_value):
  """Reads a range.

  Args:
    text: `name=low:high`, which is log-uniform, or `name=value,value,...`.
    parse_value: A function of a setting's name and a text that returns the
      setting's value, or raises ConfigError.

  Returns:
    A `Range`.

  Raises:
    ConfigError: It is none, or it is empty.
  """
  name, separator, values = text.partition('=')
  if not separator or not values:
    raise config_lib.refusal(
        'range', text, 'it is empty. Expected name=low:high or '
        'name=value,value')
  if ':' not in values:
    choices = [parse_value(name, value) for value in values.split(',')]
    if any(choices.count(choice) > 1 for choice in choices):
      raise config_lib.refusal('range', text, 'it names a value twice')
    return Range(name, None, None, choices)
  ends = [parse_value(name, value) for value in values.split(':')]
  if len(ends) != 2 or not all(isinstance(end, float) for end in ends):
    raise config_lib.refusal(
        'range', text, 'only numbers that need not be whole have a range '
        'low:high. List the values of others, as in name=1,2')
  low, high = ends
  if not (0 < low < high and math.isfinite(high)):
    raise config_lib.refusal(
        'range', text, 'it is empty. Expected 0 < low < high')
  return Range(name, low, high, None)


def parse_all(texts, parse_value):
  """Reads ranges as `parse` does; refuses two of one setting."""
  ranges = [parse(text, parse_value) for text in texts]
  names = [each.name for each in ranges]
  for name, text in zip(names, texts):
    if names.count(name) > 1:
      raise config_lib.refusal('range', text, f'{name} has another range too')
  return ranges


def draw(ranges, count, seed):
  """Draws samples.

  With a larger `count`, the first samples are the same. The values of one
  setting do not depend on the ranges of the others.

  Args:
    ranges: A list of `Range`s.
    count: How many samples.
    seed: Whole number from 0.

  Returns:
    A list of `count` dicts of name to value.
  """
  columns = {}
  for each in ranges:
    rng = np.random.default_rng([seed, *each.name.encode()])
    uniform = rng.random(count)
    if each.choices is None:
      columns[each.name] = [
          each.low * (each.high / each.low) ** float(u) for u in uniform]
    else:
      columns[each.name] = [
          each.choices[int(u * len(each.choices))] for u in uniform]
  return [{name: column[i] for name, column in columns.items()}
          for i in range(count)]
