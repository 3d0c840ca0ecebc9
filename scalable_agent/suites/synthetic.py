"""Environments that do nothing but take time, for measuring everything else."""

from scalable_agent.suites import layout as layout_lib
from scalable_agent.suites.suite import Suite

# So that nothing but time matters.
_DEFAULTS = dict(
    num_action_repeats=1, unroll_length=20, batch_size=32, network='auto',
    use_lstm=False)


def _make_pool(config, unused_levels, layout, seed):
  from scalable_agent.environments.engines import synthetic
  return synthetic.make_pool(
      config.level_name, layout.size, seed, config.height, config.width,
      **layout_lib.process_pool_options(config, layout))


SUITE = Suite(
    name='synthetic',
    has=lambda level_name: level_name.startswith('synthetic:'),
    defaults=lambda level_name: _DEFAULTS,
    title='Synthetic levels',
    only_waits=True,
    num_workers=lambda size, unused_num_levels, wanted, unused_num_cores: min(
        wanted or size, size),
    make_pool=_make_pool)
