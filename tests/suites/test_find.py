"""Which suite has a level, by its name alone."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent import suites
from scalable_agent.suites import atari


@pytest.mark.parametrize('level_name, suite', [
    ('pong', 'atari'),
    ('space_invaders', 'atari'),
    ('atari57', 'atari'),
    ('gym:CartPole-v1', 'gym'),
    ('gym:pong', 'gym'),
    ('gym:my.module:Name-v0', 'gym'),
    ('synthetic:', 'synthetic'),
    ('synthetic:step_ms=5,std=0.5', 'synthetic'),
    ('explore_goal_locations_small', 'dmlab'),
    ('dmlab30', 'dmlab'),
    ('psychlab_visual_search', 'dmlab'),
    ('contributed/dmlab30/rooms_watermaze', 'dmlab'),
    # Those of the engine beside DMLab-30, and users' own.
    ('seekavoid_arena_01', 'dmlab'),
    ('stairway_to_melon', 'dmlab'),
    ('lt_space_bounce_hard', 'dmlab'),
    ('nav_maze_static_01', 'dmlab'),
    ('demos/extra_entities', 'dmlab'),
    ('contributed/psychlab/harlow', 'dmlab'),
    ('my_levels/pogn', 'dmlab'),
    ('my_level', 'dmlab'),
    # Like levels of DMLab-30, but who has the engine may have these too.
    ('explore_object_rewards_none', 'dmlab'),
    ('lasertag_one_opponent_medium', 'dmlab'),
    ('explore_goal_locations', 'dmlab'),
    ('rooms_watermase', 'dmlab'),
])
def test_find(level_name, suite):
  assert suites.find(level_name).name == suite


def test_every_name_that_is_offered_is_its_suites():
  assert len(atari57.GAMES) == 57
  assert {suites.find(game).name for game in atari57.GAMES} == {'atari'}
  assert {suites.find(level).name for level in dmlab30.ALL_LEVELS} == {'dmlab'}
  for suite in suites.SUITES:
    for name in suite.names:
      assert suites.find(name) is suite


@pytest.mark.parametrize('typo, meant', [
    ('pogn', 'pong'), ('Pong', 'pong'), ('SpaceInvaders', 'space_invaders'),
    ('space-invaders', 'space_invaders'), ('montezumas_revenge',
                                           'montezuma_revenge'),
    ('atari-57', 'atari57'), ('dmlab-30', 'dmlab30'), ('PONG', 'pong'),
    ('DMLAB30', 'dmlab30'), ('ATARI57', 'atari57'),
    ('PongNoFrameskip-v4', 'pong'), ('Pong-v5', 'pong'), ('pong-v5', 'pong'),
    ('CartPole-v1', 'gym:CartPole-v1'),
    ('gymCartPole-v1', 'gym:CartPole-v1')])
def test_a_name_that_is_nearly_a_known_one_is_a_mistake(typo, meant):
  with pytest.raises(LookupError) as caught:
    suites.find(typo)
  assert f'Did you mean {meant}' in str(caught.value)
  # As the name of a file of one's own it is none.
  assert f'my_levels/{typo}' in str(caught.value)
  assert suites.find(f'my_levels/{typo}').name == 'dmlab'


def test_no_name_at_all():
  with pytest.raises(LookupError, match='Expected an Atari game .* gym:<id>'):
    suites.find('')


@pytest.mark.parametrize('name', ['dmlab30', *atari.SUITE.names])
def test_a_known_name_without_one_of_its_letters_is_a_mistake(name):
  for i in range(len(name)):
    with pytest.raises(LookupError, match=rf'Did you mean .*\b{name}\b'):
      suites.find(name[:i] + name[i + 1:])


@given(st.text(max_size=20))
def test_a_prefix_or_a_folder_decides_whatever_comes_after_it(text):
  assert suites.find('gym:' + text).name == 'gym'
  assert suites.find('synthetic:' + text).name == 'synthetic'
  assert suites.find('my_levels/' + text).name == 'dmlab'


_OF_KNOWN_NAMES = {
    c for suite in suites.SUITES for name in suite.names for c in name}


@given(st.text(st.characters().filter(
    lambda c: _OF_KNOWN_NAMES.isdisjoint(c.casefold())), min_size=1))
def test_a_name_that_is_like_no_other_is_a_users_own(level_name):
  assert suites.find(level_name).name == 'dmlab'
