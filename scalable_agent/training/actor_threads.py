"""Actors as threads of the learner's process: all on one machine."""

import functools

from scalable_agent import a3c
from scalable_agent import actor
from scalable_agent import published
from scalable_agent import suites
from scalable_agent.assembly import actor as actor_assembly
from scalable_agent.assembly import impala as impala_assembly
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import seeds
from scalable_agent.logs import film
from scalable_agent.process import threads
from scalable_agent.training import batched_a2c


def start(config, stack):
  """Makes the environments of a configuration.

  Args:
    config: A `config.Config`.
    stack: A `contextlib.ExitStack` that is to close them.

  Returns:
    A pair of one of the pools, for its facts, and the function that
    `loop.train` wants: it takes the arguments of `ActorThreads` from `agent`
    on.

  Raises:
    environments.PoolError: They cannot be made.
  """
  layout = suites.choose_layout(config, config.num_actors)
  # A resumed run does not play the same episodes again.
  seed = seeds.derive(config.seed, seeds.TRAINING,
                      checkpoint_files.newest_frames(config.logdir))
  pools = suites.make_pools(config, layout, seed)
  for pool in pools:
    stack.callback(pool.close)
  return pools[0], functools.partial(ActorThreads, config, pools)


class ActorThreads:
  """One actor thread per pool, and one policy for them all.

  With A3C the threads are workers, each with a policy of its own.
  """

  def __init__(self, config, pools, agent, policy, put_unroll, report_episode,
               times):
    """Starts the threads.

    Args:
      config: A `config.Config`.
      pools: A list of `environments.Pool`s, closed by `close`.
      agent: An agent of `networks`.
      policy: As for `actor.Actor`; several threads call it. With A3C, a
        `policy.Policy`, of which each worker has a fork.
      put_unroll: A function that takes an `ActorOutput`, and may block.
      report_episode: A function that takes an `Episode`.
      times: A `timing.StageTimes`.
    """
    # Pools of other kinds replace no environments.
    self._replacing = [
        pool for pool in pools if hasattr(pool, 'num_replaced')]
    self._published = published.Published(put_unroll)
    self._camera = film.Camera(pools[0])
    if config.architecture == 'a3c':
      gradient_fn = impala_assembly.create_gradient_fn(
          config, agent, policy.device, policy.jit_compile)

    def act(pool):
      acts_with, put, options = policy, put_unroll, {}
      if config.is_batched_a2c:
        options['rendezvous'] = batched_a2c.Rendezvous(
            pool.num_environments, self._published.wait)
      elif config.architecture == 'a3c':
        worker = a3c.Worker(
            policy.fork(), gradient_fn,
            lambda unused_version: self._published.newest(),
            self._published.put)
        acts_with, put = worker.policy, worker.put
        options['refresh'] = worker.refresh
      else:
        # Unrolls that come one by one keep the learner busy; those of a whole
        # pool at once would fill the queue and block the actor.
        options['is_staggered'] = True
      seen = self._camera if pool is pools[0] else pool
      actor.run_actor(seen, actor_assembly.create_actor(
          config, agent, pool.level_names, acts_with, put, report_episode,
          times, **options))

    self._threads = threads.CheckedThreads(pools, act)

  def check(self):
    """Raises what ended an actor, if something did."""
    self._threads.check()

  def are_expected(self):
    """Whether unrolls should be coming: environments may take long to start.
    """
    return all(pool.has_started for pool in self._replacing)

  def publish(self, weights, version):
    """Takes note of the weights that actors are to have from now on.

    The first call is before any update, and each further one follows an update.
    """
    self._published.publish(weights, version)

  def finish(self):
    """There is nobody to tell."""

  def gauges(self):
    """Returns a dict of values to log."""
    if not self._replacing:
      return {}
    return dict(
        num_replaced=sum(pool.num_replaced for pool in self._replacing))

  def start_film(self):
    """Has the next episode of an environment filmed, if it has images."""
    self._camera.start()

  def take_film(self):
    """Returns the `film.Film` that was finished since the last call, or None.
    """
    return self._camera.take()

  def close(self):
    """Ends the threads. The queue and the policy must be closed before."""
    self._published.close()
    self._threads.close()
