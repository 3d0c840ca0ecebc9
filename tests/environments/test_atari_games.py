"""Every game under the pool: action sets, and random steps.

2,000 random steps, and the full action set, are tried in the games that the
paper tuned on; set ALL_GAMES=1 in the environment to try all 57, which takes
minutes.
"""

import os

from ale_py import ALEInterface
from ale_py import Action
from ale_py import LoggerMode
from ale_py import roms
import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent.environments.engines import atari
from scalable_agent.environments.pools import composite_pool

pytestmark = pytest.mark.usefixtures('bounded')
ALEInterface.setLoggerMode(LoggerMode.Error)

_TUNED_ON = ('breakout', 'pong', 'space_invaders', 'seaquest', 'beam_rider',
             'qbert')
_PLAYED = atari57.GAMES if os.environ.get('ALL_GAMES') else _TUNED_ON


def _starts(game, full_action_set, num_actions):
  """Whether it has so many actions, and steps with the first and the last."""
  pool = atari.AtariPool(
      game, 1, seed=1, num_threads=1, full_action_set=full_action_set)
  assert pool.num_actions == num_actions
  for action in (0, num_actions - 1):
    output = pool.recv()
    pool.send(output.ids, np.array([action]))
  pool.recv()
  pool.close()


@pytest.mark.parametrize('game', atari57.GAMES)
def test_every_game_starts_with_its_own_actions(game):
  """The minimal set as ALE has it."""
  ale = ALEInterface()
  ale.loadROM(roms.get_rom_path(game))
  # Only Skiing, which has no fire button, has less than all 18.
  assert len(ale.getLegalActionSet()) == (9 if game == 'skiing' else 18)
  _starts(game, False, len(ale.getMinimalActionSet()))


@pytest.mark.parametrize('game', sorted({'skiing', *_PLAYED}))
def test_games_start_with_all_18_actions(game):
  _starts(game, True, 18)


@pytest.mark.parametrize('game', _PLAYED)
def test_random_steps(game):
  """2,000 of them: whole rewards, returns that add up, frames that move."""
  size = 2  # Emulators take long to make, so few play for long.
  pool = atari.AtariPool(game, size, seed=3)
  rng = np.random.RandomState(0)
  totals = np.zeros([size])
  previous = 0
  moved = np.zeros([size], bool)
  for step in range(2000 // size + 1):
    ids, output, _, is_last = pool.recv()
    assert np.isfinite(output.reward).all()
    np.testing.assert_array_equal(output.reward, np.round(output.reward))
    totals[ids] += output.reward
    np.testing.assert_array_equal(output.info.episode_return, totals[ids])
    assert (output.done | ~is_last).all()
    totals[ids[is_last]] = 0
    (frames,) = output.observation
    moved[ids] |= (frames != previous).any(axis=(1, 2, 3)) & (step > 0)
    previous = frames
    pool.send(ids, rng.randint(pool.num_actions, size=size))
  pool.close()
  assert moved.all()


def test_all_18_actions_of_skiing_are_what_they_say():
  """Each does what the emulator does at its name; firing does nothing."""
  make = lambda **kwargs: atari.AtariPool(
      'skiing', 1, seed=5, num_threads=1, **kwargs)
  ale = ALEInterface()
  ale.loadROM(roms.get_rom_path('skiing'))
  names = [action.name for action in ale.getMinimalActionSet()]
  assert names == ['NOOP', 'RIGHT', 'LEFT']
  all_actions = {action.name: action.value for action in Action}
  all_names = sorted(all_actions, key=all_actions.get)[:18]
  assert all_names[:5] == ['NOOP', 'FIRE', 'UP', 'RIGHT', 'LEFT']
  full, own = make(full_action_set=True), make()
  rng = np.random.RandomState(0)
  for _ in range(100):
    frames = [pool.recv().step_output.observation[0] for pool in (full, own)]
    np.testing.assert_array_equal(*frames)
    name = names[rng.randint(3)]
    same = [name] if name != 'NOOP' else [
        'NOOP'] + [n for n in all_names if n.endswith('FIRE')]
    full.send(np.array([0]), np.array([all_actions[rng.choice(same)]]))
    own.send(np.array([0]), np.array([names.index(name)]))
  full.close()
  own.close()


def test_several_games_as_one_pool_play_as_they_would_alone():
  games = ('pong', 'breakout', 'qbert')
  sizes = (1, 2, 1)
  make = lambda: [
      atari.AtariPool(game, size, seed=5, num_threads=1, full_action_set=True)
      for game, size in zip(games, sizes)]
  together, alone = composite_pool.CompositePool(make()), make()
  starts = np.cumsum([0, *sizes])
  rng = np.random.RandomState(0)
  for _ in range(30):
    joint = together.recv()
    order = np.argsort(joint.ids)
    actions = rng.randint(18, size=sum(sizes)).astype(np.int32)
    for start, end, pool in zip(starts, starts[1:], alone):
      output = pool.recv()
      mine = order[start:end][output.ids]
      np.testing.assert_array_equal(
          joint.step_output.observation[0][mine],
          output.step_output.observation[0])
      np.testing.assert_array_equal(
          joint.step_output.reward[mine], output.step_output.reward)
      pool.send(output.ids, actions[start + output.ids])
    together.send(joint.ids, actions[joint.ids])
  for pool in (together, *alone):
    pool.close()
