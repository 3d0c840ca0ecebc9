import os
import pathlib
import subprocess
import sys
import warnings

from ale_py import ALEInterface
from ale_py import LoggerMode
from ale_py import roms
from ale_py import vector_env
import numpy as np
import pytest
import tree

from scalable_agent import atari57
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import PoolError
from scalable_agent.environments import PoolOutput
from scalable_agent.environments import StepOutput
from scalable_agent.environments import StepOutputInfo
from scalable_agent.environments.engines import atari

_ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures('bounded')


def _shrink_rows(image, new_size):
  """Returns the sum of the rows under each new row, as far as each is covered.

  A row counts `new_size` where it is covered fully, so that all is in whole
  numbers; the weights of a new row add up to the number of rows. A product of
  matrices would do, but NumPy's threads are slow on a busy machine.
  """
  size = len(image)
  starts = np.arange(new_size)[:, np.newaxis] * size
  rows = starts // new_size + np.arange(size // new_size + 2)
  overlaps = (np.minimum(starts + size, (rows + 1) * new_size)
              - np.maximum(starts, rows * new_size))
  weights = np.maximum(overlaps, 0)[..., np.newaxis]
  return (weights * image[np.minimum(rows, size - 1)]).sum(axis=1)


class ReferenceEnvironment:
  """One Atari environment, frame by frame as the protocol's text has it.

  The emulator's only part in it is to play one frame at a time. The number of
  no-ops of each game is given.
  """

  def __init__(self, game, seed, num_action_repeats=4, height=84, width=84,
               full_action_set=False, max_frames_per_game=108000):
    ALEInterface.setLoggerMode(LoggerMode.Error)
    self._ale = ALEInterface()
    self._ale.setFloat('repeat_action_probability', 0.0)
    self._ale.setInt('random_seed', seed)
    self._ale.loadROM(roms.get_rom_path(game))
    self._actions = (self._ale.getLegalActionSet() if full_action_set
                     else self._ale.getMinimalActionSet())
    self._num_action_repeats = num_action_repeats
    self._max_frames = max_frames_per_game
    self._shape = height, width

  def _resized(self, screen):
    height, width = self._shape
    sums = _shrink_rows(_shrink_rows(screen, height).T, width).T
    return np.rint(sums / screen.size).astype(np.uint8)

  def _begin_game(self, num_noops):
    assert 0 <= num_noops <= 30
    self._ale.reset_game()
    for _ in range(num_noops):
      self._ale.act(0)
    self._lives = self._ale.lives()
    self._num_frames = 0
    self._num_steps = 0
    self._return = 0
    self._stack = [np.zeros(self._shape, np.uint8)] * 3
    self._stack.append(self._resized(self._ale.getScreenGrayscale()))

  def _output(self, reward, done, observation):
    return StepOutput(reward, StepOutputInfo(self._return, self._num_steps),
                      done, (np.stack(observation, axis=-1),))

  def initial(self, num_noops):
    """Returns the first `StepOutput` and whether a game is over."""
    self._begin_game(num_noops)
    return self._output(0, True, self._stack), False

  def step(self, action, num_noops_of_next_game):
    """Returns the `StepOutput` of an action and whether a game is over."""
    reward = 0
    screens = []
    is_last = False
    for _ in range(self._num_action_repeats):
      reward += self._ale.act(self._actions[action])
      screens.append(self._ale.getScreenGrayscale())
      self._num_frames += 1
      if self._ale.game_over() or self._num_frames == self._max_frames:
        is_last = True
        break
    life_lost = self._ale.lives() < self._lives
    self._lives = self._ale.lives()
    self._return += reward
    self._num_steps += 1
    output = self._output(reward, is_last or life_lost, self._stack)
    if is_last:
      self._begin_game(num_noops_of_next_game)
    else:
      self._stack = self._stack[1:] + [
          self._resized(np.max(screens[-2:], axis=0))]
    observation = np.stack(self._stack, axis=-1)
    return output._replace(observation=(observation,)), is_last


@pytest.fixture
def make_pool(monkeypatch):
  """Makes pools whose emulator notes how far each game is.

  The `game_frames` of a pool are the frames of each environment's game before
  the frame it showed last, which after a game's end are the no-ops of the next.
  Its `settings` are what the emulator was made with.
  """

  class Recording(vector_env.AtariVectorEnv):

    def __init__(self, **kwargs):
      super().__init__(**kwargs)
      self.game_frames = np.full([kwargs['num_envs']], -1)
      made.append((self.game_frames, kwargs))

    def reset(self, **kwargs):
      return self._noted(super().reset(**kwargs))

    def recv(self):
      return self._noted(super().recv())

    def _noted(self, results):
      info = results[-1]
      self.game_frames[info['env_id']] = info['episode_frame_number']
      return results

  made = []
  pools = []
  monkeypatch.setattr(vector_env, 'AtariVectorEnv', Recording)

  def make(*args, **kwargs):
    pools.append(atari.AtariPool(*args, num_threads=2, **kwargs))
    pools[-1].game_frames, pools[-1].settings = made[-1]
    return pools[-1]

  yield make
  for pool in pools:
    pool.close()


def _assert_equal_frames(frames, expected):
  """Frames are equal but for rare roundings; returns how many were not."""
  assert frames.dtype == np.uint8 and frames.shape == expected.shape
  different = frames != expected
  if different.any():
    distance = np.abs(frames.astype(np.int32) - expected)
    assert distance.max() <= 1
  return different.sum()


class Totals:
  """What happened while a pool was compared."""

  lives_lost = 0
  games = 0
  largest_reward = 0
  roundings = 0
  pixels = 0


def _compare(pool, references, num_outputs):
  """Acts at random, and compares a pool with one reference per environment.

  It ends once there are `num_outputs` of each. What an environment is sent does
  not depend on which others are ready.
  """
  rngs = [np.random.RandomState(i) for i in range(pool.num_environments)]
  missing = np.full([pool.num_environments], num_outputs)
  actions = {}
  totals = Totals()
  kept = None
  while missing.max() > 0:
    output = pool.recv()
    ids, step_output, is_first, is_last = output
    if kept is None:
      frames = step_output.observation[0].copy()
      kept = output, PoolOutput(
          ids.copy(), step_output._replace(observation=(frames,)),
          is_first.copy(), is_last.copy())
    assert len(set(ids)) == len(ids)
    for k, i in enumerate(ids):
      noops = pool.game_frames[i]
      assert is_first[k] == (i not in actions)
      if i not in actions:
        expected, expected_over = references[i].initial(noops)
      else:
        expected, expected_over = references[i].step(actions[i], noops)
      assert step_output.reward[k] == expected.reward
      assert step_output.done[k] == expected.done
      assert is_last[k] == expected_over
      assert step_output.info.episode_return[k] == expected.info.episode_return
      assert step_output.info.episode_step[k] == expected.info.episode_step
      totals.roundings += _assert_equal_frames(
          step_output.observation[0][k], expected.observation[0])
      totals.pixels += expected.observation[0].size
      totals.lives_lost += i in actions and expected.done and not expected_over
      totals.games += expected_over
      totals.largest_reward = max(totals.largest_reward, abs(expected.reward))
    for i in ids:
      actions[i] = rngs[i].randint(pool.num_actions)
    missing[ids] -= 1
    pool.send(ids, np.array([actions[i] for i in ids], np.int32))
  assert totals.roundings <= 1e-3 * totals.pixels
  # The caller owns the outputs: later ones are not written over them.
  np.testing.assert_array_equal(kept[0].ids, kept[1].ids)
  np.testing.assert_array_equal(kept[0].is_first, kept[1].is_first)
  np.testing.assert_array_equal(kept[0].is_last, kept[1].is_last)
  np.testing.assert_array_equal(kept[0].step_output.observation[0],
                                kept[1].step_output.observation[0])
  return totals


def _references(game, seed, num_environments, **kwargs):
  return [ReferenceEnvironment(game, seed + i, **kwargs)
          for i in range(num_environments)]


def test_pong_is_cut_at_the_cap(make_pool):
  """A game without lives, of many games as the cap is no multiple of 4."""
  pool = make_pool('pong', 2, 11, max_frames_per_game=702)
  references = _references('pong', 11, 2, max_frames_per_game=702)
  totals = _compare(pool, references, 400)
  assert totals.lives_lost == 0
  assert totals.games == 4
  assert totals.largest_reward == 1


def test_breakout_plays_on_after_a_lost_life(make_pool):
  """A game of 5 lives: 4 ends for the learner, then that of the game."""
  pool = make_pool('breakout', 3, 21)
  totals = _compare(pool, _references('breakout', 21, 3), 420)
  assert totals.games >= 3
  assert totals.lives_lost >= 4 * totals.games


def test_space_invaders_rewards_are_not_clipped(make_pool):
  """A game of 3 lives, rewards of up to 30 and sprites that flicker."""
  pool = make_pool('space_invaders', 2, 31)
  totals = _compare(pool, _references('space_invaders', 31, 2), 700)
  assert totals.games >= 1
  assert totals.lives_lost >= 3
  assert totals.largest_reward > 1


def test_part_of_the_pool_at_a_time(make_pool):
  """Whichever environments are ready, each one's sequence is its own."""
  pool = make_pool('breakout', 4, 41, batch_size=2)
  totals = _compare(pool, _references('breakout', 41, 4), 220)
  assert totals.games >= 2
  assert totals.lives_lost >= 4 * totals.games


def test_other_settings(make_pool):
  """Height, width, action repeats and the action set are as asked for."""
  settings = dict(height=60, width=80, num_action_repeats=2,
                  full_action_set=True, max_frames_per_game=60)
  pool = make_pool('pong', 2, 51, **settings)
  assert pool.observation_spec == (ArraySpec((60, 80, 4), np.dtype(np.uint8)),)
  totals = _compare(pool, _references('pong', 51, 2, **settings), 50)
  assert totals.games == 2


def test_a_single_frame_is_the_newest_of_the_stack(make_pool):
  """As Reactor has it; also where games begin, and all else is the same."""
  pools = [make_pool('pong', 2, 61, frame_stack=size, max_frames_per_game=120)
           for size in (4, 1)]
  assert pools[1].observation_spec == (
      ArraySpec((84, 84, 1), np.dtype(np.uint8)),)
  rng = np.random.default_rng(0)
  games = 0
  for _ in range(100):
    outputs = []
    for pool in pools:
      output = pool.recv()
      order = np.argsort(output.ids)
      outputs.append(
          tree.map_structure(lambda a, order=order: a[order], output))
    stacked, single = outputs
    (stacks,) = stacked.step_output.observation
    tree.map_structure(
        np.testing.assert_array_equal, single, stacked._replace(
            step_output=stacked.step_output._replace(
                observation=(stacks[..., -1:],))))
    games += np.count_nonzero(single.is_last)
    actions = rng.integers(0, pools[0].num_actions, 2)
    for pool in pools:
      pool.send(single.ids, actions)
  assert games >= 4


def test_shortest_games(make_pool):
  """Ends of games are told from lost lives however short the games are.

  A new game's no-ops may be as many as the frames that the old one had.
  """
  pool = make_pool('pong', 4, 3, max_frames_per_game=8)
  totals = _compare(pool, _references('pong', 3, 4, max_frames_per_game=8), 51)
  assert totals.games == 4 * 25


def test_first_outputs(make_pool):
  """Every environment's first output ends an episode, but no game."""
  pool = make_pool('seaquest', 4, 1, batch_size=2)
  seen = []
  for _ in range(2):
    ids, step_output, is_first, is_last = pool.recv()
    seen.extend(ids)
    assert ids.dtype == np.int32
    assert step_output.reward.dtype == np.float32
    assert step_output.done.dtype == is_first.dtype == is_last.dtype == bool
    assert step_output.info.episode_return.dtype == np.float32
    assert step_output.info.episode_step.dtype == np.int32
    assert step_output.observation[0].shape == (2, 84, 84, 4)
    assert step_output.observation[0].dtype == np.uint8
    np.testing.assert_array_equal(step_output.reward, 0)
    np.testing.assert_array_equal(step_output.info.episode_return, 0)
    np.testing.assert_array_equal(step_output.info.episode_step, 0)
    np.testing.assert_array_equal(step_output.done, True)
    np.testing.assert_array_equal(is_first, True)
    np.testing.assert_array_equal(is_last, False)
    assert not step_output.observation[0][..., :3].any()
    assert step_output.observation[0][..., 3].any()
  assert sorted(seen) == [0, 1, 2, 3]


def test_spec(make_pool):
  pool = make_pool('pong', 3, 1)
  assert pool.num_environments == 3
  assert pool.level_names == ['pong'] * 3
  assert pool.observation_spec == (ArraySpec((84, 84, 4), np.dtype(np.uint8)),)


def test_return_is_that_of_all_lives(make_pool):
  """Lost lives do not start the totals of a game over."""
  pool = make_pool('space_invaders', 1, 8)
  rng = np.random.RandomState(2)
  lives = []
  rewards = []
  is_last = False
  while not is_last:
    ids, step_output, _, (is_last,) = pool.recv()
    rewards.append(step_output.reward[0])
    if step_output.done[0]:
      lives.append(rewards)
      rewards = []
    pool.send(ids, rng.randint(6, size=1))
  assert [len(life) for life in lives[:1]] == [1]  # The first output.
  assert len(lives) == 1 + 3
  assert max(map(max, lives)) > 1
  assert sum(sum(life) > 0 for life in lives) > 1
  assert step_output.info.episode_return[0] == sum(map(sum, lives))
  assert step_output.info.episode_step[0] == sum(map(len, lives[1:]))
  _, step_output, _, _ = pool.recv()
  assert step_output.info.episode_step[0] == 1
  assert step_output.info.episode_return[0] == step_output.reward[0]


@pytest.mark.parametrize('game, size', [
    ('pong', 6), ('breakout', 4), ('space_invaders', 6), ('seaquest', 18)])
def test_action_set(make_pool, game, size):
  """A game's own actions, or all that the joystick has."""
  assert make_pool(game, 1, 0).num_actions == size
  assert make_pool(game, 1, 0, full_action_set=True).num_actions == 18


def test_length_of_a_game(make_pool):
  """A game is cut at the frame asked for, and by default at 108,000.

  Without the fire button a game of Breakout never begins, and so goes on for
  ever. This also shows that nothing presses it.
  """
  assert atari.MAX_FRAMES_PER_GAME == 108000
  settings = make_pool('pong', 1, 0).settings
  assert settings['max_num_frames_per_episode'] == 108000
  pool = make_pool('breakout', 1, 0, num_action_repeats=4999,
                   max_frames_per_game=10000)
  ends = []
  for _ in range(4):
    ids, step_output, _, is_last = pool.recv()
    ends.append((step_output.done[0], is_last[0]))
    pool.send(ids, np.zeros([1], np.int32))
  assert ends == [(True, False), (False, False), (False, False), (True, True)]


def test_same_seed_same_games(make_pool):
  """All that is random follows from the seed, whichever thread plays."""
  pools = [make_pool('space_invaders', 4, 5) for _ in range(2)]
  rng = np.random.RandomState(0)
  for _ in range(30):
    actions = rng.randint(6, size=4)
    outputs = [pool.recv() for pool in pools]
    np.testing.assert_array_equal(*(o.ids for o in outputs))
    np.testing.assert_array_equal(*(o.step_output.reward for o in outputs))
    np.testing.assert_array_equal(*(o.step_output.observation for o in outputs))
    for pool, output in zip(pools, outputs):
      pool.send(output.ids, actions)


def test_seeds_are_consecutive(make_pool):
  """Environment i of seed s is environment 0 of seed s + i."""
  pool = make_pool('space_invaders', 3, 5)
  output = pool.recv()
  for i in range(3):
    single = make_pool('space_invaders', 1, 5 + i)
    np.testing.assert_array_equal(
        single.recv().step_output.observation[0][0],
        output.step_output.observation[0][i])
    assert single.game_frames[0] == pool.game_frames[i]
  assert len(set(pool.game_frames)) > 1


def test_noops_are_uniform_from_0_to_30(make_pool):
  """Every number of no-ops up to 30 occurs alike, and no other."""
  pool = make_pool('pong', 4, 71, max_frames_per_game=4)
  noops = []
  for _ in range(105):
    ids, *_ = pool.recv()
    noops.append(pool.game_frames.copy())
    pool.send(ids, np.zeros([4], np.int32))
  counts = np.bincount(np.ravel(noops))
  assert len(counts) == 31
  # 13.5 are expected of each, with a standard deviation of 3.6.
  assert counts.min() >= 1 and counts.max() <= 35
  # The games of an environment differ, and the environments do.
  assert (np.ptp(noops, axis=0) > 20).all()
  assert (np.ptp(noops, axis=1) > 0).mean() > 0.95


def test_all_games_have_a_rom():
  """The 57 names are those of the installed ale-py."""
  for game in atari57.GAMES:
    assert roms.get_rom_path(game).is_file()


def _one_line_error(game):
  with pytest.raises(PoolError) as e:
    atari.AtariPool(game, 1, 0)
  assert '\n' not in str(e.value)
  assert game in str(e.value)
  return str(e.value)


def test_unknown_game():
  """The message is in the error, and not in a warning as well."""
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    _one_line_error('no_such_game')


def test_unusable_rom(monkeypatch, tmp_path):
  """A ROM that is missing or damaged, and a folder that is."""
  monkeypatch.setenv('ALE_ROMS_DIR', str(tmp_path))
  assert str(tmp_path) in _one_line_error('pong')
  (tmp_path / 'pong.bin').write_bytes(b'table tennis')
  _one_line_error('pong')
  monkeypatch.setenv('ALE_ROMS_DIR', str(tmp_path / 'nowhere'))
  assert 'nowhere' in _one_line_error('pong')


def test_missing_package(monkeypatch):
  """The message says how to install it."""
  monkeypatch.setitem(sys.modules, 'ale_py', None)
  assert 'pip install ale-py' in _one_line_error('pong')


def test_close(make_pool):
  """A closed pool is of no use and has no threads, whatever was under way."""
  threads = lambda: set(os.listdir('/proc/self/task'))
  before = threads()  # Some may be of other tests, and about to end.
  new = make_pool('pong', 2, 0)
  used = make_pool('pong', 4, 0, batch_size=2)
  ids = used.recv().ids
  used.send(ids, np.zeros([2], np.int32))
  assert threads() - before
  for pool in (new, used):
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match='closed'):
      pool.recv()
    with pytest.raises(PoolError, match='closed'):
      pool.send(ids, np.zeros([2], np.int32))
  assert not threads() - before


def test_exit_amid_steps():
  """A process that leaves a pool in the middle of steps ends all the same."""
  subprocess.run([sys.executable, '-c', '''
import numpy as np
from scalable_agent.environments.engines import atari
pools = [atari.AtariPool('pong', 6, 0, batch_size=2) for _ in range(2)]
for pool in pools:
  for _ in range(4):
    pool.send(pool.recv().ids, np.zeros([2], np.int32))
del pools[0]
'''], cwd=_ROOT, check=True, timeout=60)


def test_imports():
  """The interface needs no emulator, and neither part needs TensorFlow."""
  output = subprocess.run([sys.executable, '-c', '''
import sys
heavy = ('ale_py', 'gymnasium', 'tensorflow')
import scalable_agent.environments
print(*(name for name in heavy if name in sys.modules), sep=',')
from scalable_agent.environments.engines import atari
atari.AtariPool('pong', 1, 0).recv()
print('tensorflow' in sys.modules)
'''], cwd=_ROOT, check=True, timeout=60, capture_output=True, text=True).stdout
  assert output.splitlines() == ['', 'False']
