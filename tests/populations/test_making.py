"""A population is made of plain values, without flags."""

import os

import pytest

from scalable_agent import config as config_lib
from scalable_agent.populations import making
from scalable_agent.populations import settings as settings_lib

_SETTINGS = settings_lib.Settings(1000, 5, ['0', '500'], ['learning_rate'])


def _make(logdir, *rates, shares_replay=False, **given):
  plan = making.Plan(
      str(logdir), dict(given, level_name='gym:CartPole-v1'),
      ['--level_name=gym:CartPole-v1'], 2, 60., shares_replay)
  return making.make(
      plan, config_lib.resolve(plan.given), _SETTINGS,
      [dict(learning_rate=rate) for rate in rates], len)


def _commands(population):
  for member in population.members:
    os.makedirs(member.run.logdir)
    yield member.run._prepare()


def test_members_start_as_they_are_told(tmp_path):
  population, configs = _make(tmp_path, .1, .2, seed=3)
  assert [(config.learning_rate, config.seed) for config in configs] == [
      (.1, 3), (.2, 1003)]
  for command, config in zip(_commands(population), configs, strict=True):
    assert {f'--learning_rate={config.learning_rate}', f'--seed={config.seed}',
            f'--logdir={config.logdir}', '--level_name=gym:CartPole-v1',
            '--learning_rate_schedule=constant'} <= set(command)
  assert [config.learning_rate_schedule for config in configs] == [
      'constant'] * 2


def test_a_schedule_that_was_given_stays(tmp_path):
  population, configs = _make(
      tmp_path, .1, .2, learning_rate_schedule='linear')
  assert configs[0].learning_rate_schedule == 'linear'
  assert not any(
      argument.startswith('--learning_rate_schedule')
      for command in _commands(population) for argument in command)


def test_members_that_share_replay_have_one_host(tmp_path):
  _, configs = _make(
      tmp_path, .1, .2, shares_replay=True, replay_proportion=.5)
  (host,) = {config.replay_host for config in configs}
  assert host.startswith('localhost:')


def test_another_size_is_another_population(tmp_path):
  _make(tmp_path, .1, .2)
  _make(tmp_path, .1, .2)
  with pytest.raises(config_lib.ConfigError, match='of another size, or with'):
    _make(tmp_path, .1, .2, .3)
