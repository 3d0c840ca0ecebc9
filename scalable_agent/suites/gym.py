"""Gymnasium's environments, and those that users register with it."""

from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites.suite import Suite

# Table G.1's optimisation on environments that need no Atari preprocessing.
_DEFAULTS = dict(
    num_action_repeats=1, unroll_length=20, batch_size=32, learning_rate=0.0006,
    epsilon=0.01, entropy_cost=0.01, gradient_norm_clip=40.,
    reward_clipping='none', total_environment_frames=10_000_000, network='auto',
    use_lstm=False)


def _make_pool(config, layout, seed):
  from scalable_agent.environments import gym
  return gym.make_pool(
      config.level_name, layout.size, seed, config.num_action_repeats,
      **layout_lib.process_pool_options(config, layout))


SUITE = Suite(
    name='gym',
    has=lambda level_name: level_name.startswith('gym:'),
    defaults=lambda level_name: _DEFAULTS,
    num_workers=lambda size, wanted, num_cores: min(wanted or num_cores, size),
    make_pool=_make_pool)
