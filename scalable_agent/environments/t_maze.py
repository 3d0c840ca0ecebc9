"""The T-maze: a world that only an agent with memory can solve.

    python -m scalable_agent.experiment --use_lstm \\
        --level_name=gym:scalable_agent.environments.t_maze:TMaze-v0

Bakker, "Reinforcement Learning with Long Short-Term Memory", 2001. The agent
starts at S, goes through a corridor of 8 squares, and turns at the junction J:

                        left
    S . . . . . . . . J
                        right

Observations, one-hot, float32 [4]: where the agent is, and at S the side to
turn to at J.

    0, 1  at S, the side is left or right; each in half of the episodes
    2     in the corridor, which looks the same everywhere
    3     at the junction, which looks the same for both sides

Actions: 0 turns left, 1 turns right, 2 goes forward. Turns away from J, and
going forward at J, change nothing.

Rewards: 1 for the turn to the right side and -1 for the other; both end the
episode. -0.05 for each action that changes nothing, 0 for a step forward.
After 50 steps the episode ends without another reward.

The best policy returns 1 in 10 steps. Without memory the best is to walk and to
turn either way, which returns 0 on average. For this the wrong turn costs as
much as the right one gives: a return of 0 is chance, and any above it is
memory. Two rules keep it so. An agent sees its last action and reward too,
which must not tell the side: going forward alone leads from square to square,
always for a reward of 0. And an agent must not gain by staying at S for the
side that it would miss: 50 steps there cost 2.5, more than a wrong turn.
"""

import gymnasium
import numpy as np

LENGTH = 8
START = 0
JUNCTION = LENGTH + 1
LEFT, RIGHT, FORWARD = range(3)
MAX_EPISODE_STEPS = 50

_AT_CORRIDOR, _AT_JUNCTION = 2, 3
_NUM_OBSERVATIONS = 4
_STAY_REWARD = -.05


def step(squares, sides, actions):
  """Makes a step in any number of mazes.

  Args:
    squares: int [N], from START to JUNCTION.
    sides: int [N], LEFT or RIGHT, the side to turn to.
    actions: int [N].

  Returns:
    The squares reached, int [N]; the rewards, float64 [N]; and whether the
    episode is over, bool [N].
  """
  at_junction = squares == JUNCTION
  walks = (actions == FORWARD) & ~at_junction
  dones = (actions != FORWARD) & at_junction
  rewards = np.where(
      dones, np.where(actions == sides, 1., -1.),
      np.where(walks, 0., _STAY_REWARD))
  return squares + walks, rewards, dones


def observe(squares, sides):
  """Returns which of the four observations are made, int [N].

  Args:
    squares: As in `step`.
    sides: As in `step`.
  """
  return np.where(
      squares == START, sides,
      np.where(squares == JUNCTION, _AT_JUNCTION, _AT_CORRIDOR))


class TMaze(gymnasium.Env):
  """The T-maze as an environment of Gymnasium."""

  observation_space = gymnasium.spaces.Box(
      0., 1., (_NUM_OBSERVATIONS,), np.float32)
  action_space = gymnasium.spaces.Discrete(3)

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    self._squares = np.array([START])
    self._sides = self.np_random.integers(2, size=1)
    return self._observe(), {}

  def step(self, action):
    self._squares, (reward,), (done,) = step(
        self._squares, self._sides, np.array([action]))
    return self._observe(), float(reward), bool(done), False, {}

  def _observe(self):
    (observation,) = observe(self._squares, self._sides)
    return np.eye(_NUM_OBSERVATIONS, dtype=np.float32)[observation]


gymnasium.register('TMaze-v0', TMaze, max_episode_steps=MAX_EPISODE_STEPS)
