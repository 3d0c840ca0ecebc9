"""DeepMind Lab: any level that the engine knows, and `dmlab30`, the suite."""

import difflib
import functools

from scalable_agent import dmlab30
from scalable_agent.environments.engines import gym_ids
from scalable_agent.suites import atari
from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites.suite import Facts
from scalable_agent.suites.suite import Suite

_ALL = 'dmlab30'
# Those of the engine that are in no folder.
_WITHOUT_FOLDER = (
    'lt_chasm', 'lt_hallway_slope', 'lt_horseshoe_color',
    'lt_space_bounce_hard', 'nav_maze_random_goal_01',
    'nav_maze_random_goal_02', 'nav_maze_random_goal_03', 'nav_maze_static_01',
    'nav_maze_static_02', 'nav_maze_static_03', 'seekavoid_arena_01',
    'stairway_to_melon')

_ABOUT_GYM = ('An environment of Gymnasium is named gym:<id>, such as '
              'gym:CartPole-v1')

# Other levels have the flags' own defaults, those of the released code.
# Table D.3's for agents on DMLab-30 and its experts, one for each level. Those
# of the paper's single tasks (section 5.2) clip to [-1, 1]: abs_one.
_DEFAULTS_OF_MEMBERS = dict(reward_clipping='soft_asymmetric')
# One environment for each level.
_DEFAULTS_OF_ALL = dict(_DEFAULTS_OF_MEMBERS, num_actors=30)

_SCORES_OF_ALL = {
    'capped_human_normalized_score': functools.partial(
        dmlab30.compute_human_normalized_score, per_level_cap=100),
    'mean_human_normalized_score': dmlab30.compute_human_normalized_score,
}
_RELEASED_NAMES_OF_ALL = {
    'capped_human_normalized_score': 'dmlab30/training_cap_100',
    'mean_human_normalized_score': 'dmlab30/training_no_cap',
}


def _is_member(level_name):
  """Whether a level, under its short or its long name, is of DMLab-30."""
  return level_name.removeprefix(dmlab30.LEVEL_PREFIX) in dmlab30.ALL_LEVELS


def _has(level_name):
  """Whether a level is known, or has a folder, as only DeepMind Lab's have."""
  return (level_name == _ALL or '/' in level_name or _is_member(level_name) or
          level_name in _WITHOUT_FOLDER)


def _levels(level_name, is_test):
  from scalable_agent.environments.engines import dmlab
  names = (list(dmlab30.LEVEL_MAPPING) if level_name == _ALL else
           [dmlab.short_name(level_name)])
  return [dmlab.test_twin(name) for name in names] if is_test else names


def _defaults(level_name):
  if level_name == _ALL:
    return _DEFAULTS_OF_ALL
  return _DEFAULTS_OF_MEMBERS if _is_member(level_name) else {}


def _refuse(config):
  if config.level_name == _ALL:
    return layout_lib.refuse_too_few(
        config, len(dmlab30.LEVEL_MAPPING), 'levels')
  if _has(config.level_name) or not config.makes_environments:
    return None
  # Whether there is such a level, the engine alone can tell.
  from scalable_agent import environments
  from scalable_agent.environments.engines import dmlab
  try:
    dmlab.check_engine('any other level')
  except environments.PoolError as e:
    return ('level_name', f'it is no known level{_nearest(config.level_name)}. '
            f'{_ABOUT_GYM}; ' + str(e).removesuffix('.'))
  return None


def _nearest(level_name):
  """Returns which known levels have the most similar names, in brackets."""
  if gym_ids.is_like_id(level_name):
    return f' (the nearest: gym:{level_name})'
  folder, _, short_name = level_name.casefold().rpartition('/')
  known = {name.casefold(): name for name in (
      *atari.SUITE.names, _ALL, *sorted(dmlab30.ALL_LEVELS), *_WITHOUT_FOLDER,
      *gym_ids.registered())}
  # A level of the user's own has a folder.
  nearest = difflib.get_close_matches(
      short_name, known, cutoff=.6 if folder else .5)
  nearest = nearest or difflib.get_close_matches(
      short_name, known, n=1, cutoff=0.)
  return f' (the nearest: {", ".join(known[name] for name in nearest)})'


def _check_folder(level_name):
  """Refuses a level in a folder if there is no engine.

  Raises:
    PoolError: `deepmind_lab` is missing. The message also says how levels of
      Gymnasium are named, since some of their ids look like a folder.
  """
  if '/' not in level_name or _is_member(level_name):
    return
  from scalable_agent import environments
  from scalable_agent.environments.engines import dmlab
  try:
    dmlab.check_engine(level_name)
  except environments.PoolError as e:
    raise environments.PoolError(
        f'{e} {level_name} is no known level{_nearest(level_name)}. '
        f'{_ABOUT_GYM}.') from e


def _find_facts(config):
  from scalable_agent.environments.engines import dmlab
  # A learner needs no DeepMind Lab where others act.
  if config.mode == 'test':
    _check_folder(config.level_name)
    dmlab.check(_levels(config.level_name, True), config.dataset_path)
  elif not _has(config.level_name):
    from absl import logging
    logging.warning(
        '--level_name=%s is no known level%s, and is taken for one of DeepMind '
        'Lab; the actor jobs will tell.', config.level_name,
        _nearest(config.level_name))
  return Facts(dmlab.NUM_ACTIONS,
               dmlab.observation_spec(config.height, config.width))


def _make_pool(config, levels, layout, seed):
  from scalable_agent import environments
  from scalable_agent.environments.engines import dmlab
  _check_folder(config.level_name)
  try:
    return dmlab.make_pool(
        levels, seed, config.height, config.width, config.num_action_repeats,
        config.dataset_path, config.runfiles_path, config.level_cache_dir,
        config.mode == 'test',
        **layout_lib.process_pool_options(config, layout))
  except environments.PoolError as e:
    if _has(config.level_name):
      raise
    raise environments.PoolError(
        f'{str(e).removesuffix(".")}. It is none of the known names'
        f'{_nearest(config.level_name)}. {_ABOUT_GYM}.') from e


def _find_actions(unused_config):
  from scalable_agent import environments
  return list(zip(environments.ACTION_MEANINGS,
                  environments.DEFAULT_ACTION_SET))


SUITE = Suite(
    name='dmlab',
    # A name like that of a level may be a user's own level.
    names=(_ALL,),
    has=_has,
    levels=_levels,
    defaults=_defaults,
    title='Other levels of DeepMind Lab',
    scores=lambda level_name: _SCORES_OF_ALL if level_name == _ALL else {},
    released_score_names=lambda level_name: (
        _RELEASED_NAMES_OF_ALL if level_name == _ALL else {}),
    refuse=_refuse,
    has_actors_by_cores=False,  # As released.
    num_workers=lambda size, *unused_others: size,
    make_pool=_make_pool,
    find_facts=_find_facts,
    find_actions=_find_actions)
