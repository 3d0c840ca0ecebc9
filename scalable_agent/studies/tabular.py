"""IMPALA on the small world, with a table instead of a network.

A table holds a logit for each square and action, and a value for each square.
Nothing is approximated in it, so what runs differ in is the correction for the
policy lag alone. The targets, losses and the optimizer are those of the agent.
"""

import collections

import numpy as np
import tensorflow as tf

from scalable_agent import losses
from scalable_agent import rmsprop
from scalable_agent.algorithms import corrections
from scalable_agent.environments import small_worlds

Settings = collections.namedtuple(
    'Settings', 'off_policy_correction policy_lag learning_rate num_updates '
    'batch_size unroll_length discounting entropy_cost baseline_cost decay '
    'epsilon',
    defaults=(1200, 8, 20, .98, .01, .5, .99, .1))
Settings.__doc__ = """What a run depends on besides its seed.

  off_policy_correction: One of `corrections.CORRECTIONS`.
  policy_lag: Updates by which the weights that act are held back.
  learning_rate: Float; it stays as it is.
  num_updates: How many updates a run makes.
  batch_size: Unrolls in an update, each of an environment of its own.
  unroll_length: Steps in an unroll.
  discounting: Float, below 1.
  entropy_cost, baseline_cost: As in the agent's loss.
  decay, epsilon: Of RMSProp.
"""


class _Worlds:
  """The environments of all runs, which step together."""

  def __init__(self, num_runs, settings, seed):
    self._random = np.random.default_rng(seed)
    self._shape = settings.unroll_length, num_runs * settings.batch_size
    self._runs = np.repeat(np.arange(num_runs), settings.batch_size)
    self._squares = np.full([self._shape[1]], small_worlds.START, np.int32)

  def unroll(self, logits):
    """Acts for an unroll.

    Args:
      logits: float32 [num_runs, NUM_SQUARES, NUM_ACTIONS].

    Returns:
      A dict of arrays: `states` int32 [T+1, N] and `actions` int32 [T, N], with
      N = num_runs * batch_size; `behaviour_logits` float32 [T, N, NUM_ACTIONS];
      `rewards` float32 [T, N] and `dones` bool [T, N], which follow an action.
    """
    states, steps = [self._squares], []
    for _ in range(self._shape[0]):
      chosen = logits[self._runs, self._squares]
      actions = np.argmax(
          chosen + self._random.gumbel(size=chosen.shape), -1).astype(np.int32)
      squares, rewards, dones = small_worlds.step(
          self._squares, actions, self._random)
      self._squares = np.where(dones, np.int32(small_worlds.START), squares)
      states.append(self._squares)
      steps.append((actions, chosen, rewards, dones))
    names = 'actions', 'behaviour_logits', 'rewards', 'dones'
    return dict(zip(names, map(np.stack, zip(*steps))), states=np.stack(states))


class _Tables(tf.Module):
  """The weights of all runs, and their update."""

  def __init__(self, num_runs, settings):
    super().__init__()
    self._settings = settings
    self.logits = tf.Variable(tf.zeros(
        [num_runs, small_worlds.NUM_SQUARES, small_worlds.NUM_ACTIONS]))
    self.values = tf.Variable(tf.zeros([num_runs, small_worlds.NUM_SQUARES]))
    self._optimizer = rmsprop.RMSProp(
        settings.learning_rate, settings.decay, epsilon=settings.epsilon)
    self._optimizer.build([self.logits, self.values])
    self._firsts = np.repeat(
        np.arange(num_runs), settings.batch_size) * small_worlds.NUM_SQUARES

  @tf.function(autograph=False)
  def update(self, states, actions, behaviour_logits, rewards, dones):
    """Makes an update; see `_Worlds.unroll` for the arguments."""
    settings = self._settings
    rows = self._firsts + tf.cast(states, tf.int64)
    with tf.GradientTape() as tape:
      logits = tf.gather(
          tf.reshape(self.logits, [-1, small_worlds.NUM_ACTIONS]), rows[:-1])
      values = tf.gather(tf.reshape(self.values, [-1]), rows)
      returns = corrections.from_logits(
          settings.off_policy_correction, 'target',
          behaviour_policy_logits=behaviour_logits,
          target_policy_logits=tf.stop_gradient(logits),
          actions=actions,
          discounts=tf.cast(~dones, tf.float32) * settings.discounting,
          rewards=rewards,
          values=tf.stop_gradient(values[:-1]),
          bootstrap_value=tf.stop_gradient(values[-1]))
      # Runs share no entry of a table, so the sum keeps them apart.
      loss = (
          losses.compute_policy_gradient_loss(
              logits, actions, returns.pg_advantages, epsilon=
              corrections.epsilon_of(settings.off_policy_correction)) +
          settings.baseline_cost * losses.compute_baseline_loss(
              returns.vs - values[:-1]) +
          settings.entropy_cost * losses.compute_entropy_loss(logits))
    variables = [self.logits, self.values]
    gradients = map(
        tf.convert_to_tensor, tape.gradient(loss, variables))
    self._optimizer.apply_gradients(zip(gradients, variables))


def train(settings, num_runs, seed):
  """Trains tables that differ in their random numbers alone.

  Update n trains on what the weights of update max(0, n - policy_lag) did.

  Args:
    settings: A `Settings`.
    num_runs: How many runs.
    seed: Int. The same seed gives the same random numbers.

  Returns:
    float64 [num_runs], what the policy of each run is worth at its end: the
    expected discounted return, computed exactly.
  """
  worlds = _Worlds(num_runs, settings, seed)
  tables = _Tables(num_runs, settings)
  published = collections.deque(maxlen=settings.policy_lag + 1)
  for _ in range(settings.num_updates):
    published.append(tables.logits.numpy())
    tables.update(**worlds.unroll(published[0]))
  return small_worlds.returns(
      tf.nn.softmax(tables.logits).numpy(), settings.discounting)
