"""The link of an actor job that has the policy to its learner."""

import queue as queue_lib

from scalable_agent.jobs import messages
from scalable_agent.remote import client as client_lib
from scalable_agent.remote import protocol

# Also how soon an actor hears that training is done: before its learner, which
# waits for that, gives up.
_REPORT_SECONDS = 2.


def make_client(config, agent, pools, address, security):
  """Makes the client.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    pools: A list of `environments.Pool`s.
    address: 'host:port' of the learner.
    security: A `security.Security`.

  Returns:
    A `client.LearnerClient`.
  """
  facts = pools[0]
  return client_lib.LearnerClient(
      address,
      protocol.agreement(config, facts.num_actions, facts.observation_spec),
      config.task, [name for pool in pools for name in pool.level_names],
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
      # Even if there are none, so that the learner hears of this actor, and
      # this actor of the end, however long an unroll takes.
      client.put_episodes(episodes)
