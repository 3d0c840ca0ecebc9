"""The grid: its values, and that what can be played is what is computed."""

import numpy as np
import pytest

from scalable_agent.environments import small_worlds
from scalable_agent.environments.engines import gym_ids

_DISCOUNTING = .98
# What the best policy is worth, by value iteration outside of this project.
_OPTIMUM = .4532


def _random_policy(seed):
  random = np.random.default_rng(seed)
  return random.dirichlet(
      np.ones(small_worlds.NUM_ACTIONS), small_worlds.NUM_SQUARES)


def _optimal_policy():
  """Policy iteration on the returns of all policies that differ in a square."""
  policy = np.full([small_worlds.NUM_SQUARES, small_worlds.NUM_ACTIONS], .25)
  actions = np.eye(small_worlds.NUM_ACTIONS)
  for _ in range(20):
    for square in range(small_worlds.NUM_SQUARES):
      others = np.tile(policy, [small_worlds.NUM_ACTIONS, 1, 1])
      others[:, square] = actions
      best = np.argmax(small_worlds.returns(others, _DISCOUNTING))
      policy[square] = actions[best]
  return policy


def test_the_best_policy_is_worth_what_is_known():
  best = small_worlds.returns(_optimal_policy(), _DISCOUNTING)
  assert best == pytest.approx(_OPTIMUM, abs=1e-4)


@pytest.mark.parametrize('seed', [0, 1])
def test_episodes_return_what_is_computed(seed):
  policy, random = _random_policy(seed), np.random.default_rng(seed)
  num_episodes = 20_000
  squares = np.full([num_episodes], small_worlds.START, np.int32)
  totals, discount = np.zeros([num_episodes]), 1.
  going = np.arange(num_episodes)
  for _ in range(1000):
    actions = np.argmax(
        np.log(policy[squares]) + random.gumbel(size=[len(going), 4]), -1)
    squares, rewards, dones = small_worlds.step(squares, actions, random)
    totals[going] += discount * rewards
    going, squares = going[~dones], squares[~dones]
    discount *= _DISCOUNTING
  error = np.std(totals) / np.sqrt(num_episodes)
  assert np.mean(totals) == pytest.approx(
      small_worlds.returns(policy, _DISCOUNTING), abs=4 * error)
  assert error < .01


def test_many_policies_at_once_are_worth_what_each_is():
  policies = np.stack([_random_policy(seed) for seed in range(3)])
  alone = [small_worlds.returns(policy, _DISCOUNTING) for policy in policies]
  np.testing.assert_allclose(
      small_worlds.returns(policies, _DISCOUNTING), alone, rtol=1e-12)


def test_a_move_goes_where_it_wants_or_slips():
  random = np.random.default_rng(0)
  right, num = 3, 40_000
  squares, rewards, dones = small_worlds.step(
      np.full([num], 12), np.full([num], right), random)
  share = .8 + .2 / 4
  assert np.mean(squares == 13) == pytest.approx(share, abs=.01)
  for other in (7, 11, 17):
    assert np.mean(squares == other) == pytest.approx(.05, abs=.005)
  assert not rewards.any() and not dones.any()


def test_the_environment_is_the_same_world():
  env = gym_ids.make('gym:scalable_agent.environments.small_worlds:Grid-v0')
  observation, _ = env.reset(seed=3)
  assert np.argmax(observation) == small_worlds.START
  assert env.observation_space.contains(observation)
  random, ends = np.random.default_rng(3), set()
  for _ in range(5000):
    before = int(np.argmax(observation))
    observation, reward, terminated, truncated, _ = env.step(
        int(random.integers(4)))
    square = int(np.argmax(observation))
    assert square in small_worlds.MOVES[before]
    assert reward == small_worlds.REWARDS[square]
    assert terminated == (reward != 0)
    if terminated or truncated:
      ends.add(square)
      observation, _ = env.reset()
  assert {small_worlds.GOAL, *small_worlds.CLIFFS} <= ends
