"""The 57 Atari games, one at a time or all of them as `atari57`."""

import collections
import functools

import numpy as np

from scalable_agent import atari57
from scalable_agent import frame_stacks
from scalable_agent.environments.pools import shown_pool
from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites.suite import Suite

_ALL = 'atari57'

# Table G.1.
_DEFAULTS = dict(
    width=84, height=84, num_action_repeats=4, unroll_length=20, batch_size=32,
    learning_rate=0.0006, epsilon=0.01, entropy_cost=0.01,
    gradient_norm_clip=40., reward_clipping='abs_one',
    total_environment_frames=200_000_000, network='shallow', use_lstm=False)
# On top of that, the multi-task agent has the deep network and all actions
# (Appendix G), and 200 million frames of each game (section 5.3.2). The paper
# has no fixed learning rate, entropy cost, epsilon and norm clip for it: a
# population adapts them. A single agent keeps the experts'.
_DEFAULTS_OF_ALL = dict(
    _DEFAULTS, network='deep', full_action_set=True,
    total_environment_frames=11_400_000_000)

# The population's fitness is the capped mean (Appendix G), Table 4 has medians.
_SCORES_OF_ALL = {
    'median_human_normalized_score': functools.partial(
        atari57.compute_human_normalized_score, statistic=np.median),
    'capped_human_normalized_score': functools.partial(
        atari57.compute_human_normalized_score, per_level_cap=100),
    'mean_human_normalized_score': atari57.compute_human_normalized_score,
}


def _levels(level_name, unused_is_test):
  return list(atari57.GAMES) if level_name == _ALL else [level_name]


def _refuse(config):
  if config.level_name != _ALL:
    return None
  if not config.full_action_set:
    return ('full_action_set', 'one policy plays all games of atari57, whose '
            'own action sets differ')
  return layout_lib.refuse_too_few(config, len(atari57.GAMES), 'games')


def _num_workers(size, num_levels, wanted, num_cores):
  if num_levels > 1:
    return min(size, num_levels)  # Each game has a thread of its own.
  return wanted or num_cores


def _make_pool(config, levels, layout, seed):
  from scalable_agent.environments.engines import atari
  from scalable_agent.environments.pools import composite_pool
  make = functools.partial(
      atari.AtariPool,
      num_action_repeats=config.num_action_repeats,
      width=config.width,
      height=config.height,
      frame_stack=config.frame_stack,
      full_action_set=config.full_action_set)
  sizes = collections.Counter(levels)
  if len(sizes) == 1:
    return make(levels[0], layout.size, seed,
                batch_size=layout.maximum_batch_size,
                num_threads=layout.num_workers)
  members = []
  for level, size in sizes.items():
    members.append(make(level, size, seed, num_threads=1))
    seed += size
  return composite_pool.CompositePool(members, layout.maximum_batch_size)


def _find_actions(config):
  from scalable_agent.environments.engines import atari
  if config.level_name == _ALL:
    return atari.find_actions(atari57.GAMES[0], full_action_set=True)
  return atari.find_actions(config.level_name, config.full_action_set)


def _make_shown_pool(config, seed):
  from scalable_agent.environments.engines import atari
  make = functools.partial(
      atari.AtariPool, config.level_name, 1, seed, num_threads=1,
      num_action_repeats=config.num_action_repeats,
      full_action_set=config.full_action_set)
  return shown_pool.ShownPool(
      make(width=config.width, height=config.height,
           frame_stack=config.frame_stack),
      make(width=atari.SCREEN_WIDTH, height=atari.SCREEN_HEIGHT, colour=True))


SUITE = Suite(
    name='atari',
    names=(_ALL,) + atari57.GAMES,
    has=lambda level_name: level_name == _ALL or level_name in atari57.GAMES,
    levels=_levels,
    defaults=lambda name: _DEFAULTS_OF_ALL if name == _ALL else _DEFAULTS,
    adapted=(*Suite.adapted, 'gradient_norm_clip'),
    scores=lambda name: _SCORES_OF_ALL if name == _ALL else {},
    refuse=_refuse,
    has_fixed_batches=True,
    has_stacked_frames=lambda config: config.frame_stack == frame_stacks.STACK,
    num_workers=_num_workers,
    make_pool=_make_pool,
    find_actions=_find_actions,
    make_shown_pool=_make_shown_pool)
