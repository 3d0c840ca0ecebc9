"""Actors as threads of the learner's process: all on one machine."""

import functools

from absl import logging

from scalable_agent import actor
from scalable_agent import suites
from scalable_agent.process import threads
from scalable_agent.training import batched_a2c


def start(config, stack):
  """Makes the environments of a configuration.

  Args:
    config: A `config.Config`.
    stack: A `contextlib.ExitStack` that is to close them.

  Returns:
    A pair of one of the pools, for its facts, and the function that
    `run.train` wants: it takes the arguments of `ActorThreads` from `agent` on.

  Raises:
    environments.PoolError: They cannot be made.
  """
  layout = suites.choose_layout(config, config.num_actors)
  pools = suites.make_pools(config, layout, config.seed)
  for pool in pools:
    stack.callback(pool.close)
  logging.info(
      '%d pools (--num_pools) of %d environments (--num_actors), which hand '
      'out %d to %d (--pool_batch_size) and are stepped by %d threads or '
      'processes each (--environment_threads)', layout.num_pools,
      layout.size, layout.minimum_batch_size, layout.maximum_batch_size,
      layout.num_workers)
  return pools[0], functools.partial(ActorThreads, config, pools)


class ActorThreads:
  """One actor thread per pool, and one policy for them all."""

  def __init__(self, config, pools, agent, policy, put_unroll, report_episode,
               times):
    """Starts the threads.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s, closed by `close`.
      agent: A `networks.Agent`.
      policy: As for `actor.Actor`; several threads call it.
      put_unroll: A function that takes an `ActorOutput`, and may block.
      report_episode: A function that takes an `Episode`.
      times: A `timing.StageTimes`.
    """
    self._updates = batched_a2c.Updates()

    def act(pool):
      rendezvous = None if config.architecture == 'impala' else (
          batched_a2c.Rendezvous(pool.num_environments, self._updates.wait))
      actor.run_actor(pool, times, actor.Actor(
          pool.level_names, pool.num_actions, policy,
          agent.initial_state(pool.num_environments), config.unroll_length,
          config.num_action_repeats, put_unroll, report_episode, times,
          rendezvous=rendezvous))

    self._threads = threads.CheckedThreads(pools, act)

  def check(self):
    """Raises what ended an actor, if something did."""
    self._threads.check()

  def are_expected(self):
    """Whether unrolls should be coming."""
    return True

  def publish(self, unused_weights, version):
    """Takes note that the policy has the weights of update `version`."""
    self._updates.reach(version)

  def finish(self):
    """There is nobody to tell."""

  def gauges(self):
    """Returns a dict of values to log."""
    return {}

  def close(self):
    """Ends the threads. The queue and the policy must be closed before."""
    self._updates.close()
    self._threads.close()
