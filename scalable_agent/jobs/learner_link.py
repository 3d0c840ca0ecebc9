"""What actor jobs with a policy share: a link to their learner, and threads."""

import functools
import queue as queue_lib

from absl import logging

from scalable_agent import actor
from scalable_agent import policy as policy_lib
from scalable_agent.assembly import actor as actor_assembly
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.config import seeds
from scalable_agent.jobs import layouts
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.process import allocator
from scalable_agent.process import threads
from scalable_agent.process import timing

# A report also tells the actor job whether training is done. Its learner waits
# longer than this for the job to hear so.
_REPORT_SECONDS = 2.


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


class LearnerLink:
  """What an actor job that has the policy acts with.

  Attributes:
    config: The `config.Config`.
    agent: A `networks.Agent` or a `networks.ReactorAgent`.
    devices: A `devices.Devices`.
    client: A `client.LearnerClient`.
    reports: An `EpisodeReports`.
  """

  def __init__(self, config, pools, make_link):
    """Initializes the link; the first call of the client connects.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s.
      make_link: As `client.make_link`, from its agreement on.
    """
    allocator.keep_freed_memory()
    self.config = config
    # Other actor jobs use the other cores.
    self.devices = devices_lib.choose_devices(
        1, 'cpu:0', config.xla, config.intra_op_threads or 1)
    facts = pools[0]
    self.agent = agent = agent_assembly.create_agent(config, facts)
    self.client = client_lib.LearnerClient(
        functools.partial(
            make_link, protocol.agreement(config, facts),
            [name for pool in pools for name in pool.level_names]),
        lambda num_levels: layouts.unroll_layout(
            config, agent, facts, num_levels),
        protocol.weights_layout(agent.initial_params(0)))
    self.reports = EpisodeReports()

  def create_policy(self, weights, version):
    """Returns a `policy.Policy` with what `get_weights` of the client returned.
    """
    return policy_lib.Policy(
        self.agent, weights, version,
        # Unlike any other actor's, and unlike its own before a restart.
        seed=seeds.derive(
            self.config.seed, seeds.ACTIONS, self.client.session),
        device=self.devices.inference, jit_compile=self.devices.jit_compile)

  def create_actor(self, pool, policy, put_unroll, refresh):
    """Returns an `actor.Actor` of a pool; the others are as for `Actor`."""
    return actor_assembly.create_actor(
        self.config, self.agent, pool.level_names, policy, put_unroll,
        self.reports.put, timing.StageTimes(), refresh=refresh)


class Actors:
  """The threads of an actor job that has the policy."""

  def __init__(self, link, pools, make_actor, senders=(), noun='unrolls'):
    """Starts the threads.

    Args:
      link: A `LearnerLink`, whose client `close` closes.
      pools: A list of `environments.Pool`s, closed by `close`.
      make_actor: A function of a pool, whose environments have started, that
        returns its `actor.Actor`.
      senders: `threads.CheckedThreads`, which `close` closes first.
      noun: What the job sends to the learner.
    """
    self._link = link
    self._make_actor = make_actor
    self._noun = noun
    self._threads = [
        *senders,
        threads.CheckedThreads(pools, self._act),
        threads.CheckedThreads([link.client], link.reports.send, 'reporter')]

  def _act(self, pool):
    # The environments start before this asks for weights: from then on the
    # learner waits for unrolls, and starting may take longer than it waits.
    output = pool.recv()
    acting = self._make_actor(pool)
    pool.send(*acting.act(*output))
    actor.run_actor(pool, acting)

  def check(self):
    """Raises what ended a thread, if something did."""
    for group in self._threads:
      group.check()

  def close(self):
    """Ends the threads."""
    client = self._link.client
    client.close()
    for group in self._threads:
      group.close()
    if client.num_dropped:
      logging.info('%d %s were begun with the weights of a learner that is '
                   'gone, and were dropped.', client.num_dropped, self._noun)
