import functools
import itertools
import threading

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent import policy as policy_lib
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import StepOutput

_NUM_ACTIONS = 5

pytestmark = pytest.mark.usefixtures('bounded')


def _env_output(rng, frame, batch, words=0):
  observation = ((rng.integers(256, size=(batch,) + frame.shape)
                  if frame.dtype == np.uint8 else
                  rng.normal(size=(batch,) + frame.shape)).astype(frame.dtype),)
  if words:
    observation += (
        rng.integers(-1, 1000, size=[batch, words]).astype(np.int32),)
  return StepOutput(
      reward=rng.normal(size=batch).astype(np.float32), info=(),
      done=rng.random(batch) < .3, observation=observation)


@pytest.mark.parametrize('torso, frame', [
    ('deep', ArraySpec((9, 12, 3), np.uint8)),
    ('shallow', ArraySpec((20, 20, 1), np.uint8)),
    ('vector', ArraySpec((4,), np.float32))])
@pytest.mark.parametrize('use_lstm', [False, True])
def test_policy_is_the_agents_step(torso, frame, use_lstm):
  """For any batch size and width of the instruction, in NumPy arrays."""
  rng = np.random.default_rng(0)
  agent = networks.Agent(
      _NUM_ACTIONS, (frame, ArraySpec((4,), np.int32)), torso, use_lstm)
  weights = agent.initial_params(0)
  policy = policy_lib.Policy(agent, weights, 17, 3, '/cpu:0')
  for call, (batch, words) in enumerate([(2, 4), (1, 4), (5, 1), (3, 6)]):
    last_actions = rng.integers(_NUM_ACTIONS, size=batch).astype(np.int32)
    env_output = _env_output(rng, frame, batch, words)
    state = tree.map_structure(
        lambda a: rng.normal(size=a.shape).astype(np.float32),
        agent.initial_state(batch))
    output, next_state, versions = policy(last_actions, env_output, state)
    assert all(isinstance(a, np.ndarray) for a in output + tuple(next_state))
    assert versions.dtype == np.int64
    np.testing.assert_array_equal(versions, [17] * batch)
    expected, expected_state = agent.step(
        weights, [3, call], last_actions,
        tree.map_structure(tf.constant, env_output),
        tree.map_structure(tf.constant, state))
    np.testing.assert_array_equal(output.action, expected.action)
    for actual, other in zip(output[1:] + tuple(next_state),
                             expected[1:] + tuple(expected_state)):
      np.testing.assert_allclose(actual, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('use_lstm', [False, True])
def test_compiled_policy_has_few_programs_and_the_same_outputs(use_lstm):
  """What XLA pads batches with never reaches the caller."""
  rng = np.random.default_rng(0)
  frame = ArraySpec((6,), np.float32)
  agent = networks.Agent(_NUM_ACTIONS, (frame,), 'vector', use_lstm)
  traced = []

  def step(params, seed, last_actions, *args):
    traced.append(last_actions.shape[0])
    return type(agent).step(agent, params, seed, last_actions, *args)

  plain = policy_lib.Policy(agent, agent.initial_params(0), 1, 3, '/cpu:0')
  agent.step = step
  compiled = policy_lib.Policy(
      agent, agent.initial_params(0), 1, 3, '/cpu:0', jit_compile=True)
  for batch in (1, 3, 4, 5, 7, 8, 3):
    inputs = (np.zeros([batch], np.int32), _env_output(rng, frame, batch),
              agent.initial_state(batch))
    expected, actual = plain(*inputs), compiled(*inputs)
    for a, b in zip(tree.flatten(actual), tree.flatten(expected)):
      assert a.shape == b.shape and a.dtype == b.dtype
    # Padding draws other actions with the same seed.
    for a, b in zip(tree.flatten((actual[0][1:], actual[1:])),
                    tree.flatten((expected[0][1:], expected[1:]))):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  assert sorted(set(traced)) == [1, 4, 8]
  assert len(traced) == 3


def test_a_compiled_policy_is_compiled_by_xla():
  """XLA has no strings, and says so of what it is to compile."""
  agent = networks.Agent(_NUM_ACTIONS, (ArraySpec((6,), np.float32),), 'vector',
                         False)

  def step(params, seed, last_actions, *args):
    last_actions = tf.strings.to_number(
        tf.as_string(last_actions), tf.int32)
    return type(agent).step(agent, params, seed, last_actions, *args)

  agent.step = step
  inputs = (np.zeros([2], np.int32),
            _env_output(np.random.default_rng(0), ArraySpec((6,), np.float32),
                        2), ())
  make = functools.partial(
      policy_lib.Policy, agent, agent.initial_params(0), 1, 3, '/cpu:0')
  make()(*inputs)
  with pytest.raises(tf.errors.OpError, match='XLA'):
    make(jit_compile=True)(*inputs)


def test_on_another_device_the_outputs_are_the_same():
  rng = np.random.default_rng(0)
  frame = ArraySpec((6,), np.float32)
  agent = networks.Agent(_NUM_ACTIONS, (frame,), 'vector', True)
  inputs = (np.zeros([2], np.int32), _env_output(rng, frame, 2),
            agent.initial_state(2))
  here, there = (
      policy_lib.Policy(agent, agent.initial_params(0), 1, 3, device)(*inputs)
      for device in ('/cpu:0', '/cpu:1'))
  for a, b in zip(tree.flatten(here), tree.flatten(there), strict=True):
    assert isinstance(b, np.ndarray)
    np.testing.assert_array_equal(a, b)


class _ShowingAgent:
  """Shows its weights as logits and its seed as action."""

  def step(self, params, seed, last_actions, env_outputs, core_state):
    batch = tf.shape(last_actions)[0]
    logits = tf.stack([tf.reduce_mean(params[k]) for k in sorted(params)])
    return networks.AgentOutput(
        action=tf.fill([batch], seed[1]),
        policy_logits=tf.tile(logits[tf.newaxis], [batch, 1]),
        baseline=tf.cast(tf.fill([batch], seed[0]), tf.float32)), core_state


def _weights(version):
  return {f'w{i}': tf.fill([20, i + 1], float(version)) for i in range(20)}


def _call(policy):
  output, _, versions = policy(np.zeros([2], np.int32), (), ())
  return output, versions


def test_update_replaces_weights_and_version():
  policy = policy_lib.Policy(_ShowingAgent(), _weights(0), 0, 0, '/cpu:0')
  for version in (0, 1, 7):
    policy.update(_weights(version), version)
    assert policy.version == version
    output, versions = _call(policy)
    np.testing.assert_array_equal(
        output.policy_logits, np.full([2, 20], version))
    np.testing.assert_array_equal(versions, [version] * 2)


def test_every_call_has_its_own_seed():
  """Of the policy's seed and the call's number, also among threads."""
  policy = policy_lib.Policy(_ShowingAgent(), _weights(0), 0, 42, '/cpu:0')
  _call(policy)
  numbers = []

  def run():
    for _ in range(50):
      output, _ = _call(policy)
      assert (output.baseline == 42.).all()
      numbers.append(output.action[0])

  _run_threads([run] * 3)
  assert sorted(numbers) == list(range(1, 151))


def test_forks_draw_different_actions():
  policy = policy_lib.Policy(_ShowingAgent(), _weights(0), 0, 42, '/cpu:0')
  fork = policy.fork()
  actions = [_call(each)[0].action[0] for each in (policy, fork) * 2]
  assert actions == [0, 1, 2, 3]


def test_seeds_and_numbers_of_calls_are_as_large_as_they_like():
  """A seed is the user's, and a run of some weeks makes so many calls."""
  policy = policy_lib.Policy(
      _ShowingAgent(), _weights(0), 0, 2**31 + 42, '/cpu:0')
  policy._calls = itertools.count(2**31 - 1)
  for number in 2**31 - 1, 0:
    output, _ = _call(policy)
    assert (output.baseline == 42.).all()
    np.testing.assert_array_equal(output.action, [number] * 2)


def test_no_call_sees_half_an_update():
  """All weights of a call are of one version, and it is the one returned."""
  policy = policy_lib.Policy(_ShowingAgent(), _weights(0), 0, 0, '/cpu:0')
  done = threading.Event()
  seen = [[], []]

  def update():
    try:
      for version in range(1, 151):
        policy.update(_weights(version), version)
    finally:
      done.set()

  def call(mine):
    while not done.is_set() or len(mine) < 20:
      output, versions = _call(policy)
      (version,) = set(output.policy_logits.ravel())
      assert (versions == version).all()
      mine.append(int(version))

  _run_threads([update] + [lambda mine=mine: call(mine) for mine in seen])
  for versions in seen:
    assert versions == sorted(versions)
  assert len(set(seen[0] + seen[1])) > 2


def _run_threads(functions):
  """Runs functions at once, and raises what one of them raised."""
  errors = []

  def run(function):
    try:
      function()
    except BaseException as e:
      errors.append(e)

  threads = [threading.Thread(target=run, args=(function,), daemon=True)
             for function in functions]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60.0)
    assert not thread.is_alive()
  if errors:
    raise errors[0]
