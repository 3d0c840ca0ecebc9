"""Serves actor jobs, for a learner that has no actor threads of its own."""

import time

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import dynamic_batching
from scalable_agent import published
from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.assembly import actor as actor_assembly
from scalable_agent.jobs import addresses
from scalable_agent.jobs import layouts
from scalable_agent.learner_service import protocol
from scalable_agent.learner_service import service
from scalable_agent.process import timing

_LOG_SECONDS = 60.


def start(config, unused_stack):
  """Checks what can be checked before there is a run.

  Args:
    config: A `config.Config`.

  Returns:
    A pair of the environments' facts, and the function that `loop.train` wants:
    it takes the arguments of `ActorServer` from `agent` on.

  Raises:
    config_lib.ConfigError: The address or the security will not do.
    environments.PoolError: There are no such environments.
  """
  security = addresses.load_security(config)
  address = addresses.listen_address(config, security)
  facts = suites.find_facts(config)
  return facts, lambda *parts: ActorServer(
      config, facts, address, security, *parts)


class ActorServer:
  """Serves actor jobs, and with --inference=learner acts for them.

  It has the methods of `training.actor_threads.ActorThreads`.
  """

  def __init__(self, config, facts, address, security, agent, policy,
               put_unroll, report_episode, times):
    """Starts to listen.

    Args:
      config: A `config.Config`.
      facts: A `suites.Facts`.
      address: 'host:port' to listen on.
      security: A `security.Security`.
      agent: A `networks.Agent` or a `networks.ReactorAgent`.
      policy: None, or what acts for the actor jobs, as for `actor.Actor`.
      put_unroll: A function of an `ActorOutput` and whether to wait, as
        `TrajectoryQueue.put`.
      report_episode: A function that takes an `Episode`.
      times: A `timing.StageTimes`.

    Raises:
      config_lib.ConfigError: The address cannot be listened on.
    """
    self._policy = policy
    self._policy_error = None
    self._latency = timing.MeanTime()
    self._waiting_since = self._logged_time = time.monotonic()
    self._published = published.Published(put_unroll)
    if config.architecture == 'a3c':
      put_unroll = self._published.put

    def make_actor(level_names):
      return actor_assembly.create_actor(
          config, agent, level_names, self._act, put_unroll, report_episode,
          times)

    levels = suites.level_names(config)
    try:
      self._service = service.Service(
          address,
          service.Offer(
              protocol.agreement(config, facts), levels,
              layouts.unroll_layout(config, agent, facts, len(levels)),
              protocol.weights_layout(agent.initial_params(config.seed)),
              put_unroll,
              lambda *episode: report_episode(trajectories.Episode(*episode)),
              make_actor=policy and make_actor, facts=facts,
              max_environments=config.inference_maximum_batch_size),
          security)
    except service.ServiceError as e:
      raise config_lib.ConfigError(
          f'--learner_hosts={",".join(config.learner_hosts)}: {e}') from e
    logging.info('Listening for actors on %s', address)

  def _act(self, *inputs):
    try:
      with self._latency.measure():
        return self._policy(*inputs)
    except dynamic_batching.ComputationError as e:
      self._policy_error = e
      raise

  def check(self):
    """Raises what ended the policy; says once a minute if there is nobody."""
    if self._policy_error:
      raise self._policy_error
    now = time.monotonic()
    if self._service.num_jobs:
      self._waiting_since = now
    elif now - max(self._logged_time, self._waiting_since) >= _LOG_SECONDS:
      self._logged_time = now
      logging.info('No actor has been heard of for %.0f s.',
                   now - self._waiting_since)

  def are_expected(self):
    """Whether unrolls should be coming."""
    return self._service.has_acting_jobs

  def publish(self, weights, version):
    """Offers the weights of update `version` to the actor jobs."""
    self._service.update(weights, version)
    self._published.publish(weights, version)

  def finish(self):
    """Lets the actor jobs know that training is done."""
    self._service.finish()

  def gauges(self):
    """Returns a dict of values to log."""
    values = dict(actor_jobs=self._service.num_jobs)
    if self._policy:
      values['inference_latency_ms'] = 1e3 * self._latency.take()
    return values

  def start_film(self):
    """Films nothing, since observations may not come here as they are."""

  def take_film(self):
    """Returns None: there is no film."""

  def close(self):
    """Ends the service. The queue and the policy must be closed before."""
    self._published.close()
    self._service.close()
