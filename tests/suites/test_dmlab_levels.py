"""Levels of DeepMind Lab beyond DMLab-30, with the strict fake engine."""

import logging
import pathlib
import sys

import pytest

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.environments import PoolError

pytestmark = pytest.mark.usefixtures('bounded')

_FAKE = str(pathlib.Path(__file__).resolve().parents[1] / 'environments' /
            'fake_deepmind_lab')


@pytest.fixture
def fake(monkeypatch):
  """Has this process, and those that it starts, import the fake."""
  monkeypatch.syspath_prepend(_FAKE)
  yield
  sys.modules.pop('deepmind_lab', None)


@pytest.fixture
def no_engine(monkeypatch):
  """Has this process find no engine."""
  monkeypatch.setitem(sys.modules, 'deepmind_lab', None)


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
    'my_level', 'my_levels/pogn', 'ALE/Pong-v5'])
def test_what_the_engine_does_not_know_is_said_in_its_words(fake, level_name):
  with pytest.raises(PoolError, match=f'^{level_name}: Invalid levelName flag '
                     ) as caught:
    _make_pool(level_name)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('level_name', [
    'explore_object_rewards_none', 'lasertag_one_opponent_medium',
    'explore_goal_locations'])
def test_a_name_like_one_of_dmlab30_is_for_the_engine_to_answer(
    fake, level_name):
  with pytest.raises(PoolError, match=f'^{level_name}: Invalid levelName flag'
                     ) as caught:
    _make_pool(level_name)
  assert 'none of the known names (the nearest: ' in str(caught.value)
  assert 'gym:<id>' in str(caught.value)


@pytest.mark.parametrize('job', [
    dict(), dict(mode='test'), dict(mode='test', task=0),
    dict(task=0, job_name='actor')])
@pytest.mark.parametrize('level_name, nearest', [
    ('LT_chasm', 'lt_chasm'), ('CartPole', 'gym:CartPole-v1'),
    ('foo', ''), ('bongo', 'boxing, pong, bowling'), ('lt_chasms', 'lt_chasm'),
    ('explore_goal_locations', 'explore_goal_locations_small, '
     'explore_goal_locations_large')])
def test_without_an_engine_an_unknown_level_is_refused_with_the_flags(
    no_engine, job, level_name, nearest):
  """By every job that has to make environments."""
  with pytest.raises(config_lib.ConfigError) as caught:
    config_lib.resolve(dict(job, level_name=level_name))
  message = str(caught.value)
  assert message.startswith(
      f'--level_name={level_name} cannot work: it is no known level')
  assert 'gym:<id>' in message and 'Python module deepmind_lab' in message
  assert '\n' not in message
  assert f'(the nearest: {nearest}' in message


@pytest.mark.parametrize('mode', ['train', 'test'])
@pytest.mark.parametrize('level_name', ['demos/extra_entities', 'ALE/Pong-v5'])
def test_without_an_engine_a_name_with_a_folder_may_mean_something_else(
    no_engine, mode, level_name):
  with pytest.raises(PoolError) as caught:
    _make_environment(level_name, mode)
  message = str(caught.value)
  assert message.startswith(f'{level_name} needs DeepMind Lab, ')
  assert 'gym:<id>' in message and '\n' not in message


@pytest.mark.parametrize('mode', ['train', 'test'])
@pytest.mark.parametrize('level_name, nearest', [
    ('contributed/dmlab30/rooms_watermase', ' (the nearest: rooms_watermaze)'),
    ('contributed/dmlab3/rooms_watermaze', ' (the nearest: rooms_watermaze)'),
    ('MinAtar/Breakout-v1', ' (the nearest: gym:MinAtar/Breakout-v1)'),
    ('demos/extra_entities', ' (the nearest: ')])
def test_without_an_engine_a_name_with_a_folder_has_its_nearest_named(
    no_engine, mode, level_name, nearest):
  with pytest.raises(PoolError) as caught:
    _make_environment(level_name, mode)
  assert f' {level_name} is no known level{nearest}' in str(caught.value)


@pytest.mark.parametrize('mode', ['train', 'test'])
@pytest.mark.parametrize('level_name', [
    'rooms_watermaze', 'contributed/dmlab30/rooms_watermaze',
    'nav_maze_static_01', 'dmlab30'])
def test_without_an_engine_a_known_level_means_itself(
    no_engine, mode, level_name):
  with pytest.raises(PoolError) as caught:
    _make_environment(level_name, mode)
  assert 'DeepMind Lab' in str(caught.value)
  assert 'gym:' not in str(caught.value)


def _make_environment(level_name, mode):
  config = config_lib.resolve(dict(level_name=level_name, mode=mode))
  if mode == 'test':
    suites.find_facts(config)
  else:
    suites.make_pools(config, suites.choose_layout(config, 1), seed=1)


@pytest.mark.parametrize('level_name, warned', [
    ('my_level', ' (the nearest: '),
    ('rooms_watermase', ' (the nearest: rooms_watermaze, '),
    ('demos/extra_entities', None), ('rooms_watermaze', None),
    ('seekavoid_arena_01', None), ('dmlab30', None)])
def test_a_learner_whose_actors_are_elsewhere_needs_no_engine(
    no_engine, caplog, level_name, warned):
  with caplog.at_level(logging.INFO, logger='absl'):
    facts = suites.find_facts(config_lib.resolve(
        dict(level_name=level_name, task=0, height=4, width=8)))
  assert facts.num_actions == 9
  assert facts.observation_spec[0].shape == (4, 8, 3)
  if warned is None:
    assert not caplog.messages
  else:
    (message,) = caplog.messages
    assert message.startswith(
        f'--level_name={level_name} is no known level{warned}')
    assert message.endswith(
        ', and is taken for one of DeepMind Lab; the actor jobs will tell.')
