"""The T-maze: what it is worth with memory and without, and what it shows."""

import itertools

import numpy as np
import pytest

from scalable_agent.environments import t_maze
from scalable_agent.environments.engines import gym
from scalable_agent.environments.engines import gym_ids
from scalable_agent.environments.t_maze import FORWARD, LEFT, RIGHT

_LEVEL = 'gym:scalable_agent.environments.t_maze:TMaze-v0'
_CORRIDOR, _JUNCTION = 2, 3
# What an agent sees of its last step, by its action and reward: that it went
# forward, or _STAYED plus an action that did not lead to another square.
_WALKED, _STAYED = 0, 1
_NUM_LAST = 4


def _play(env, policy, **kwargs):
  """Plays an episode; returns its observations and its rewards.

  Args:
    env: A `gymnasium.Env`.
    policy: A function of the observations so far, a list of ints.
    **kwargs: Of `reset`.
  """
  observation, _ = env.reset(**kwargs)
  seen, rewards, is_over = [int(np.argmax(observation))], [], False
  while not is_over:
    observation, reward, terminated, truncated, _ = env.step(policy(seen))
    seen.append(int(np.argmax(observation)))
    rewards.append(reward)
    is_over = terminated or truncated
  return seen, rewards


def _best_policy(seen):
  return seen[0] if seen[-1] == _JUNCTION else FORWARD


def _returns(policies):
  """Computes what policies without memory return on average over both sides.

  Args:
    policies: float64 [N, 4, _NUM_LAST, 3], probabilities of the actions by the
      observation and the last step.

  Returns:
    float64 [N].
  """
  total = np.zeros(len(policies))
  for side in (LEFT, RIGHT):
    # Of being at a square after a last step.
    there = np.zeros([len(policies), t_maze.JUNCTION + 1, _NUM_LAST])
    there[:, t_maze.START, _WALKED] = 1.
    squares = np.arange(t_maze.JUNCTION + 1)
    by_square = policies[:, t_maze.observe(squares, side)]
    for _ in range(t_maze.MAX_EPISODE_STEPS):
      before, there = there, np.zeros_like(there)
      for action in range(3):
        flow = before * by_square[..., action]
        reached, rewards, dones = t_maze.step(squares, side, action)
        total += .5 * np.einsum('nsl,s->n', flow, rewards)
        walks = ~dones & (reached != squares)
        stays = ~dones & (reached == squares)
        walked = _WALKED if action == FORWARD else _STAYED + action
        there[:, reached[walks], walked] += flow[:, walks].sum(-1)
        there[:, reached[stays], _STAYED + action] += flow[:, stays].sum(-1)
  return total


def _play_all(policies, side):
  """Returns the returns of policies that take one action, float64 [N].

  Args:
    policies: int [N, 4, _NUM_LAST], the actions by the observation and the last
      step.
    side: LEFT or RIGHT.
  """
  everyone = np.arange(len(policies))
  squares = np.full_like(everyone, t_maze.START)
  lasts = np.full_like(everyone, _WALKED)
  totals, is_going = np.zeros(len(policies)), np.ones(len(policies), bool)
  for _ in range(t_maze.MAX_EPISODE_STEPS):
    actions = policies[everyone, t_maze.observe(squares, side), lasts]
    before = squares
    squares, rewards, dones = t_maze.step(squares, side, actions)
    totals += is_going * rewards
    is_going &= ~dones
    lasts = np.where((actions == FORWARD) & (squares != before),
                     _WALKED, _STAYED + actions)
  return totals


def test_the_best_policy_returns_1_in_10_steps():
  env = gym_ids.make(_LEVEL)
  for seed in range(20):
    observation, _ = env.reset(seed=seed)
    assert env.observation_space.contains(observation)
    assert observation.dtype == np.float32
    seen, rewards = _play(env, _best_policy, seed=seed)
    assert seen[:-1] == [seen[0]] + 8 * [_CORRIDOR] + [_JUNCTION]
    assert rewards == 9 * [0.] + [1.]


def test_the_other_turn_costs_as_much():
  env = gym_ids.make(_LEVEL)
  for seed in range(20):
    _, rewards = _play(
        env, lambda seen: (1 - seen[0] if seen[-1] == _JUNCTION else FORWARD),
        seed=seed)
    assert rewards == 9 * [0.] + [-1.]


def test_without_memory_0_is_the_best():
  """Of all policies that see their last step, none tells the sides apart.

  At the start they go by the side alone. In the corridor no step forward has
  failed, so nothing depends on what they do then.
  """
  choices = np.array(list(itertools.product(range(3), repeat=9)))
  policies = np.full([len(choices), 4, _NUM_LAST], FORWARD)
  policies[:, LEFT] = choices[:, :1]
  policies[:, RIGHT] = choices[:, 1:2]
  policies[:, _CORRIDOR, :-1] = choices[:, 2:5]
  policies[:, _JUNCTION] = choices[:, 5:]
  totals = sum(_play_all(policies, side) for side in (LEFT, RIGHT))
  assert np.max(totals) == pytest.approx(0., abs=1e-9)


@pytest.mark.parametrize('forward', [.5, 8.])
def test_no_chance_takes_the_place_of_memory(forward):
  random = np.random.default_rng(0)
  policies = random.dirichlet([.5, .5, forward], [300, 4, _NUM_LAST])
  assert np.max(_returns(policies)) <= 1e-9


def test_episodes_return_what_is_computed():
  random = np.random.default_rng(1)
  policy = random.dirichlet([1., 1., 8.], 4)
  env = gym_ids.make(_LEVEL)
  env.reset(seed=1)
  totals = [
      np.sum(_play(env, lambda seen: random.choice(3, p=policy[seen[-1]]))[1])
      for _ in range(300)]
  expected, = _returns(np.repeat(policy[:, np.newaxis], _NUM_LAST, 1)[None])
  error = np.std(totals) / np.sqrt(len(totals))
  assert np.mean(totals) == pytest.approx(expected, abs=4 * error)
  assert error < .08


@pytest.mark.parametrize('num_steps', [0, 1, 8, 9])
def test_what_changes_nothing_costs_a_little_and_shows_nothing(num_steps):
  """Turns before the junction, and steps forward at it."""
  env = gym_ids.make(_LEVEL)
  observation, _ = env.reset(seed=0)
  for _ in range(num_steps):
    observation, *_ = env.step(FORWARD)
  for action in [FORWARD] if num_steps == 9 else [LEFT, RIGHT]:
    after, reward, terminated, truncated, info = env.step(action)
    np.testing.assert_array_equal(after, observation)
    assert reward == pytest.approx(-.05)
    assert not terminated and not truncated and not info


def test_an_episode_is_bounded():
  for action in (LEFT, FORWARD):
    env = gym_ids.make(_LEVEL)
    _, rewards = _play(env, lambda _, action=action: action)
    assert len(rewards) == 50
    assert rewards[-1] == pytest.approx(-.05)


def test_sides_are_balanced_and_follow_no_pattern():
  env, num = gym_ids.make(_LEVEL), 4000
  env.reset(seed=7)
  sides = np.array([np.argmax(env.reset()[0]) for _ in range(num)])
  assert set(sides) == {LEFT, RIGHT}
  five_sigma = 2.5 / np.sqrt(num)
  assert np.mean(sides) == pytest.approx(.5, abs=five_sigma)
  for lag in range(1, 5):
    assert np.mean(sides[lag:] == sides[:-lag]) == pytest.approx(
        .5, abs=1.05 * five_sigma)


def test_a_seed_gives_the_same_sides_again():
  def draw(seed):
    env = gym_ids.make(_LEVEL)
    first, _ = env.reset(seed=seed)
    return [np.argmax(first)] + [np.argmax(env.reset()[0]) for _ in range(60)]

  assert draw(3) == draw(3)
  assert draw(3) != draw(4)


def test_the_pool_sees_four_floats_and_three_actions():
  environment = gym.make_environment(_LEVEL, seed=5)
  spec, = environment.observation_spec
  assert (spec.shape, spec.dtype) == ((4,), np.float32)
  assert environment.num_actions == 3
  (first,) = environment.initial()
  assert first.dtype == np.float32 and first.sum() == 1.
  side = int(np.argmax(first))
  for _ in range(9):
    assert environment.step(FORWARD)[:2] == (0., False)
  reward, done, (observation,) = environment.step(side)
  assert (reward, done) == (1., True)
  assert np.argmax(observation) in (LEFT, RIGHT)  # The next episode's start.
