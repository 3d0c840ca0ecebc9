"""Acts with the actor job's own copy of the policy, and sends unrolls."""

import threading

import numpy as np

from scalable_agent import actor
from scalable_agent import policy as policy_lib
from scalable_agent import staging
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.config import seeds
from scalable_agent.jobs import learner_link
from scalable_agent.process import threads


class Actors(learner_link.Actors):
  """The threads of an actor job that has a copy of the policy.

  They act with weights of the learner's, and send it unrolls and episodes.
  """

  def __init__(self, config, pools, address, security):
    """Starts the threads; see base class."""
    super().__init__(config, pools, address, security)
    memory_assembly.check(config, self._agent, pools[0])
    # So acting goes on while an unroll of every environment waits to be sent.
    self._queue = staging.TrajectoryQueue(config.num_environments)
    self._policy = None
    self._weights_lock = threading.Lock()
    self._start(
        pools, threads.CheckedThreads([self._queue], self._send, 'sender'))

  def _make_actor(self, pool):
    config = self._config
    self._refresh(np.array([-1]))
    return actor.Actor(
        pool.level_names, pool.num_actions, self._policy,
        self._agent.initial_state(pool.num_environments),
        config.unroll_length, config.num_action_repeats, self._queue.put,
        self._reports.put, self._times, refresh=self._refresh)

  def _refresh(self, versions):
    """Fetches weights, unless no unroll was begun with the present ones."""
    with self._weights_lock:
      policy = self._policy
      if policy and not (versions == policy.version).any():
        return
      fetched = self._client.get_weights(policy.version if policy else -1)
      if policy is None:
        self._policy = policy_lib.Policy(
            self._agent, *fetched,
            # Unlike any other actor's, and unlike its own before a restart.
            seed=seeds.derive(
                self._config.seed, seeds.ACTIONS, self._client.session),
            device=self._devices.inference,
            jit_compile=self._devices.jit_compile)
      elif fetched:
        policy.update(*fetched)

  def _send(self, queue):
    while True:
      self._client.put_unrolls(
          queue.get_many(self._config.num_environments, minimum=1), wait=False)
