"""Levels of DeepMind Lab beyond DMLab-30, with the strict fake engine."""

import importlib.util
import pathlib
import sys

import pytest

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.environments import PoolError

pytestmark = pytest.mark.usefixtures('bounded')

_FAKE = str(pathlib.Path(__file__).resolve().parents[1] / 'environments' /
            'fake_deepmind_lab')
_HAS_REAL = importlib.util.find_spec('deepmind_lab') is not None


@pytest.fixture
def fake(monkeypatch):
  """Has this process, and those that it starts, import the fake."""
  monkeypatch.syspath_prepend(_FAKE)
  yield
  sys.modules.pop('deepmind_lab', None)


def _make_pool(level_name, **values):
  config = config_lib.resolve(dict(
      level_name=level_name, num_actors=1, width=8, height=4, **values))
  (pool,) = suites.make_pools(config, suites.choose_layout(config, 1), seed=1)
  return pool


def test_a_level_that_the_engine_knows_is_played(fake):
  pool = _make_pool('demos/extra_entities')
  try:
    assert pool.level_names == ['demos/extra_entities']
    assert pool.recv().step_output.observation[0].shape == (1, 4, 8, 3)
  finally:
    pool.close()


@pytest.mark.parametrize('level_name', [
    'my_level', 'my_levels/pogn', 'CartPole-v1', 'ALE/Pong-v5'])
def test_what_the_engine_does_not_know_is_said_in_its_words(fake, level_name):
  with pytest.raises(PoolError, match=f'^{level_name}: Invalid levelName flag '
                     ) as caught:
    _make_pool(level_name)
  assert '\n' not in str(caught.value)


@pytest.mark.skipif(_HAS_REAL, reason='There is a module deepmind_lab.')
@pytest.mark.parametrize('mode', ['train', 'test'])
@pytest.mark.parametrize('level_name, nearest', [
    ('CartPole-v1', None), ('bongo', 'boxing, pong, bowling'),
    ('demos/extra_entities', None)])
def test_without_an_engine_a_name_may_mean_something_else(
    mode, level_name, nearest):
  config = config_lib.resolve(dict(level_name=level_name, mode=mode))
  with pytest.raises(PoolError) as caught:
    if mode == 'test':
      suites.find_facts(config)
    else:
      suites.make_pools(config, suites.choose_layout(config, 1), seed=1)
  message = str(caught.value)
  assert message.startswith(f'{level_name} needs DeepMind Lab, ')
  assert 'It is no Atari game' in message and 'gym:<id>' in message
  assert '\n' not in message
  assert ('(the nearest: ' in message) == (nearest is not None)
  if nearest:
    assert nearest in message


@pytest.mark.skipif(_HAS_REAL, reason='There is a module deepmind_lab.')
@pytest.mark.parametrize('level_name', [
    'rooms_watermaze', 'contributed/dmlab30/rooms_watermaze'])
def test_without_an_engine_a_level_of_dmlab30_means_itself(level_name):
  with pytest.raises(PoolError) as caught:
    _make_pool(level_name)
  assert 'DeepMind Lab' in str(caught.value)
  assert 'Atari' not in str(caught.value)


@pytest.mark.parametrize('level_name', ['my_level', 'demos/extra_entities'])
def test_a_learner_whose_actors_are_elsewhere_needs_no_engine(level_name):
  facts = suites.find_facts(config_lib.resolve(
      dict(level_name=level_name, task=0, height=4, width=8)))
  assert facts.num_actions == 9
  assert facts.observation_spec[0].shape == (4, 8, 3)
