import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent import trajectories
from scalable_agent.environments import StepOutput
from scalable_agent.networks import torsos
from tests.networks import agents
from tests.networks import block_cell


def test_agent_output_is_the_one_of_trajectories():
  assert networks.AgentOutput is trajectories.AgentOutput


@pytest.mark.parametrize('instruction', [False, True])
@pytest.mark.parametrize('use_lstm', [False, True])
@pytest.mark.parametrize('torso', torsos.TORSOS)
def test_unroll_equals_steps(torso, use_lstm, instruction):
  """Logits, baselines and core state, with episodes that end on the way."""
  agent = agents.make(torso, use_lstm, instruction)
  agents.assert_unroll_equals_steps(
      agent, agents.params(agent), torso, instruction)


def test_done_resets_the_core_before_that_step():
  """From there on the past does not matter; without done it does."""
  agent = agents.make('vector', True)
  params = agents.params(agent)
  actions, env_outputs = agents.inputs('vector', 4, 2)
  done = np.zeros([4, 2], bool)
  done[2, 0] = True
  env_outputs = env_outputs._replace(done=tf.constant(done))
  (logits, _), state = agent.unroll(
      params, actions, env_outputs, agents.random_state(2, seed=1))
  (others, _), other_state = agent.unroll(
      params, actions, env_outputs, agents.random_state(2, seed=2))
  difference = np.abs(logits - others).max(axis=-1)
  np.testing.assert_array_equal(
      difference > 1e-4, [[True, True], [True, True], [False, True],
                          [False, True]])
  np.testing.assert_array_equal(state.c[0], other_state.c[0])

  late = lambda a: a[2:, :1]
  (fresh, _), _ = agent.unroll(
      params, late(actions),
      tree.map_structure(late, env_outputs)._replace(
          done=tf.constant([[False], [False]])),
      agent.initial_state(1))
  agents.assert_close(late(logits), fresh)


def test_core_is_block_cell_over_torso_reward_action_and_instruction():
  """The core's inputs, in this order, through TensorFlow 1's kernel."""
  agent = agents.make('vector', True, instruction=True)
  params = agents.params(agent)
  (action,), env_output = agents.inputs('vector', 1, 6, instruction=True)
  frame, words = tree.map_structure(lambda a: a[0], env_output.observation)
  reward = tf.constant([[-3.], [-1.], [-.5], [.25], [1.], [7.]])
  env_output = env_output._replace(
      reward=tf.transpose(reward), done=tf.zeros([1, 6], tf.bool))
  torso = frame
  for i in range(2):
    torso = tf.nn.relu(tf.matmul(torso, params[f'torso/linear_{i}/w'])
                       + params[f'torso/linear_{i}/b'])
  core_input = tf.concat(
      [torso, tf.constant([[-1.], [-1.], [-.5], [.25], [1.], [1.]]),
       np.eye(agents.NUM_ACTIONS, dtype=np.float32)[action.numpy()],
       block_cell.encode(params, words.numpy())], axis=1)
  state = agents.random_state(6)
  expected = block_cell.step(params, 'core', core_input, state)
  (logits, baseline), next_state = agent.unroll(
      params, [action], env_output, state)
  agents.assert_close(next_state, expected)
  agents.assert_close(
      logits[0], tf.matmul(expected.h, params['policy_logits/w'])
      + params['policy_logits/b'])
  agents.assert_close(
      baseline[0], (tf.matmul(expected.h, params['baseline/w'])
                    + params['baseline/b'])[:, 0])


@pytest.mark.parametrize('torso', torsos.TORSOS)
def test_initial_weights(torso):
  """As released: each drawn once from its distribution, biases zero."""
  params = agents.make(torso, True, instruction=True).initial_params(0)
  drawn = []
  for name, values in params.items():
    assert isinstance(values, np.ndarray) and values.dtype == np.float32
    if name.endswith('/b'):
      assert not values.any()
      continue
    if name in ('core/w', 'instruction/lstm/w'):
      limit = (6 / sum(values.shape)) ** .5
      agents.assert_uniform(name, values, limit)
      drawn.append(values.ravel()[:50] / limit)
      continue
    stddev = (1000 ** -.5 if name == 'instruction/embedding'
              else np.prod(values.shape[:-1]) ** -.5)
    agents.assert_truncated_normal(name, values, stddev)
    drawn.append(values.ravel()[:50] / stddev)
  for i, one in enumerate(drawn):
    for other in drawn[:i]:
      size = min(len(one), len(other))
      assert not np.allclose(one[:size], other[:size])


def test_initial_weights_are_the_seeds():
  agent = agents.make('shallow', True)
  first, again, other = (agent.initial_params(seed) for seed in (3, 3, 4))
  for name in first:
    np.testing.assert_array_equal(first[name], again[name])
    assert name.endswith('/b') or not np.allclose(first[name], other[name])


@pytest.mark.parametrize('use_lstm', [False, True])
def test_initial_state(use_lstm):
  state = agents.make('vector', use_lstm).initial_state(3)
  if use_lstm:
    for array in state:
      np.testing.assert_array_equal(array, np.zeros([3, 256], np.float32))
  else:
    assert state == ()


@pytest.mark.parametrize('use_lstm', [False, True])
def test_sees_clipped_reward_and_last_action(use_lstm):
  """Rewards count up to 1 in size; every last action counts differently."""
  agent = agents.make('vector', use_lstm)
  params = agents.params(agent)
  _, env_output = agents.inputs('vector', 1, 1)

  def logits(action, reward):
    (result, _), _ = agent.unroll(
        params, tf.constant([[action]]),
        env_output._replace(reward=tf.constant([[reward]])),
        agent.initial_state(1))
    return result[0, 0].numpy()

  np.testing.assert_array_equal(logits(0, 1.), logits(0, 50.))
  np.testing.assert_array_equal(logits(0, -1.), logits(0, -50.))
  different = [logits(0, reward) for reward in (-1., -.5, 0., .5, 1.)]
  different += [logits(action, 0.) for action in (1, 2, 3)]
  for i, one in enumerate(different):
    for other in different[:i]:
      assert np.abs(one - other).max() > 1e-4


def _sample(agent, params, seed, batch):
  """Actions of many equal environments."""
  env_output = StepOutput(
      reward=tf.zeros([batch]), info=(), done=tf.zeros([batch], tf.bool),
      observation=(tf.zeros([batch, 5]),))
  output, _ = agent.step(params, seed, tf.zeros([batch], tf.int32), env_output,
                         agent.initial_state(batch))
  assert output.action.dtype == tf.int32
  return output.action.numpy(), output.policy_logits.numpy()


def _assert_frequencies(actions, logits):
  """Bounds chi-square where chance exceeds it once in a million."""
  expected = np.exp(logits) / np.exp(logits).sum() * len(actions)
  observed = np.bincount(actions, minlength=agents.NUM_ACTIONS)
  assert ((observed - expected) ** 2 / expected).sum() < 30.7


def test_actions_are_drawn_from_the_policy():
  """Over environments with one seed, and over seeds with one environment."""
  agent = agents.make('vector', use_lstm=False)
  params = agent.initial_params(0)
  params['policy_logits/b'] = np.array([0., 1., -1.5, .5], np.float32)
  for seed in ([0, 0], [1, 7]):
    actions, logits = _sample(agent, params, seed, 20000)
    _assert_frequencies(actions, logits[0])
  step = tf.function(lambda seed: _sample_one(agent, params, seed))
  actions = np.array([int(step(tf.constant([5, i]))) for i in range(400)])
  _assert_frequencies(actions, logits[0])
  # Consecutive seeds are to be independent, too: look at pairs.
  policy = np.exp(logits[0]) / np.exp(logits[0]).sum()
  same = (actions[1:] == actions[:-1]).mean()
  assert abs(same - (policy ** 2).sum()) < .1


def _sample_one(agent, params, seed):
  env_output = StepOutput(
      reward=tf.zeros([1]), info=(), done=tf.zeros([1], tf.bool),
      observation=(tf.zeros([1, 5]),))
  output, _ = agent.step(params, seed, tf.zeros([1], tf.int32), env_output, ())
  return output.action[0]


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_actions_exist_whatever_the_logits(value):
  """Weights that went wrong must not crash environments instead."""
  agent = agents.make('vector', use_lstm=False)
  params = agent.initial_params(0)
  params['policy_logits/b'] = np.full([agents.NUM_ACTIONS], value, np.float32)
  actions, _ = _sample(agent, params, [0, 0], 100)
  assert ((actions >= 0) & (actions < agents.NUM_ACTIONS)).all()


def test_actions_are_the_seeds():
  """The same seed draws the same, and either half of another draws others."""
  agent = agents.make('vector', use_lstm=True)
  params = agent.initial_params(0)
  first, again, other, another = (
      _sample(agent, params, seed, 100)[0]
      for seed in ([3, 4], [3, 4], [3, 5], [4, 4]))
  np.testing.assert_array_equal(first, again)
  for actions in (other, another):
    assert .3 < (actions != first).mean() < .95
