"""On a GPU everything is as on the CPU, which all other tests compare on.

    GPU_TESTS=1 python -m pytest tests/test_gpu.py
"""

import functools
import gc
import os

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import learner as learner_lib
from scalable_agent import networks
from scalable_agent import policy as policy_lib
from scalable_agent import vtrace
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import StepOutput
from scalable_agent.machine import nvidia
from scalable_agent.process import aligned_arrays
from scalable_agent.replay import episode_buffer
from scalable_agent.replay import replayer as replayer_lib
from tests import learners
from tests.replay import episodes

pytestmark = pytest.mark.skipif(
    os.environ.get('GPU_TESTS') != '1', reason='needs a GPU and GPU_TESTS=1')

_GPU, _CPU = '/gpu:0', '/cpu:0'


@pytest.fixture(autouse=True)
def gpu():
  if not tf.config.list_physical_devices('GPU'):
    pytest.fail(f'TensorFlow registers no GPU: {nvidia.explain()}.')


def _assert_updates_are_the_same(make_learner, make_batch, jit_compile):
  """Logs, priorities and weights, after a few updates."""
  on_cpu = make_learner(strategy=learner_lib.create_strategy([_CPU]))
  before = on_cpu.weights()
  on_gpu = make_learner(strategy=learner_lib.create_strategy([_GPU]),
                        jit_compile=jit_compile)
  for seed in range(3):
    expected, priorities = on_cpu.step(on_cpu.place(make_batch(seed)))
    actual, found = on_gpu.step(on_gpu.place(make_batch(seed)))
    for name, value in expected.items():
      assert actual[name] == pytest.approx(value, 1e-3, 1e-4), name
    if priorities is not None:
      np.testing.assert_allclose(found, priorities, 1e-3, 1e-4)
  for name, value in on_cpu.weights().items():
    weight = on_gpu.weights()[name]
    assert 'GPU' in weight.device
    change = (value - before[name]).numpy()
    assert change.any(), name
    np.testing.assert_allclose(
        weight - before[name], change, atol=.01 * np.abs(change).max(),
        err_msg=name)


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('use_lstm', [False, True])
@pytest.mark.parametrize('torso', ['vector', 'shallow', 'deep'])
def test_updates_are_those_of_the_cpu(torso, use_lstm, jit_compile):
  _assert_updates_are_the_same(
      functools.partial(
          learners.make_learner, learners.make_agent(torso, use_lstm)),
      lambda seed: learners.make_batch(seed, torso, use_lstm), jit_compile)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_updates_of_reactor_are_those_of_the_cpu(jit_compile):
  agent = learners.make_reactor_agent(use_lstm=True)
  _assert_updates_are_the_same(
      functools.partial(learners.make_reactor_learner, agent),
      lambda seed: learners.make_reactor_batch(
          seed, np.linspace(.5, 2., learners.B),
          agent.initial_state(learners.B)), jit_compile)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_sparse_gradients_are_those_of_the_cpu(jit_compile):
  words = [[1, 2, -1, -1, -1], [3, 3, 3, 999, 0], [-1] * 5, [2, 1, 7, 8, 9]]
  _assert_updates_are_the_same(
      functools.partial(learners.make_learner, learners.make_language_agent()),
      lambda seed: learners.with_words(learners.make_batch(seed), words),
      jit_compile)


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('make_agent', [
    functools.partial(learners.make_agent, 'vector'),
    functools.partial(learners.make_agent, 'shallow'),
    learners.make_reactor_agent], ids=['vector', 'shallow', 'reactor'])
@pytest.mark.parametrize('use_lstm', [False, True])
def test_policy_is_that_of_the_cpu(make_agent, use_lstm, jit_compile):
  rng = np.random.default_rng(0)
  agent = make_agent(use_lstm=use_lstm)
  (frame,) = agent.observation_spec
  weights = agent.initial_params(0)
  on_cpu = policy_lib.Policy(agent, weights, 1, 3, _CPU)
  on_gpu = policy_lib.Policy(agent, weights, 1, 3, _GPU, jit_compile)
  for size in (1, 3, 8):
    inputs = (
        np.zeros([size], np.int32),
        StepOutput(
            reward=rng.normal(size=size).astype(np.float32), info=(),
            done=rng.random(size) < .3,
            observation=(
                rng.integers(256, size=(size, *frame.shape)).astype(
                    frame.dtype),)),
        agent.initial_state(size))
    (_, *expected), state, _ = on_cpu(*inputs)
    (actions, *actual), next_state, _ = on_gpu(*inputs)
    assert ((0 <= actions) & (actions < agent.num_actions)).all()
    for one, other in zip(tree.flatten((actual, next_state)),
                          tree.flatten((expected, state)), strict=True):
      assert isinstance(one, np.ndarray)
      np.testing.assert_allclose(one, other, 1e-3, 1e-3)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_recomputed_states_are_those_of_the_cpu(jit_compile):
  agent = networks.Agent(
      3, (ArraySpec((episodes.SIZE,), np.float32),), 'vector', True)
  play = episodes.Play(0, 101, seed=0)
  sampled = []
  for device, options in (_CPU, {}), (_GPU, dict(jit_compile=jit_compile)):
    replayer = replayer_lib.Replayer(
        episode_buffer.EpisodeBuffer(100, 5, seed=0), agent, 5, device,
        **options)
    with tf.device(device):
      replayer.publish(
          tree.map_structure(tf.constant, agent.initial_params(0)))
    replayer.extend([play.unroll(k, 5) for k in range(20)])
    sampled.append([unroll for _ in range(10) for unroll in replayer.sample(4)])
  num_late = 0
  for one, other in zip(*sampled, strict=True):
    assert episodes.entry_of(one) == episodes.entry_of(other)
    for actual, expected in zip(one.agent_state, other.agent_state):
      assert isinstance(actual, np.ndarray)
      np.testing.assert_allclose(actual, expected, 1e-3, 1e-4)
    num_late += one.agent_state[0].any()
  assert num_late > 5


@pytest.mark.parametrize('jit_compile', [False, True])
def test_vtrace_is_that_of_the_cpu(jit_compile):
  rng = np.random.default_rng(0)
  normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
  inputs = dict(
      log_rhos=normal(100, 32), discounts=rng.random((100, 32), np.float32),
      rewards=normal(100, 32), values=normal(100, 32),
      bootstrap_value=normal(32))
  compute = tf.function(
      vtrace.from_importance_weights, jit_compile=jit_compile)
  with tf.device(_CPU):
    expected = vtrace.from_importance_weights(**inputs)
  with tf.device(_GPU):
    actual = compute(**tree.map_structure(tf.constant, inputs))
  for one, other in zip(actual, expected, strict=True):
    np.testing.assert_allclose(one, other, 1e-4, 1e-4)


@pytest.mark.parametrize('is_aligned', [False, True])
def test_what_is_placed_outlives_the_arrays_it_came_from(is_aligned):
  """A copy to a GPU may begin after the call that asks for it has returned."""
  learner = learners.make_learner(
      learners.make_agent('shallow'), learner_lib.create_strategy([_GPU]))
  batch = learners.make_batch(0, 'shallow')
  frames = np.random.default_rng(0).integers(
      256, size=(101, learners.B, 84, 84, 4)).astype(np.uint8)
  for _ in range(20):
    copied = (aligned_arrays.empty if is_aligned else np.empty)(
        frames.shape, frames.dtype)
    copied[...] = frames
    env_outputs = batch.unrolls.env_outputs._replace(observation=(copied,))
    (placed,) = learner.place(batch._replace(
        unrolls=batch.unrolls._replace(env_outputs=env_outputs)))
    del env_outputs, copied
    gc.collect()
    overwriting = np.zeros_like(frames)
    (placed_frames,) = placed.unrolls.env_outputs.observation
    assert 'GPU' in placed_frames.device
    np.testing.assert_array_equal(placed_frames, frames)
    del overwriting
