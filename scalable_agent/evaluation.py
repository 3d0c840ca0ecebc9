"""Plays whole games with a trained agent and scores them."""

import json
import math
import os

import numpy as np

from scalable_agent import actor
from scalable_agent import nests
from scalable_agent import score_table


def play(pool, policy, initial_state, num_action_repeats, num_episodes,
         on_episode=lambda episode: None):
  """Plays games, actions sampled from the policy.

  Each environment plays a fixed number of games that is settled beforehand.
  Counting whichever games finish first would favour short ones.

  Args:
    pool: An `environments.Pool` of N environments.
    policy: As for `actor.run_actor`.
    initial_state: Core state, [N, ...].
    num_action_repeats: Environment frames per agent step.
    num_episodes: Games over all environments.
    on_episode: Called with each `actor.Episode` that counts.

  Returns:
    A list of `num_episodes` `actor.Episode`s.

  Raises:
    environments.PoolError: An environment died.
  """
  size = pool.num_environments
  remaining = np.full([size], num_episodes // size)
  remaining[:num_episodes % size] += 1
  core_state = nests.map_arrays(np.copy, initial_state)
  last_actions = np.zeros([size], np.int32)
  episodes = []
  while remaining.any():
    ids, env_output, game_over = pool.recv()
    counts = game_over & (remaining[ids] > 0)
    remaining[ids[counts]] -= 1
    for episode in actor.finished_episodes(
        pool.level_names, ids, env_output.info, counts, num_action_repeats):
      episodes.append(episode)
      on_episode(episode)
    states = nests.map_arrays(lambda a: a[ids], core_state)
    output, states, _ = policy(
        last_actions[ids], env_output._replace(info=()), states)
    pool.send(ids, output.action)
    last_actions[ids] = output.action
    for mine, theirs in zip(nests.flatten(core_state),
                            nests.flatten(states)):
      mine[ids] = theirs
  return episodes


def write_scores(logdir, episodes_by_level, frames, suite_scores=()):
  """Writes `test_scores.json`.

  Args:
    logdir: The run's directory.
    episodes_by_level: A dict of level name to a list of `actor.Episode`s.
    frames: Environment frames the weights were trained on.
    suite_scores: A dict of name to score over all levels, if there is any.

  Returns:
    What was written, a dict: `frames`, suite scores, and `levels`, by name the
    `mean`, `standard_error` (null for one game), `human_normalized_score` (in
    percent, null where there is no human's), `num_episodes` and all
    `episode_returns` and `episode_frames`.
  """
  levels = {}
  for name, episodes in episodes_by_level.items():
    returns = [episode.episode_return for episode in episodes]
    error = (float(np.std(returns, ddof=1)) / math.sqrt(len(returns))
             if len(returns) > 1 else None)
    mean = float(np.mean(returns))
    levels[name] = dict(
        mean=mean,
        standard_error=error,
        human_normalized_score=score_table.human_normalized_score(name, mean),
        num_episodes=len(episodes),
        episode_returns=returns,
        episode_frames=[episode.episode_frames for episode in episodes])
  scores = dict(frames=frames, **dict(suite_scores), levels=levels)
  path = os.path.join(logdir, 'test_scores.json')
  with open(path + '.tmp', 'w') as f:
    f.write(json.dumps(scores, indent=2) + '\n')
  os.replace(path + '.tmp', path)
  return scores
