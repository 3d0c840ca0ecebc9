"""Workers of A3C, and what the learner makes of their gradients."""

import numpy as np
import tensorflow as tf
import tree

from scalable_agent import a3c
from scalable_agent import policy as policy_lib
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.algorithms import impala
from tests import learners


def _unrolls(make_batch, num_batches):
  """Yields the unrolls of random batches, one by one."""
  for seed in range(num_batches):
    unrolls = make_batch(seed).unrolls
    for b in range(learners.B):
      env_outputs, agent_outputs = tree.map_structure(
          lambda a, b=b: a[:, b], (unrolls.env_outputs, unrolls.agent_outputs))
      yield trajectories.ActorOutput(
          'level', (), env_outputs, agent_outputs, np.int64(0))


def _learner(agent, **kwargs):
  return learners.make_learner(
      agent, optimizer=learners.OPTIMIZER._replace(gradient_norm_clip=3.),
      **kwargs)


def _weights(learner):
  return {name: value.numpy() for name, value in learner.weights().items()}


def _make_batch(seed):
  """A batch whose unrolls have two words each."""
  words = np.full([learners.B, learners.WORDS], -1)
  words[:, :2] = seed, 100 + seed
  return learners.with_words(learners.make_batch(seed), words)


def test_one_worker_is_batched_a2c_of_one_environment():
  """To the bit, of twenty unrolls: weights, slots, counters, what is logged."""
  agent = learners.make_language_agent()
  gradient_fn = a3c.make_gradient_fn(
      impala.make_loss_fn(agent, learners.LOSS), '/cpu:0')
  batched, server = _learner(agent), _learner(agent)
  for unroll in _unrolls(_make_batch, 20 // learners.B):
    batch = staging.join(trajectories.new_batch([unroll]))
    logs, _ = batched.step(batched.place(batch))
    gradient = gradient_fn(server.weights(), unroll)
    others, _ = server.apply(gradient)
    assert set(logs) - set(others) == {'behaviour_kl', 'rho_clipped'}
    assert others == {name: logs[name] for name in others}
  assert server.steps == 20 and server.frames == 20 * 80 // learners.B
  for a, b in zip(batched.variables(), server.variables(), strict=True):
    np.testing.assert_array_equal(a.numpy(), b.numpy())

  # Words that an unroll does not have are not in its gradient.
  (touched,) = gradient.touched.values()
  last = 20 // learners.B - 1
  assert np.flatnonzero(touched).tolist() == [last, 100 + last]
  # What goes between machines is laid out for it.
  like = a3c.gradient_like(agent)
  for name in 'dense', 'touched', 'logs':
    mine, announced = getattr(gradient, name), getattr(like, name)
    assert {key: (value.shape, value.dtype.name)
            for key, value in mine.items()} == {
                key: (value.shape, value.dtype.name)
                for key, value in announced.items()}


def test_a_gradient_that_is_not_finite_updates_nothing():
  learner = _learner(learners.make_agent())
  before = _weights(learner)
  gradient = a3c.gradient_like(learners.make_agent())
  name = next(iter(gradient.dense))
  gradient.dense[name].flat[3] = np.nan
  logs, _ = learner.apply(gradient)
  assert logs['skipped'] == 1 and not np.isfinite(logs['grad_norm'])
  assert logs['dead_units'] == 1  # But for that of one weight, all are 0.
  assert learner.steps == 1
  for name, value in _weights(learner).items():
    np.testing.assert_array_equal(value, before[name])


def test_the_gradient_is_at_the_weights_that_acted():
  """Whatever the learner has made of them in between."""
  agent = learners.make_agent()
  newest = [agent.initial_params(1), 1]
  acted_with = agent.initial_params(0)
  taken = []
  unroll = next(_unrolls(learners.make_batch, 1))
  gradient_fn = a3c.make_gradient_fn(
      impala.make_loss_fn(agent, learners.LOSS), '/cpu:0')
  worker = a3c.Worker(
      policy_lib.Policy(agent, acted_with, 0, 0, '/cpu:0').fork(),
      gradient_fn, lambda version: newest if version < newest[1] else None,
      lambda unroll: taken.append(unroll.gradient))

  def check(weights):
    expected = gradient_fn(
        {name: tf.constant(value) for name, value in weights.items()}, unroll)
    for name, value in taken.pop().dense.items():
      np.testing.assert_array_equal(value, expected.dense[name])

  worker.put(unroll)
  check(acted_with)
  worker.refresh(None)
  # The learner goes on while the worker acts.
  newest[:] = agent.initial_params(2), 2
  worker.put(unroll)
  check(agent.initial_params(1))
  for _ in range(2):
    worker.refresh(None)
  assert worker.policy.version == 2


def test_workers_share_a_policys_program_but_no_weights():
  agent = learners.make_agent()
  policy = policy_lib.Policy(
      agent, agent.initial_params(0), 5, seed=3, device='/cpu:0')
  forks = [policy.fork() for _ in range(2)]
  forks[0].update(agent.initial_params(1), 6)
  assert [each.version for each in (policy, *forks)] == [5, 6, 5]
  np.testing.assert_array_equal(
      forks[0].weights['baseline/w'], agent.initial_params(1)['baseline/w'])
  np.testing.assert_array_equal(
      forks[1].weights['baseline/w'], agent.initial_params(0)['baseline/w'])
