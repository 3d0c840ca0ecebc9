"""Plays an Atari game with an agent that --mode=export wrote.

    python launch/play_export.py /tmp/pong/export --episodes=10

This needs TensorFlow and ale-py, and nothing of scalable_agent: copy it. The
game is played by the paper's protocol, as in --mode=test.
"""

import argparse
import json
import os

from ale_py import vector_env
import numpy as np
import tensorflow as tf


def make_games(metadata, num_games, seed):
  """Makes games that run at once, of the level that the agent was trained on.

  Args:
    metadata: The export's, a dict.
    num_games: An int.
    seed: An int; game i draws its no-ops with seed + i.
  """
  height, width, stack = metadata['frame']['shape']
  return vector_env.AtariVectorEnv(
      game=metadata['level_name'],
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


def play(export_dir, num_games, seed):
  """Plays whole games, actions drawn from the policy.

  Args:
    export_dir: The directory of the export.
    num_games: How many to play, all at once.
    seed: An int, of the games and of the policy.

  Returns:
    The games' returns, float64 [num_games].
  """
  with open(os.path.join(export_dir, 'metadata.json')) as f:
    metadata = json.load(f)
  model = tf.saved_model.load(export_dir)
  initial_state, step = (model.signatures[name]
                         for name in ('initial_state', 'step'))
  games = make_games(metadata, num_games, seed)
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
  args = parser.parse_args()
  returns = play(args.export_dir, args.episodes, args.seed)
  print('returns:', *returns)
  print(f'mean: {returns.mean():.2f}')


if __name__ == '__main__':
  main()
