"""Acts as a worker of A3C, and sends the gradient of each unroll."""

from absl import logging

from scalable_agent import actor
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.assembly import workers as workers_assembly
from scalable_agent.config import seeds
from scalable_agent.jobs import learner_link
from scalable_agent.process import memory
from scalable_agent.process import threads
from scalable_agent.process import timing


class Actors:
  """The threads of an actor job that is a worker of A3C."""

  def __init__(self, config, pools, address, security):
    """Starts the threads.

    Args:
      config: A `config.Config`.
      pools: A list of one `environments.Pool`, closed by `close`.
      address: 'host:port' of the learner.
      security: A `security.Security`.
    """
    memory.keep_freed_memory()
    self._config = config
    # Others of its kind have the other cores.
    self._devices = devices_lib.choose_devices(
        1, 'cpu:0', config.xla, config.intra_op_threads or 1)
    self._agent = agent_assembly.create_agent(config, pools[0])
    self._client = learner_link.make_client(
        config, self._agent, pools, address, security)
    self._reports = learner_link.EpisodeReports()
    self._threads = [
        threads.CheckedThreads(pools, self._act),
        threads.CheckedThreads([self._client], self._reports.send, 'reporter')]

  def check(self):
    """Raises what ended a thread, if something did."""
    for group in self._threads:
      group.check()

  def close(self):
    """Ends the threads."""
    self._client.close()
    for group in self._threads:
      group.close()
    if self._client.num_dropped:
      logging.info('%d gradients were begun with the weights of a learner that '
                   'is gone, and were dropped.', self._client.num_dropped)

  def _act(self, pool):
    config = self._config
    weights, version = self._client.get_weights(-1)
    worker = workers_assembly.create_workers(
        config, self._agent, self._devices, weights, version,
        # Unlike any other actor's, and unlike its own before a restart.
        seed=seeds.derive(
                config.seed, seeds.ACTIONS, self._client.session))(
            self._client.get_weights, self._send)
    actor.run_actor(pool, timing.StageTimes(), actor.Actor(
        pool.level_names, pool.num_actions, worker.policy,
        self._agent.initial_state(1), config.unroll_length,
        config.num_action_repeats, worker.put, self._reports.put,
        timing.StageTimes(), refresh=worker.refresh))

  def _send(self, unroll):
    # The learner needs no more of the unroll.
    self._client.put_unrolls([unroll._replace(
        agent_state=(),
        env_outputs=unroll.env_outputs._replace(observation=()))])
