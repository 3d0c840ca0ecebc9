"""Gymnasium's environments, and those that users register with it."""

from scalable_agent.environments.engines import gym
from scalable_agent.environments.engines import gym_actions
from scalable_agent.environments.engines import gym_ids
from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites.suite import Suite

# Table G.1's optimisation on environments that need no Atari preprocessing.
_DEFAULTS = dict(
    num_action_repeats=1, unroll_length=20, batch_size=32, learning_rate=0.0006,
    epsilon=0.01, entropy_cost=0.01, gradient_norm_clip=40.,
    reward_clipping='none', total_environment_frames=10_000_000, network='auto',
    use_lstm=False)
_DEFAULTS_OF_REACTOR = dict(replay_steps=100_000, replay_min_steps=1000)


def _defaults(level_name):
  if gym_ids.is_ale(level_name):
    return dict(_DEFAULTS, num_action_repeats=4)
  return _DEFAULTS


def _make_pool(config, unused_levels, layout, seed):
  return gym.make_pool(
      config.level_name, layout.size, seed, config.num_action_repeats,
      **layout_lib.process_pool_options(config, layout))


def _make_shown_pool(config, seed):
  return gym.make_pool(
      config.level_name, 1, seed, config.num_action_repeats, shows=True,
      **layout_lib.process_pool_options(config, layout_lib.ONE_ENVIRONMENT))


def _find_actions(config):
  return gym_actions.find_actions(
      config.level_name,
      **layout_lib.process_pool_options(config, layout_lib.ONE_ENVIRONMENT))


SUITE = Suite(
    name='gym',
    has=lambda level_name: level_name.startswith(gym_ids.PREFIX),
    defaults=_defaults,
    defaults_of_reactor=_DEFAULTS_OF_REACTOR,
    title='Gymnasium',
    num_workers=lambda size, unused_num_levels, wanted, num_cores: min(
        wanted or num_cores, size),
    make_pool=_make_pool,
    find_actions=_find_actions,
    make_shown_pool=_make_shown_pool)
