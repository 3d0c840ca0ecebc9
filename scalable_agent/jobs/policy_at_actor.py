"""Acts with the actor job's own copy of the policy, and sends unrolls."""

import threading

import numpy as np

from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.jobs import learner_link
from scalable_agent.jobs import outbox as outbox_lib
from scalable_agent.process import threads


class _SharedPolicy:
  """The policy that all pools act with, whose weights they renew.

  Attributes:
    policy: A `policy.Policy`, None before the first `refresh`.
  """

  def __init__(self, link):
    self.policy = None
    self._link = link
    self._lock = threading.Lock()

  def refresh(self, versions):
    """Fetches newer weights, if an environment has used the present ones.

    Args:
      versions: An array, of environments that begin an unroll: the version of
        the weights with which each of them began its last one.
    """
    with self._lock:
      policy = self.policy
      if policy and not (versions == policy.version).any():
        return
      fetched = self._link.client.get_weights(policy.version if policy else -1)
      if policy is None:
        self.policy = self._link.create_policy(*fetched)
      elif fetched:
        policy.update(*fetched)


def start(config, pools, make_link):
  """Starts to act with weights of the learner's, and to send it unrolls.

  Args:
    config: A `config.Config`.
    pools: A list of `environments.Pool`s.
    make_link: As `client.make_link`, from its agreement on.

  Returns:
    A `learner_link.Actors`.

  Raises:
    config.ConfigError: It takes more memory than there is.
  """
  link = learner_link.LearnerLink(config, pools, make_link)
  memory_assembly.check(config, link.agent, pools[0])
  shared = _SharedPolicy(link)
  # Acting goes on while an unroll of every environment waits to be taken.
  unrolls = outbox_lib.Outbox(config.num_environments)

  def make_actor(pool):
    shared.refresh(np.array([-1]))
    return link.create_actor(pool, shared.policy, unrolls.put, shared.refresh)

  sender = threads.CheckedThreads(
      [unrolls], lambda outbox: outbox.send(link.client.put_unrolls), 'sender')
  return learner_link.Actors(link, pools, make_actor, [sender])
