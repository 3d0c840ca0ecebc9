"""DeepMind Lab: against a strict fake, and the real module where there is one.
"""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import types

from absl import flags
from absl.testing import flagsaver
import hypothesis
from hypothesis import strategies
import numpy as np
import psutil
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import dmlab30
from scalable_agent import library
from scalable_agent import networks
from scalable_agent import suites
from scalable_agent.config import flags as config_flags
from scalable_agent.environments import DEFAULT_ACTION_SET
from scalable_agent.environments import level_cache
from scalable_agent.environments import PoolError
from scalable_agent.environments.engines import dmlab
from scalable_agent.environments.pools import worker_limits
from scalable_agent.evaluation import test_mode

pytestmark = pytest.mark.usefixtures('bounded')

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FAKE = str(_ROOT / 'tests/environments/fake_deepmind_lab')
_HAS_REAL = importlib.util.find_spec('deepmind_lab') is not None
_CHECKS = [line.split()[1].split('(')[0]
           for line in pathlib.Path(__file__).with_name('dmlab_contract.py'
               ).read_text().splitlines() if line.startswith('def check_')]
_REAL = pytest.param('real', marks=pytest.mark.skipif(
    not _HAS_REAL, reason='There is no module deepmind_lab here; '
    f'{dmlab.BUILD_URL} says how to build it.'))


@pytest.fixture
def fake(monkeypatch):
  """Has this process, and those that it starts, import the fake."""
  monkeypatch.syspath_prepend(_FAKE)
  yield
  sys.modules.pop('deepmind_lab', None)


def _environ(which):
  paths = [_FAKE] * (which == 'fake') + [str(_ROOT)] + sys.path
  return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))


def _config(**values):
  with flagsaver.flagsaver():
    flags.FLAGS(['experiment'] + [
        f'--{name}={value}' for name, value in values.items()])
    return config_lib.resolve(config_flags.given())


def _make_pools(seed=1, **values):
  config = _config(**values)
  return suites.make_pools(
      config, suites.choose_layout(config, config.num_environments), seed)


def _recv_all(pool):
  """Returns reward, done and observation of all, by environment."""
  found = {}
  while len(found) < pool.num_environments:
    output = pool.recv()
    step = output.step_output
    for k, i in enumerate(output.ids):
      found[i] = (step.reward[k], step.done[k],
                  *[array[k] for array in step.observation])
  return [found[i] for i in range(pool.num_environments)]


def _play(pool, actions):
  outputs = [_recv_all(pool)]
  for action in actions:
    pool.send(np.arange(pool.num_environments),
              np.full(pool.num_environments, action))
    outputs.append(_recv_all(pool))
  return outputs


@pytest.mark.parametrize('check', _CHECKS)
@pytest.mark.parametrize('which', ['fake', _REAL])
def test_contract(which, check):
  result = subprocess.run(
      [sys.executable, '-m', 'tests.environments.dmlab_contract', check],
      cwd=_ROOT, env=_environ(which), capture_output=True, text=True,
      timeout=110)
  assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.parametrize('code, status', [
    ('lab.reset(seed=1); lab.close(); lab.reset(seed=1)', -11),
    ('sys.modules["tensorflow"] = sys; lab.reset(seed=1)', -11),
    ('level += "contributed/dmlab30/explore_object_rewards_few";'
     'deepmind_lab.Lab(level, [], {}, level_cache=Liar()).reset()', 1)])
def test_the_fake_ends_processes_as_the_real_one_does(code, status):
  program = (
      'import deepmind_lab, sys, types\n'
      'class Liar:\n'
      '  def fetch(self, *args): return True\n'
      'level = ""\n'
      'lab = deepmind_lab.Lab("seekavoid_arena_01", [], {})\n' + code)
  result = subprocess.run(
      [sys.executable, '-c', program], env=_environ('fake'), check=False,
      capture_output=True, timeout=60)
  assert result.returncode == status, result.stderr


@pytest.mark.parametrize('instruction', [
    '', '   ', 'pick', 'Pick up the  large red\that\n',
    'caf\u00e9 \u65e5\u672c',
    'a' * 16 + ' ' + 'b' * 17 + ' ' + 'c' * 40 + ' ' + 'd' * 100,
    'a\u00a0b\x0bc\x1cd'])
def test_words_are_hashed_as_the_network_hashes_them(instruction):
  expected = networks.hash_instructions(tf.constant([instruction]))[0].numpy()
  ids = dmlab.hash_words(instruction)
  assert ids.dtype == np.int32
  np.testing.assert_array_equal(ids[:len(expected)], expected)
  assert (ids[len(expected):] == -1).all()


# As a graph, which takes a fraction of the time of step by step.
_hash_instructions = tf.function(
    networks.hash_instructions,
    input_signature=[tf.TensorSpec([None], tf.string)])


@hypothesis.settings(max_examples=200)
@hypothesis.given(strategies.text(max_size=80))
def test_any_instruction_is_hashed_as_the_network_hashes_it(instruction):
  expected = _hash_instructions(
      tf.constant([instruction.encode(errors='replace')]))[0].numpy()
  ids = dmlab.hash_words(instruction.encode(errors='replace').decode())
  expected = expected[:len(ids)]
  np.testing.assert_array_equal(ids[:len(expected)], expected)
  assert (ids[len(expected):] == -1).all()


def test_long_instructions_lose_their_end():
  words = [str(i) for i in range(40)]
  np.testing.assert_array_equal(
      dmlab.hash_words(' '.join(words)),
      dmlab.hash_words(' '.join(words[:dmlab.MAX_INSTRUCTION_WORDS])))
  assert (dmlab.hash_words(' '.join(words)) >= 0).all()


def test_one_process_and_seed_per_environment(fake):
  pools = _make_pools(level_name='explore_goal_locations_small', num_actors=3,
                      num_pools=1)
  (pool,) = pools
  try:
    assert pool.level_names == ['explore_goal_locations_small'] * 3
    assert pool.num_actions == 9
    assert pool.observation_spec == dmlab.observation_spec(72, 96)
    assert len(pool._workers.processes) == 3
    outputs = _recv_all(pool)
    frames = [frame for _, _, frame, _ in outputs]
    assert frames[0].shape == (72, 96, 3) and frames[0].dtype == np.uint8
    assert len(np.unique(frames, axis=0)) == 3
    assert all(done for _, done, _, _ in outputs)
  finally:
    pool.close()


def test_the_same_seed_gives_the_same_200_observations(fake):
  def observations(seed):
    (pool,) = _make_pools(seed, level_name='seekavoid_arena_01', num_actors=2,
                          width=8, height=4)
    try:
      return _play(pool, np.random.RandomState(0).randint(9, size=199))
    finally:
      pool.close()

  first, again, other = observations(1), observations(1), observations(3)
  for t, (outputs, same, different) in enumerate(zip(first, again, other)):
    for i in range(2):
      for value, same_value in zip(outputs[i], same[i]):
        np.testing.assert_array_equal(value, same_value)
      assert (outputs[i][2] != different[i][2]).any(), t
    assert (outputs[0][2] != outputs[1][2]).any(), t
  assert len(first) == 200


def test_episodes(fake):
  """Action repeat, the reward of the last step, the next first observation."""
  (pool,) = _make_pools(level_name='rooms_watermaze', num_actors=1, width=8,
                        height=4)
  try:
    outputs = _play(pool, [0] * 360)  # 720 frames an episode, 4 per step.
    dones = [t for t, ((_, done, *_),) in enumerate(outputs) if done]
    assert dones == [0, 180, 360]
    assert [outputs[t][0][0] for t in (179, 180, 181)] == [0., 10., 0.]
    # Every episode has a seed of its own.
    assert (outputs[0][0][2] != outputs[180][0][2]).any()
    assert pool.level_names == ['rooms_watermaze']
  finally:
    pool.close()


def test_all_actions_reach_the_engine(fake, monkeypatch):
  import deepmind_lab
  taken = []
  monkeypatch.setattr(
      deepmind_lab.Lab, 'step', lambda self, action, num_steps: taken.append(
          (tuple(action), action.dtype, num_steps)) or 0.)
  monkeypatch.delitem(sys.modules, 'tensorflow')
  environment = dmlab.DmLabEnvironment(
      'seekavoid_arena_01', 1, 4, 8, 3, '', '', '', False)
  environment.initial()
  for action in range(9):
    environment.step(action)
  assert taken == [(action, np.intc, 3) for action in DEFAULT_ACTION_SET]


def test_language_levels_have_instructions(fake):
  (pool,) = _make_pools(level_name='language_execute_random_task', num_actors=1)
  try:
    ((_, _, _, words),) = _recv_all(pool)
    assert 2 <= np.count_nonzero(words >= 0) <= 7
    np.testing.assert_array_equal(
        words[:2], dmlab.hash_words('pick up')[:2])
  finally:
    pool.close()


def test_the_suite_is_played_round_robin(monkeypatch):
  monkeypatch.setattr(
      dmlab, 'make_pool', lambda levels, seed, *args, **kwargs: levels)
  config = _config(level_name='dmlab30', num_actors=32)
  levels = list(dmlab30.LEVEL_MAPPING)
  assert suites.level_names(config) == levels
  layout = suites.choose_layout(config, config.num_actors)
  assert (layout.size, layout.num_workers) == (32, 32)
  assert suites.make_pools(config, layout, 1) == [levels + levels[:2]]
  # The second pool goes on where the first one ends.
  config = _config(level_name='dmlab30', num_actors=40, num_pools=2)
  layout = suites.choose_layout(config, config.num_actors)
  assert suites.make_pools(config, layout, 1) == [
      levels[:20], levels[20:] + levels[:10]]


def test_test_mode_plays_the_twins(fake, tmp_path):
  values = dict(level_name='contributed/dmlab30/'
                'rooms_collect_good_objects_train', num_actors=1, width=8,
                height=4)
  seen = []
  for mode in ('train', 'test'):
    config = _config(mode=mode, **values)
    (pool,) = suites.make_pools(
        config, suites.choose_layout(config, 1), seed=1)
    try:
      seen.append((pool.level_names, _recv_all(pool)[0][2]))
      assert suites.level_names(config) == pool.level_names
    finally:
      pool.close()
  assert [names for names, _ in seen] == [
      ['rooms_collect_good_objects_train'], ['rooms_collect_good_objects_test']]
  assert suites.level_names(_config(level_name='dmlab30', mode='test')) == list(
      dmlab30.LEVEL_MAPPING.values())


def test_test_mode_mixes_the_seeds_otherwise(fake):
  def frame(mode):
    (pool,) = _make_pools(level_name='rooms_watermaze', num_actors=1, mode=mode)
    try:
      return _recv_all(pool)[0][2]
    finally:
      pool.close()

  assert (frame('train') != frame('test')).any()


@pytest.mark.parametrize('is_test, held_out', [
    (True, dict(allowHoldOutLevels='true', mixerSeed='1611489005')),
    (False, {})])
def test_the_engine_gets_the_released_settings(monkeypatch, is_test, held_out):
  made = []
  monkeypatch.setitem(sys.modules, 'deepmind_lab', types.SimpleNamespace(
      Lab=lambda *args, **kwargs: made.append((args, kwargs))))
  dmlab.DmLabEnvironment(
      'rooms_watermaze', seed=1, height=72, width=96, num_action_repeats=4,
      dataset_path='', runfiles_path='', level_cache_dir='', is_test=is_test)
  (((level_name, _, config), _),) = made
  assert level_name == 'contributed/dmlab30/rooms_watermaze'
  assert config == dict(width='96', height='72', logLevel='WARN', **held_out)


def test_other_levels_keep_their_name(fake):
  for name in ('seekavoid_arena_01', 'contributed/dmlab30/nothing'):
    assert dmlab.short_name(name) == name
  (pool,) = _make_pools(level_name='seekavoid_arena_01', num_actors=1)
  try:
    assert pool.level_names == ['seekavoid_arena_01']
  finally:
    pool.close()


@pytest.mark.parametrize('level', ['explore_unicorns', 'contributed/x'])
def test_unknown_level(fake, level):
  with pytest.raises(PoolError, match=f'^{level}: Invalid levelName') as info:
    _make_pools(level_name=level, num_actors=1)
  assert '\n' not in str(info.value)


@pytest.mark.skipif(_HAS_REAL, reason='There is a module deepmind_lab.')
def test_without_deepmind_lab():
  with pytest.raises(PoolError) as info:
    _make_pools(level_name='explore_goal_locations_small', num_actors=1)
  text = str(info.value)
  assert 'explore_goal_locations_small' in text and '\n' not in text
  assert ('https://github.com/google-deepmind/lab/blob/master/docs/users/'
          'build.md') in text


def test_facts_need_no_deepmind_lab(monkeypatch):
  monkeypatch.setattr(dmlab, 'make_pool', None)
  facts = suites.find_facts(_config(level_name='dmlab30', height=4, width=8))
  assert facts.num_actions == 9
  assert facts.observation_spec == dmlab.observation_spec(4, 8)


@pytest.mark.parametrize('level', [
    'psychlab_continuous_recognition',
    'contributed/dmlab30/psychlab_arbitrary_visuomotor_mapping', 'dmlab30'])
def test_images_of_psychlab(fake, tmp_path, level):
  """Refused before anything is started, with what to download."""
  for dataset_path, problem in (('', 'not set'), (tmp_path, 'holds no')):
    with pytest.raises(PoolError, match=problem) as info:
      _make_pools(level_name=level, dataset_path=dataset_path)
    assert 'brady_konkle_oliva2008' in str(info.value)
    assert '\n' not in str(info.value)


def test_images_of_psychlab_are_passed_on(fake, tmp_path):
  (tmp_path / '0001.png').touch()
  (pool,) = _make_pools(level_name='psychlab_continuous_recognition',
                        dataset_path=tmp_path, num_actors=1)
  try:
    _recv_all(pool)
  finally:
    pool.close()


def test_other_psychlab_levels_need_no_images(fake):
  (pool,) = _make_pools(level_name='psychlab_visual_search', num_actors=1)
  try:
    _recv_all(pool)
  finally:
    pool.close()


def test_maps_are_cached(fake, tmp_path):
  cache = tmp_path / 'cache'
  values = dict(level_name='explore_object_rewards_many', num_actors=2,
                level_cache_dir=cache)
  for _ in range(2):
    (pool,) = _make_pools(**values)
    try:
      _recv_all(pool)
    finally:
      pool.close()
    names = sorted(os.listdir(cache))
    assert 1 <= len(names) <= 2
    assert not [name for name in names if name.endswith('.tmp')]
    assert (cache / names[0]).read_text() == f'map {names[0]}'


def test_a_cache_that_cannot_be_made_is_refused_with_its_flag(fake):
  with pytest.raises(PoolError, match=(
      '^--level_cache_dir=/dev/null/maps cannot be made: Not a directory$')):
    _make_pools(level_name='seekavoid_arena_01', num_actors=1,
                level_cache_dir='/dev/null/maps')


def test_a_cache_that_cannot_be_written_is_a_warning(
    fake, tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(os, 'access', lambda path, mode: False)
  dmlab.check(['seekavoid_arena_01'], '', str(tmp_path))
  assert f'--level_cache_dir={tmp_path} cannot be written' in caplog.text


def test_a_cache_far_away_is_tried_at_the_start(fake, caplog):
  """What workers say of theirs, nobody reads."""
  dmlab.check(['seekavoid_arena_01'], '', 'unknown://maps')
  assert '--level_cache_dir=unknown://maps cannot be written' in caplog.text
  assert "'unknown' not implemented" in caplog.text
  caplog.clear()
  with pytest.MonkeyPatch.context() as patch:
    # One trial is enough for all pools.
    patch.setattr(level_cache, '_copy_elsewhere', None)
    dmlab.check(['seekavoid_arena_01'], '', 'unknown://maps')
  assert "'unknown' not implemented" in caplog.text


def test_the_engine_is_told_where_its_files_are(fake, tmp_path):
  values = dict(level_name='seekavoid_arena_01', num_actors=1)
  (pool,) = _make_pools(runfiles_path=tmp_path, **values)
  try:
    _recv_all(pool)
  finally:
    pool.close()
  with pytest.raises(PoolError, match='files of the engine'):
    for pool in _make_pools(runfiles_path=tmp_path / 'none', **values):
      try:
        _recv_all(pool)
      finally:
        pool.close()


def test_environments_do_not_import_tensorflow(fake):
  """The engine would crash, and the fake does."""
  assert 'tensorflow' in sys.modules
  import deepmind_lab
  program = ('import sys, scalable_agent.environments.engines.dmlab;'
             'sys.exit("tensorflow" in sys.modules)')
  assert deepmind_lab.__file__.startswith(_FAKE)
  subprocess.run([sys.executable, '-c', program], env=_environ('fake'),
                 cwd=_ROOT, check=True, timeout=60)


def test_dmlab30_defaults():
  config = _config(level_name='dmlab30')
  assert (config.num_actors, config.reward_clipping) == (30, 'soft_asymmetric')
  assert (config.width, config.height, config.num_action_repeats,
          config.unroll_length, config.use_lstm) == (96, 72, 4, 100, True)
  single = _config(level_name='rooms_watermaze')
  assert (single.num_actors, single.reward_clipping) == (4, 'soft_asymmetric')
  with pytest.raises(config_lib.ConfigError, match='num_actors.*30 levels'):
    _config(level_name='dmlab30', num_actors=29)
  assert _config(level_name='dmlab30', num_actors=4, task=0).num_actors == 4


def test_an_environment_that_dies_is_replaced(fake):
  (pool,) = _make_pools(level_name='seekavoid_arena_01', num_actors=2, width=8,
                        height=4)
  try:
    before = _recv_all(pool)
    pool._workers.owners[1].kill()
    pool.send([0, 1], [0, 0])
    after = _recv_all(pool)
    assert after[1][1] and not after[0][1]
    # With another seed, for the same episode might end the same way.
    assert (after[1][2] != before[1][2]).any()
    assert pool.num_replaced == 1
  finally:
    pool.close()


def _kill_some_workers(logdir, stop, killed):
  """Kills three workers of this process, once training has begun."""
  rng = np.random.default_rng(1)
  metrics = logdir / 'metrics.jsonl'
  while len(killed) < 3 and not stop.wait(.4):
    if not metrics.exists() or not metrics.read_text():
      continue
    # One that has just been replaced may be gone by now.
    with contextlib.suppress(psutil.NoSuchProcess):
      workers = [
          child for child in psutil.Process().children()
          if 'scalable_agent.environments.pools.worker' in child.cmdline()]
      if workers:
        workers[rng.integers(len(workers))].kill()
        killed.append(workers)


def test_training_and_testing_while_environments_are_killed(
    fake, monkeypatch, tmp_path, caplog):
  """The run goes on to its end; afterwards the agent can be tested."""
  monkeypatch.setattr(worker_limits, '_MAXIMUM_LOSSES', 100)
  values = dict(
      level_name='language_execute_random_task', logdir=tmp_path, width=48,
      height=36, network='shallow')
  stop, killed = threading.Event(), []
  killer = threading.Thread(
      target=_kill_some_workers, args=(tmp_path, stop, killed))
  killer.start()
  try:
    library.learn(_config(
        num_actors=4, batch_size=2, unroll_length=10, log_interval_secs=1,
        total_environment_frames=5000, **values))
  finally:
    stop.set()
    killer.join()
  assert len(killed) >= 2 and 'Starting it anew' in caplog.text
  rows = (tmp_path / 'episodes.csv').read_text().splitlines()[1:]
  # The fake's episodes have 480 frames. None is counted that was cut short.
  assert rows and {row.split(',')[3] for row in rows} == {'480'}

  scores = test_mode.test(_config(mode='test', test_num_episodes=2, **values))
  level = scores['levels']['language_execute_random_task']
  assert level['episode_frames'] == [480, 480]
  assert level['human_normalized_score'] == pytest.approx(
      dmlab30.human_normalized_score(
          'language_execute_random_task', level['mean']))
