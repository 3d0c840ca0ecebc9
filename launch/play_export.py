"""Plays an Atari game with an agent that --mode=export wrote.

    python launch/play_export.py /tmp/pong/export --episodes=10
    python launch/play_export.py /tmp/atari57/export --game=breakout

This needs TensorFlow and ale-py, and nothing of scalable_agent: copy it. The
game is played by the paper's protocol, as in --mode=test.
"""

import argparse
import json
import os
import sys

from ale_py import roms
from ale_py import vector_env
import numpy as np
import tensorflow as tf

# Read with the first operation. Else TensorFlow takes all of a GPU's memory.
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
# The level that an agent for all games was trained on.
_ALL_GAMES = 'atari57'
# Seeds of games, which follow each other from it, have to fit 31 bits.
_MAX_SEED = 2_000_000_000


def choose_game(metadata, asked):
  """Returns the game to play.

  Args:
    metadata: The export's, a dict.
    asked: What the user says, None for the game that the agent was trained on.

  Raises:
    ValueError: It cannot be played; the message is one line.
  """
  level = metadata['level_name']
  if metadata['suite'] != 'atari':
    raise ValueError(f'The agent was trained on {level}, and only games of '
                     'Atari can be played here.')
  if level != _ALL_GAMES:
    if asked not in (None, level):
      raise ValueError(f'--game={asked}: the agent was trained on {level}.')
    return level
  if asked is None:
    raise ValueError('The agent was trained on all games: choose one with '
                     '--game, such as --game=pong.')
  if asked not in roms.get_all_rom_ids():
    raise ValueError(f'--game={asked} is no game of the installed ale-py.')
  if asked == 'skiing':
    # What the network calls actions 2 to 17 are others in ALE.
    raise ValueError('--game=skiing has 9 actions where the agent has 18. Test '
                     'it with scalable_agent.experiment --mode=test.')
  return asked


def make_games(metadata, game, num_games, seed):
  """Makes games that run at once, as they were when the agent was trained.

  Args:
    metadata: The export's, a dict.
    game: Name in snake case.
    num_games: An int.
    seed: An int; game i draws its no-ops with seed + i.
  """
  height, width, stack = metadata['frame']['shape']
  return vector_env.AtariVectorEnv(
      game=game,
      num_envs=num_games,
      img_height=height,
      img_width=width,
      stack_num=stack,
      frameskip=metadata['num_action_repeats'],
      full_action_space=metadata['full_action_set'],
      max_num_frames_per_episode=108000,
      noop_max=31,  # 0 to 30.
      repeat_action_probability=0.0,
      use_fire_reset=False,
      reward_clipping=False,
      episodic_life=False,
      autoreset_mode='SameStep')


def play(export_dir, num_games, seed, game=None):
  """Plays whole games, actions drawn from the policy.

  Args:
    export_dir: The directory of the export.
    num_games: How many to play, all at once.
    seed: An int, of the games and of the policy.
    game: Which one, if the agent plays all.

  Returns:
    The games' returns, float64 [num_games].

  Raises:
    OSError: There is no export.
    ValueError: An argument cannot work; the message is one line.
  """
  if num_games < 1:
    raise ValueError(f'--episodes={num_games}: it has to be 1 or more.')
  if not 0 <= seed <= _MAX_SEED:
    raise ValueError(f'--seed={seed}: it has to be from 0 to {_MAX_SEED:,}.')
  with open(os.path.join(export_dir, 'metadata.json')) as f:
    metadata = json.load(f)
  game = choose_game(metadata, game)
  model = tf.saved_model.load(export_dir)
  initial_state, step = (model.signatures[name]
                         for name in ('initial_state', 'step'))
  games = make_games(metadata, game, num_games, seed)
  actions = np.array(metadata['actions'])

  state = initial_state(
      batch_size=tf.constant(num_games), seed=tf.constant(seed))
  frames, info = games.reset(seed=seed)
  lives = info['lives']
  reward = np.zeros([num_games])
  done = np.ones([num_games], bool)
  returns = np.zeros([num_games])
  plays = np.ones([num_games], bool)
  while plays.any():
    output = step(
        # The stack is the channels.
        frame=tf.constant(np.moveaxis(frames, 1, -1)),
        reward=tf.constant(reward, tf.float32),
        done=tf.constant(done),
        **state)
    state = {name: output[name] for name in state}
    frames, reward, terminated, truncated, info = games.step(
        actions[output['action'].numpy()])
    is_over = terminated | truncated
    # To the agent, the loss of a life ends an episode.
    done = is_over | (info['lives'] < lives)
    lives = info['lives']
    returns += np.where(plays, reward, 0.0)
    plays &= ~is_over
  return returns


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('export_dir', help='Directory of the export.')
  parser.add_argument('--episodes', type=int, default=10, help='Games to play.')
  parser.add_argument('--seed', type=int, default=1, help='Of the games.')
  parser.add_argument('--game', help='Which game, if the agent plays all.')
  args = parser.parse_args()
  try:
    returns = play(args.export_dir, args.episodes, args.seed, args.game)
  except (OSError, ValueError) as e:
    sys.exit(f'Error: {e}')
  print('returns:', *returns)
  print(f'mean: {returns.mean():.2f}')


if __name__ == '__main__':
  main()
