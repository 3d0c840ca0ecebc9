"""Actors in the learner's own process: all on one machine."""

from absl import logging

from scalable_agent import actor
from scalable_agent import dynamic_batching
from scalable_agent import inference
from scalable_agent import suites
from scalable_agent import threads


def make_policy(run):
  """Makes the policy of a run, and the same for concurrent callers.

  Args:
    run: A `training.Run`.

  Returns:
    An `inference.Policy`, and what batches the calls of it.
  """
  config = run.config
  policy = inference.Policy(
      run.agent, run.learner.weights(), run.learner.steps,
      # A resumed run does not draw the same actions again.
      seed=config.seed + run.learner.steps,
      device=run.devices.inference, jit_compile=run.devices.jit_compile_policy)
  batched_policy = dynamic_batching.batch_fn_with_options(
      config.inference_minimum_batch_size,
      config.inference_maximum_batch_size,
      config.inference_timeout_ms)(policy)
  return policy, batched_policy


class LocalActors:
  """One actor thread per pool, and one policy for them all."""

  def __init__(self, run, pools):
    """Starts the threads.

    Args:
      run: A `training.Run`, to whose queue they put.
      pools: A list of `environments.Pool`s, closed by `close`.
    """
    self._run = run
    self._policy, self._batched_policy = make_policy(run)
    self._updates = actor.Updates()
    self._threads = threads.ActorThreads(pools, self._act)

  @classmethod
  def start(cls, config, stack):
    """Makes the environments of a configuration.

    Args:
      config: A `config.Config`.
      stack: A `contextlib.ExitStack` that is to close them.

    Returns:
      One of the pools, for its facts, and a function of a `training.Run` that
      returns its actors.

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
    return pools[0], lambda run: cls(run, pools)

  def _act(self, pool):
    run = self._run
    is_a2c = run.config.architecture != 'impala'
    actor.run_actor(pool, run.times, actor.Actor(
        pool.level_names, pool.num_actions, self._batched_policy,
        run.agent.initial_state(pool.num_environments),
        run.config.unroll_length, run.config.num_action_repeats,
        run.queue.put, run.reporter.episode, run.times,
        wait_for_update=self._updates.wait if is_a2c else None))

  def check(self):
    """Raises what ended an actor, if something did."""
    self._threads.check()

  def are_expected(self):
    """Whether unrolls should be coming."""
    return True

  def update(self, weights, version):
    """Gives the actors the weights of an update."""
    self._policy.update(weights, version)
    self._updates.add()

  def finish(self):
    """Takes note that training is done."""

  def gauges(self):
    """Returns a dict of values to log."""
    return {}

  def take_batch_sizes(self):
    """A Counter of the sizes of the policy's batches since the last call."""
    return self._batched_policy.take_batch_sizes()

  def close(self):
    """Ends the threads. The queue must be closed before."""
    self._updates.close()
    self._batched_policy.close()
    self._threads.close()
