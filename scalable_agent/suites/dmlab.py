"""DeepMind Lab: any level that the engine knows, and `dmlab30`, the suite."""

import difflib
import functools

from scalable_agent import atari57
from scalable_agent import dmlab30
from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites.suite import Facts
from scalable_agent.suites.suite import Suite

_ALL = 'dmlab30'

# Other levels have the flags' own defaults, those of the released code.
# Table D.3: every agent on levels of DMLab-30 clips rewards like this.
_DEFAULTS_OF_MEMBERS = dict(reward_clipping='soft_asymmetric')
# One environment for each level.
_DEFAULTS_OF_ALL = dict(_DEFAULTS_OF_MEMBERS, num_actors=30)

_SCORES_OF_ALL = {
    'capped_human_normalized_score': functools.partial(
        dmlab30.compute_human_normalized_score, per_level_cap=100),
    'mean_human_normalized_score': dmlab30.compute_human_normalized_score,
}


def _is_member(level_name):
  """Whether a level, under its short or its long name, is of DMLab-30."""
  return level_name.removeprefix(dmlab30.LEVEL_PREFIX) in dmlab30.ALL_LEVELS


def _levels(level_name, is_test):
  from scalable_agent.environments import dmlab
  names = (list(dmlab30.LEVEL_MAPPING) if level_name == _ALL else
           [dmlab.short_name(level_name)])
  return [dmlab.test_twin(name) for name in names] if is_test else names


def _defaults(level_name):
  if level_name == _ALL:
    return _DEFAULTS_OF_ALL
  return _DEFAULTS_OF_MEMBERS if _is_member(level_name) else {}


def _refuse(config):
  num_levels = len(dmlab30.LEVEL_MAPPING)
  per_pool = config.num_actors // max(config.num_pools, 1)
  if (config.level_name == _ALL and config.task < 0 and
      config.mode == 'train' and per_pool < num_levels):
    return ('num_actors', f'dmlab30 needs one for each of {num_levels} levels, '
            'in each of --num_pools')
  return None


def _check_name(level_name):
  """Says, where no engine could know a level, what else its name may mean.

  Raises:
    PoolError: There is no engine, and the level is not of DMLab-30.
  """
  if level_name == _ALL or _is_member(level_name):
    return
  from scalable_agent import environments
  from scalable_agent.environments import dmlab
  try:
    dmlab.check_engine(level_name)
  except environments.PoolError as e:
    nearest = difflib.get_close_matches(
        level_name, ('atari57',) + atari57.GAMES, cutoff=.5)
    hint = f' (the nearest: {", ".join(nearest)})' if nearest else ''
    raise environments.PoolError(
        f'{e} It is no Atari game{hint}; an environment of Gymnasium is named '
        'gym:<id>, such as gym:CartPole-v1.') from e


def _find_facts(config):
  from scalable_agent.environments import dmlab
  # A learner needs no DeepMind Lab where others act.
  if config.mode == 'test':
    _check_name(config.level_name)
    dmlab.check(_levels(config.level_name, True), config.dataset_path)
  return Facts(dmlab.NUM_ACTIONS,
               dmlab.observation_spec(config.height, config.width))


def _make_pool(config, layout, seed):
  from scalable_agent.environments import dmlab
  is_test = config.mode == 'test'
  levels = _levels(config.level_name, is_test)
  _check_name(config.level_name)
  return dmlab.make_pool(
      [levels[i % len(levels)] for i in range(layout.size)], seed,
      config.height, config.width, config.num_action_repeats,
      config.dataset_path, config.level_cache_dir, is_test,
      **layout_lib.process_pool_options(layout))


SUITE = Suite(
    name='dmlab',
    names=(_ALL,) + tuple(sorted(dmlab30.ALL_LEVELS)),
    has=lambda level_name: (
        level_name == _ALL or '/' in level_name or _is_member(level_name)),
    levels=_levels,
    defaults=_defaults,
    scores=lambda level_name: _SCORES_OF_ALL if level_name == _ALL else {},
    refuse=_refuse,
    has_actors_by_cores=False,  # As released.
    num_workers=lambda size, unused_wanted, unused_num_cores: size,
    make_pool=_make_pool,
    find_facts=_find_facts)
