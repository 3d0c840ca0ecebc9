"""A3C: workers that take the gradient at the weights that they acted with.

Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016,
https://arxiv.org/abs/1602.01783, as the paper compares it: each worker has one
environment. It fetches the weights, acts for an unroll, sends the gradient of
the loss of that unroll, and waits until the learner has applied it. The learner
applies gradients as they come, so that the policy lag of a gradient is about
the number of other workers.

Behaviour and target policy are the same, and all importance weights are 1.
"""

import functools
import threading

import numpy as np
import tensorflow as tf

from scalable_agent import gradients
from scalable_agent import placing
from scalable_agent import staging
from scalable_agent import trajectories

# What a worker logs of the loss. The other values compare policies, which are
# the same here.
LOGS = ('total_loss', 'policy_gradient_loss', 'baseline_loss', 'entropy_loss')


def make_gradient_fn(loss_fn, device, jit_compile=False):
  """Makes what computes the gradient of an unroll; several threads may call it.

  Args:
    loss_fn: As for `learner.Learner`, of an algorithm without target weights.
    device: Name of the device to run on.
    jit_compile: Whether XLA compiles loss and gradients.

  Returns:
    A function of weights, a dict of name to tensor, and an `ActorOutput` that
    returns a `Gradient`.
  """
  @functools.partial(tf.function, autograph=False, jit_compile=jit_compile)
  def compute(weights, batch):
    (dense, touched), logs, _ = gradients.loss_and_gradients(
        loss_fn, weights, None, batch)
    return trajectories.Gradient(
        dense, touched, {name: logs[name] for name in LOGS})

  tracing = threading.Lock()

  def gradient_fn(weights, unroll):
    batch = staging.join(trajectories.new_batch([unroll]))
    placed = placing.place(batch, device)
    with tf.device(device):
      if not compute.experimental_get_tracing_count():
        # Otherwise each thread would trace it.
        with tracing:
          return compute(weights, placed)
      return compute(weights, placed)

  return gradient_fn


def gradient_like(agent):
  """Returns a `Gradient` of zeros, NumPy arrays, of an agent's weights.

  Args:
    agent: A `networks.Agent`.
  """
  dense = agent.initial_params(seed=0)
  return trajectories.Gradient(
      dense={name: np.zeros_like(value) for name, value in dense.items()},
      touched={name: np.zeros([len(dense[name])], np.float32)
               for name in agent.sparse_params},
      logs={name: np.zeros([], np.float32) for name in LOGS})


class Worker:
  """What makes an `actor.Actor` of one environment a worker of A3C.

  Attributes:
    policy: The `policy.Policy` to act with.
  """

  def __init__(self, policy, gradient_fn, fetch, put_unroll):
    """Initializes the worker.

    Args:
      policy: A `policy.Policy` that nobody else updates.
      gradient_fn: Of `make_gradient_fn`.
      fetch: A function of the version of the weights that are here. It returns
        the newest, a dict of name to tensor or array, and their version; or
        None if they are here.
      put_unroll: A function that takes an `ActorOutput` with its gradient, and
        waits until that has been applied.
    """
    self.policy = policy
    self._gradient_fn = gradient_fn
    self._fetch = fetch
    self._put_unroll = put_unroll

  def refresh(self, unused_versions):
    """Fetches weights for the next unroll."""
    fetched = self._fetch(self.policy.version)
    if fetched:
      self.policy.update(*fetched)

  def put(self, unroll):
    """Puts an `ActorOutput` with its gradient at the weights that acted."""
    self._put_unroll(unroll._replace(
        gradient=self._gradient_fn(self.policy.weights, unroll)))
