"""A world so small that what a policy is worth can be computed.

    python -m scalable_agent.experiment \\
        --level_name=gym:scalable_agent.environments.small_worlds:Grid-v0

The map has a start S, a goal G of reward 1, and four cliffs X of reward -1.
Goal and cliffs end the episode.

    S . . . .
    . X . X .
    . . . . .
    . X . X .
    . . . . G
"""

import gymnasium
import numpy as np

SIZE = 5
NUM_SQUARES = SIZE * SIZE
NUM_ACTIONS = 4
START = 0
GOAL = NUM_SQUARES - 1
CLIFFS = (6, 8, 16, 18)
# How often a move goes into a random one of the four directions.
SLIP = .2

_MAX_EPISODE_STEPS = 200
_DIRECTIONS = (-1, 0), (1, 0), (0, -1), (0, 1)  # Up, down, left, right.


def _make_moves():
  moves = np.zeros([NUM_SQUARES, NUM_ACTIONS], np.int32)
  for square in range(NUM_SQUARES):
    for action, (down, right) in enumerate(_DIRECTIONS):
      row, column = np.clip(
          np.add(divmod(square, SIZE), (down, right)), 0, SIZE - 1)
      moves[square, action] = SIZE * row + column
  return moves


def _make_rewards():
  rewards = np.zeros([NUM_SQUARES], np.float32)
  rewards[GOAL] = 1.
  rewards[list(CLIFFS)] = -1.
  return rewards


# int32 [NUM_SQUARES, NUM_ACTIONS]: the square that a move leads to.
MOVES = _make_moves()
# float32 [NUM_SQUARES]: the reward for coming there. Any but 0 ends the
# episode.
REWARDS = _make_rewards()


def step(squares, actions, random):
  """Makes a step in any number of worlds.

  Args:
    squares: int32 [N].
    actions: int32 [N].
    random: A `np.random.Generator`.

  Returns:
    The squares reached, int32 [N]; the rewards, float32 [N]; and whether the
    episode is over, bool [N].
  """
  slips = random.random(len(squares)) < SLIP
  directions = np.where(
      slips, random.integers(NUM_ACTIONS, size=len(squares)), actions)
  squares = MOVES[squares, directions]
  rewards = REWARDS[squares]
  return squares, rewards, rewards != 0


def returns(policies, discounting):
  """Computes what policies are worth, by their Bellman equations.

  Args:
    policies: float [..., NUM_SQUARES, NUM_ACTIONS], probabilities.
    discounting: Float, below 1.

  Returns:
    float64 [...], the expected discounted return from the start.
  """
  policies = np.asarray(policies, np.float64)
  directions = (1. - SLIP) * policies + SLIP / NUM_ACTIONS
  transitions = np.einsum(
      '...sd,sdn->...sn', directions, np.eye(NUM_SQUARES)[MOVES])
  rewards = transitions @ REWARDS.astype(np.float64)
  goes_on = discounting * transitions * (REWARDS == 0)
  values = np.linalg.solve(
      np.eye(NUM_SQUARES) - goes_on, rewards[..., np.newaxis])
  return values[..., START, 0]


class Grid(gymnasium.Env):
  """The world of this file; an observation is the square, one-hot."""

  observation_space = gymnasium.spaces.Box(
      0., 1., (NUM_SQUARES,), np.float32)
  action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._squares = np.array([START])
    return self._observe(), {}

  def step(self, action):
    self._squares, (reward,), (done,) = step(
        self._squares, np.array([action]), self.np_random)
    return self._observe(), float(reward), bool(done), False, {}

  def _observe(self):
    return np.eye(NUM_SQUARES, dtype=np.float32)[self._squares[0]]


gymnasium.register('Grid-v0', Grid, max_episode_steps=_MAX_EPISODE_STEPS)
