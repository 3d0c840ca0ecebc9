"""What actor jobs with a policy share: a link to their learner, and threads."""

import contextlib
import queue as queue_lib

from absl import logging

from scalable_agent import actor
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.jobs import messages
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.process import allocator
from scalable_agent.process import threads

# A report also tells the actor job whether training is done. Its learner waits
# longer than this for the job to hear so.
_REPORT_SECONDS = 2.


def _make_client(config, agent, pools, address, security):
  """Makes the client.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent` or a `networks.ReactorAgent`.
    pools: A list of `environments.Pool`s.
    address: 'host:port' of the learner.
    security: A `security.Security`.

  Returns:
    A `client.LearnerClient`.
  """
  facts = pools[0]
  return client_lib.LearnerClient(
      address, protocol.agreement(config, facts), config.task,
      [name for pool in pools for name in pool.level_names],
      lambda num_levels: messages.unroll_layout(
          config, agent, facts, num_levels),
      protocol.weights_layout(agent.initial_params(0)), security)


class EpisodeReports:
  """Tells the learner of finished episodes, a few at a time."""

  def __init__(self):
    self._episodes = queue_lib.SimpleQueue()

  def put(self, episode):
    """Takes an `Episode` of any thread."""
    self._episodes.put(episode)

  def send(self, client):
    """Sends what there is to a `client.LearnerClient`, again and again."""
    while True:
      client.sleep(_REPORT_SECONDS)
      episodes = []
      while not self._episodes.empty():
        episodes.append(self._episodes.get())
      # Even if there are none: so the learner hears of this job, and this job
      # hears of the end, however long an unroll takes.
      client.put_episodes(episodes)


class _Untimed:
  """In place of a `timing.StageTimes` whose times nobody would ask for."""

  def stage(self, unused_name):
    """Returns a context manager that does nothing."""
    return contextlib.nullcontext()


class Actors:
  """The threads of an actor job that has the policy.

  A subclass says what acts, and calls `_start` when it can.
  """

  # What the job sends to the learner.
  _SENDS = 'unrolls'

  def __init__(self, config, pools, address, security):
    """Makes what the threads need, and starts none.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s, closed by `close`.
      address: 'host:port' of the learner.
      security: A `security.Security`.
    """
    allocator.keep_freed_memory()
    self._config = config
    # Other actor jobs use the other cores.
    self._devices = devices_lib.choose_devices(
        1, 'cpu:0', config.xla, config.intra_op_threads or 1)
    self._agent = agent_assembly.create_agent(config, pools[0])
    self._times = _Untimed()
    self._reports = EpisodeReports()
    self._client = _make_client(config, self._agent, pools, address, security)

  def _start(self, pools, *others):
    """Starts to act.

    Args:
      pools: As above.
      *others: `threads.CheckedThreads`, which `close` closes first.
    """
    self._threads = [
        *others,
        threads.CheckedThreads(pools, self._act),
        threads.CheckedThreads([self._client], self._reports.send, 'reporter')]

  def _act(self, pool):
    # The environments start before this asks for weights: from then on the
    # learner waits for unrolls, and starting may take longer than it waits.
    output = pool.recv()
    acting = self._make_actor(pool)
    pool.send(*acting.act(*output))
    actor.run_actor(pool, self._times, acting)

  def _make_actor(self, pool):
    """Returns the `actor.Actor` of a pool, whose environments have started."""
    raise NotImplementedError

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
      logging.info('%d %s were begun with the weights of a learner that is '
                   'gone, and were dropped.', self._client.num_dropped,
                   self._SENDS)
