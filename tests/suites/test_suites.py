"""How environments are spread over pools, and that pools get it."""

import collections

from absl import flags
from absl.testing import flagsaver
import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import dmlab30
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent.assembly import devices
from scalable_agent.config import flags as config_flags
from scalable_agent.environments import PoolError
from scalable_agent.environments.engines import atari
from scalable_agent.environments.engines import dmlab
from scalable_agent.environments.engines import synthetic
from scalable_agent.environments.pools import process_pool
from scalable_agent.environments.pools import shown_pool
from scalable_agent.machine import cores as machine_cores
from scalable_agent.results import document
from scalable_agent.suites import scores
from scalable_agent.throughput import bottleneck

pytestmark = pytest.mark.usefixtures('bounded')


def _config(**values):
  with flagsaver.flagsaver():
    flags.FLAGS(['experiment'] + [
        f'--{name}={value}' for name, value in values.items()])
    return config_lib.resolve(config_flags.given())


def _layout(cores, monkeypatch, **values):
  monkeypatch.setattr(machine_cores, 'count', lambda: cores)
  config = _config(**values)
  layout = suites.choose_layout(config, config.num_actors)
  assert layout.num_pools * layout.size == config.num_actors
  assert (1 <= layout.minimum_batch_size <= layout.maximum_batch_size
          <= layout.size)
  return tuple(layout)


@pytest.mark.parametrize('values, expected', [
    # (pools, environments in each, minimum, maximum, threads or processes)
    (dict(level_name='pong'), (1, 64, 32, 32, 4)),
    (dict(level_name='pong', num_actors=9), (1, 9, 9, 9, 4)),
    (dict(level_name='pong', num_pools=2), (2, 32, 32, 32, 2)),
    (dict(level_name='pong', pool_batch_size=8), (1, 64, 8, 8, 4)),
    (dict(level_name='pong', environment_threads=3), (1, 64, 32, 32, 3)),
    (dict(level_name='pong', architecture='a2c_sync_step'),
     (1, 32, 32, 32, 4)),
    (dict(level_name='pong', architecture='a2c_sync_trajectory'),
     (2, 16, 16, 16, 2)),
    (dict(level_name='pong', architecture='a2c_sync_trajectory', batch_size=7),
     (1, 7, 7, 7, 4)),
    # Two pools of 16 could not hand out 32 at a time.
    (dict(level_name='pong', architecture='a2c_sync_trajectory',
          pool_batch_size=32), (1, 32, 32, 32, 4)),
    (dict(level_name='atari57'), (1, 57, 29, 29, 57)),
    (dict(level_name='atari57', num_actors=228, num_pools=2),
     (2, 114, 57, 57, 57)),
    (dict(level_name='atari57', environment_threads=3), (1, 57, 29, 29, 57)),
    (dict(level_name='gym:CartPole-v1'), (1, 64, 1, 64, 4)),
    (dict(level_name='gym:CartPole-v1', num_actors=3), (1, 3, 1, 3, 3)),
    (dict(level_name='gym:CartPole-v1', pool_batch_size=4), (1, 64, 1, 4, 4)),
    (dict(level_name='gym:CartPole-v1', architecture='a2c_sync_step'),
     (1, 32, 32, 32, 4)),
    (dict(level_name='gym:CartPole-v1', architecture='a2c_sync_trajectory'),
     (1, 32, 1, 32, 4)),
    (dict(level_name='synthetic:'), (1, 64, 1, 64, 64)),
    (dict(level_name='synthetic:', num_pools=2, num_actors=10),
     (2, 5, 1, 5, 5)),
    (dict(level_name='synthetic:', environment_threads=2), (1, 64, 1, 64, 2)),
])
def test_layout_on_four_cores(monkeypatch, values, expected):
  assert _layout(4, monkeypatch, **values) == expected


@pytest.mark.parametrize('values, expected', [
    (dict(level_name='pong'), (1, 16, 16, 16, 1)),
    (dict(level_name='pong', inference='learner'), (1, 16, 8, 8, 1)),
    (dict(level_name='pong', environment_threads=2, pool_batch_size=4),
     (1, 16, 4, 4, 2)),
    (dict(level_name='gym:CartPole-v1'), (1, 16, 1, 16, 1)),
    (dict(level_name='synthetic:'), (1, 16, 1, 16, 16))])
def test_layout_of_an_actor_job_is_for_one_core(monkeypatch, values, expected):
  monkeypatch.setattr(machine_cores, 'count', lambda: 4)
  config = _config(job_name='actor', task=0, learner_hosts='localhost:8000',
                   envs_per_actor=16, **values)
  assert tuple(suites.choose_layout(config, 16)) == expected


@pytest.mark.parametrize('level_name, repeats', [
    ('gym:ALE/Pong-v5', 4), ('gym:ale_py:ALE/Pong-v5', 4),
    ('gym:CartPole-v1', 1), ('gym:MinAtar/Breakout-v1', 1)])
def test_frames_that_ale_skips_by_itself_count(level_name, repeats):
  assert _config(level_name=level_name).num_action_repeats == repeats


def test_levels():
  assert suites.level_names(_config(level_name='pong')) == ['pong']
  assert suites.level_names(_config(level_name='atari57')) == list(
      atari57.GAMES)


@pytest.mark.parametrize('agent, frame_stack', [('impala', 4), ('reactor', 1)])
def test_atari57_has_all_games_by_turns(agent, frame_stack):
  """Every game, those in front once more, each with seeds of its own."""
  config = _config(level_name='atari57', num_actors=59, width=20, height=20,
                   agent=agent)
  made = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(atari, 'AtariPool', lambda *args, **kwargs: made.append(
        (args, kwargs)) or _pool_of(*args))
    (pool,) = suites.make_pools(
        config, suites.choose_layout(config, config.num_actors), seed=100)
  assert [args for args, _ in made] == [
      (game, 1 + (i < 2), 100 + i + min(i, 2))
      for i, game in enumerate(atari57.GAMES)]
  for _, kwargs in made:
    assert kwargs == dict(num_threads=1, num_action_repeats=4, width=20,
                          height=20, full_action_set=True,
                          frame_stack=frame_stack)
  assert pool.num_environments == 59


def _pool_of(level_name, size, unused_seed):
  pool = environments.Pool()
  pool.num_environments, pool.num_actions = size, 18
  pool.observation_spec, pool.level_names = (), [level_name] * size
  return pool


@hypothesis.given(num_jobs=strategies.integers(1, 60),
                  num_environments=strategies.integers(1, 60))
def test_jobs_have_levels_as_if_their_environments_were_in_one(
    num_jobs, num_environments):
  config = _config(level_name='dmlab30')
  levels = list(dmlab30.LEVEL_MAPPING)
  together = suites.turns(config, 0, num_jobs * num_environments)
  assert together == sum(
      (suites.turns(config, task * num_environments, num_environments)
       for task in range(num_jobs)), [])
  counts = collections.Counter(together)
  assert len(counts) == min(30, len(together))
  assert max(counts.values()) - min(counts.values()) <= 1
  # As released, where a job has one environment.
  assert [suites.turns(config, task, 1) for task in range(num_jobs)] == [
      [levels[task % 30]] for task in range(num_jobs)]


def test_a_job_of_several_games_has_a_pool_for_each():
  config = _config(level_name='atari57', task=3, job_name='actor',
                   envs_per_actor=16, width=20, height=20,
                   learner_hosts='localhost:1')
  made = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(atari, 'AtariPool', lambda *args, **kwargs: made.append(
        args) or _pool_of(*args))
    suites.make_pools(
        config, suites.choose_layout(config, config.num_environments), 100, 48)
  games = atari57.GAMES[48:] + atari57.GAMES[:7]
  assert made == [(game, 1, 148 + i) for i, game in enumerate(games)]


def test_pools_are_as_laid_out():
  config = _config(level_name='synthetic:step_ms=0,size=3', num_actors=6,
                   num_pools=2)
  pools = suites.make_pools(
      config, suites.choose_layout(config, config.num_actors), seed=1)
  try:
    assert [pool.num_environments for pool in pools] == [3, 3]
    frames = [pool.recv().step_output.observation[0] for pool in pools]
    # Every environment has its own seed.
    assert len(np.unique(np.concatenate(frames), axis=0)) == sum(
        len(f) for f in frames)
  finally:
    for pool in pools:
      pool.close()


def test_lockstep_waits_for_all():
  config = _config(level_name='synthetic:step_ms=2,std=1,size=3', batch_size=5,
                   architecture='a2c_sync_step')
  (pool,) = suites.make_pools(
      config, suites.choose_layout(config, config.num_actors), seed=1)
  try:
    for _ in range(5):
      ids = pool.recv().ids
      assert sorted(ids) == list(range(5))
      pool.send(ids, np.zeros([5], np.int32))
  finally:
    pool.close()


def test_pools_made_before_an_error_are_closed(monkeypatch):
  config = _config(level_name='synthetic:size=2', num_actors=4, num_pools=2)
  layout = suites.choose_layout(config, config.num_actors)
  made = []

  def make(*args, **kwargs):
    if made:
      raise PoolError('no more')
    made.append(make_pool(*args, **kwargs))
    return made[0]

  make_pool = synthetic.make_pool
  monkeypatch.setattr(synthetic, 'make_pool', make)
  with pytest.raises(PoolError, match='no more'):
    suites.make_pools(config, layout, seed=1)
  with pytest.raises(PoolError, match='closed'):
    made[0].recv()


def _refused_pools(monkeypatch):
  """Lets pools of processes fail; returns the options that they were to have."""

  def refuse(*unused_args, **kwargs):
    made.append(kwargs)
    raise PoolError('not here')

  monkeypatch.setattr(process_pool, 'ProcessPool', refuse)
  made = []
  return made


@pytest.mark.parametrize('level_name', [
    'gym:CartPole-v1', 'synthetic:', 'rooms_watermaze'])
def test_pools_of_processes_replace_what_hangs(monkeypatch, level_name):
  made = _refused_pools(monkeypatch)
  monkeypatch.setattr(dmlab, 'check', lambda *unused_args: None)
  for settings in ({}, dict(environment_timeout_secs=7.)):
    config = _config(level_name=level_name, **settings)
    with pytest.raises(PoolError, match='not here'):
      suites.make_pools(
          config, suites.choose_layout(config, 4)._replace(num_pools=1), seed=1)
  assert [options['step_timeout_seconds'] for options in made] == [480., 7.]


@pytest.mark.parametrize('make', [
    lambda config: suites.make_shown_pool(config, seed=1),
    lambda config: suites.find_actions(config, facts=None)])
def test_one_environment_has_the_limits_that_were_set(monkeypatch, make):
  """Be it shown, or asked what its actions mean."""
  made = _refused_pools(monkeypatch)
  with pytest.raises(PoolError, match='not here'):
    make(_config(
        level_name='gym:CartPole-v1', environment_timeout_secs=7.,
        environment_start_timeout_secs=3000.))
  (options,) = made
  assert options['step_timeout_seconds'] == 7.
  assert options['start_timeout_seconds'] == 3000.


# -- Records ------------------------------------------------------------------


def test_a_new_suite_is_a_record_and_an_entry(monkeypatch):
  """Everything that is asked of suites is answered by it."""
  made = []

  def make_pool(config, levels, layout, seed):
    assert len(levels) == layout.size
    made.append((levels, seed))
    return _pool_of('toy:a', layout.size, seed)

  toy = suites.Suite(
      name='toy', names=('toy:all',),
      has=lambda level_name: level_name.startswith('toy:'),
      levels=lambda level_name, is_test: (
          ['toy:a', 'toy:b'] if level_name == 'toy:all' else [level_name]),
      defaults=lambda level_name: dict(learning_rate=.5),
      scores=lambda level_name: dict(
          best=lambda returns: max(returns['toy:a'])),
      refuse=lambda config: (
          ('width', 'toys are small') if config.width > 50 else None),
      title='Toys', only_waits=True,
      defaults_of_reactor=dict(replay_steps=7000, replay_min_steps=50),
      num_workers=lambda size, num_levels, wanted, num_cores: 1,
      make_pool=make_pool)
  monkeypatch.setattr(suites, 'SUITES', (toy,) + suites.SUITES)
  monkeypatch.setattr(machine_cores, 'count', lambda: 4)
  config = _config(level_name='toy:all', width=8, num_pools=2)
  assert (config.suite, config.learning_rate) == ('toy', .5)
  assert suites.level_names(config) == ['toy:a', 'toy:b']
  layout = suites.choose_layout(config, config.num_actors)
  assert layout == suites.PoolLayout(2, config.num_actors // 2, 1,
                                     config.num_actors // 2, 1)
  assert suites.make_pools(config, layout, 10)[1].num_environments == (
      layout.size)
  assert layout.size % 2 == 0
  assert made == [(['toy:a', 'toy:b'] * (layout.size // 2), 10),
                  (['toy:a', 'toy:b'] * (layout.size // 2), 10 + layout.size)]
  monkeypatch.setattr(environments.Pool, 'close', lambda pool: None)
  assert suites.find_facts(config) == suites.Facts(18, ())
  monkeypatch.setattr(shown_pool, 'ShownPool', lambda pool: [pool])
  (shown,) = suites.make_shown_pool(config, 1)
  assert (shown.num_environments, made[-1]) == (1, (['toy:a'], 1))
  assert scores.compute('toy:all', {'toy:a': [1., 3.]}) == dict(best=3.)
  of_reactor = _config(level_name='toy:a', width=8, agent='reactor')
  assert (of_reactor.replay_steps, of_reactor.replay_min_steps) == (7000, 50)
  assert bottleneck.find_resources(of_reactor, devices.Devices(
      ['/cpu:0'], '/cpu:0', False))['environments'] == 'sleep'
  assert document._title('toy:a') == 'Toys'
  with pytest.raises(config_lib.ConfigError, match='--width=96 cannot work: '
                     'toys are small'):
    _config(level_name='toy:all')
  with pytest.raises(LookupError, match='Did you mean toy:all'):
    suites.find('toy_all')


# -- Seeds --------------------------------------------------------------------


@pytest.mark.parametrize('level_name', [
    'pong', 'gym:CartPole-v1', 'synthetic:step_ms=0,size=3'])
def test_the_greatest_seed_leaves_room_for_what_is_added_to_it(level_name):
  """By environments and actor jobs."""
  config = _config(level_name=level_name, seed=2_000_000_000, num_actors=4,
                   environment_threads=1)
  for added in (0, 100_000_000):
    (pool,) = suites.make_pools(
        config, suites.PoolLayout(1, 4, 4, 4, 1), config.seed + added)
    try:
      assert len(pool.recv().ids) == 4
    finally:
      pool.close()
