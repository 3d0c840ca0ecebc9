"""Acts with the actor job's own copy of the policy, and sends unrolls."""

import threading

from absl import logging
import numpy as np

from scalable_agent import actor
from scalable_agent import policy as policy_lib
from scalable_agent import staging
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.config import seeds
from scalable_agent.jobs import learner_link
from scalable_agent.process import memory
from scalable_agent.process import threads
from scalable_agent.process import timing



class Actors:
  """The threads of an actor job that has the policy.

  They act with weights of the learner's, and send it unrolls and episodes.
  """

  def __init__(self, config, pools, address, security):
    """Starts the threads.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s, closed by `close`.
      address: 'host:port' of the learner.
      security: A `security.Security`.
    """
    memory.keep_freed_memory()
    self._config = config
    facts = pools[0]
    # Others of its kind have the other cores.
    self._devices = devices_lib.choose_devices(
        1, 'cpu:0', config.xla, config.intra_op_threads or 1)
    self._agent = agent_assembly.create_agent(config, facts)
    memory_assembly.check(config, self._agent, facts)
    self._times = timing.StageTimes()
    # Acting goes on while an unroll of every environment waits to be sent.
    self._queue = staging.TrajectoryQueue(config.num_environments)
    self._reports = learner_link.EpisodeReports()
    self._client = learner_link.make_client(
        config, self._agent, pools, address, security)
    self._policy = None
    self._weights_lock = threading.Lock()
    self._threads = [
        threads.CheckedThreads(pools, self._act),
        threads.CheckedThreads([self._queue], self._send, 'sender'),
        threads.CheckedThreads([self._client], self._reports.send, 'reporter')]

  def check(self):
    """Raises what ended a thread, if something did."""
    for group in self._threads:
      group.check()

  def close(self):
    """Ends the threads."""
    self._client.close()
    self._queue.close()
    for group in self._threads:
      group.close()
    if self._client.num_dropped:
      logging.info('%d unrolls were begun with the weights of a learner that '
                   'is gone, and were dropped.', self._client.num_dropped)

  def _act(self, pool):
    config = self._config
    self._refresh(np.array([-1]))
    actor.run_actor(pool, self._times, actor.Actor(
        pool.level_names, pool.num_actions, self._policy,
        self._agent.initial_state(pool.num_environments),
        config.unroll_length, config.num_action_repeats, self._queue.put,
        self._reports.put, self._times, refresh=self._refresh))

  def _refresh(self, versions):
    """Fetches weights, unless the ones here have begun no unroll yet."""
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
