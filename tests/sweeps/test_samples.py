"""What is drawn from ranges."""

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.sweeps import samples


def _parse_value(name, text):
  try:
    return config_lib.SETTINGS[name].type(text)
  except (KeyError, ValueError) as e:
    raise config_lib.ConfigError(f'{name}={text}') from e


def _draw(count=24, seed=1, ranges=samples.TABLE_D1):
  return samples.draw(samples.parse_all(ranges, _parse_value), count, seed)


def _distance_from_uniform(values):
  """The statistic of Kolmogorov and Smirnov, for values in [0, 1]."""
  values = np.sort(values)
  steps = np.arange(len(values) + 1) / len(values)
  return max(np.max(steps[1:] - values), np.max(values - steps[:-1]))


@pytest.mark.parametrize('name, low, high', [
    ('entropy_cost', 5e-5, 1e-2), ('learning_rate', 5e-6, 5e-3)])
def test_numbers_are_log_uniform_over_the_published_ranges(name, low, high):
  values = np.array([sample[name] for sample in _draw(4000)])
  assert np.all((low <= values) & (values <= high))
  uniform = np.log(values / low) / np.log(high / low)
  # What a sample of a uniform distribution exceeds once in 10,000 times.
  assert _distance_from_uniform(uniform) < 2.23 / np.sqrt(4000)


def test_epsilon_is_one_of_four():
  values = np.array([sample['epsilon'] for sample in _draw(4000)])
  for choice in (1e-1, 1e-3, 1e-5, 1e-7):
    assert abs(np.mean(values == choice) - .25) < 4 * np.sqrt(.25 * .75 / 4000)


def test_hyperparameters_are_independent():
  columns = np.log(np.array([list(sample.values()) for sample in _draw(4000)]))
  correlations = np.corrcoef(columns.T)
  assert np.all(np.abs(correlations - np.eye(3)) < 4 / np.sqrt(4000))


def test_samples_are_fixed():
  """By their seed alone: not by their number, nor by the other ranges."""
  assert _draw() == _draw()
  assert _draw()[0] != _draw(seed=2)[0]
  assert _draw(10) == _draw()[:10]
  more = ('discounting=0.9,0.99', *reversed(samples.TABLE_D1))
  for sample, other in zip(_draw(), _draw(ranges=more)):
    assert sample.items() < other.items()


@pytest.mark.parametrize('text, reason', [
    ('learning_rate', 'is empty'), ('learning_rate=', 'is empty'),
    ('learning_rate=1e-3:1e-3', 'is empty'),
    ('learning_rate=1e-3:1e-4', 'is empty'),
    ('learning_rate=0:1', 'is empty'), ('learning_rate=1:inf', 'is empty'),
    ('learning_rate=nan:nan', 'is empty'),
    ('learning_rate=1:2:3', 'only numbers'),
    ('batch_size=8:16', 'only numbers'),
    ('epsilon=.1,1e-1', 'twice')])
def test_ranges_that_cannot_work_are_refused(text, reason):
  with pytest.raises(config_lib.ConfigError, match=reason) as error:
    samples.parse(text, _parse_value)
  assert str(error.value).startswith(f'--range={text} cannot work: ')


def test_two_ranges_of_one_setting_are_refused():
  with pytest.raises(config_lib.ConfigError, match='epsilon has another range'):
    samples.parse_all(['epsilon=.1', 'epsilon=.2'], _parse_value)
