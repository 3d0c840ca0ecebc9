"""Actors in jobs of their own: a learner job takes what they send."""

import collections
import time

from absl import logging
import numpy as np

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import dynamic_batching
from scalable_agent import jobs
from scalable_agent import local_actors
from scalable_agent import suites
from scalable_agent import timing
from scalable_agent.remote import protocol
from scalable_agent.remote import service

_LOG_SECONDS = 60.


class RemoteActors:
  """Serves actor jobs, and with --inference=learner acts for them."""

  def __init__(self, run, address, security):
    """Starts to listen.

    Args:
      run: A `training.Run`, to whose queue unrolls are put.
      address: 'host:port' to listen on.
      security: A `security.Security`.

    Raises:
      config_lib.ConfigError: The address cannot be listened on.
    """
    self._run = run
    self._waiting_since = self._logged_time = time.monotonic()
    self._batched_policy = None
    self._policy_error = None
    self._latency = timing.MeanTime()
    if run.config.inference == 'learner':
      self._policy, self._batched_policy = local_actors.make_policy(run)
    facts = run.facts
    levels = suites.level_names(run.config)
    weights = run.learner.weights()
    try:
      self._service = service.Service(
          address,
          protocol.agreement(
              run.config, facts.num_actions, facts.observation_spec),
          levels,
          protocol.unroll_layout(
              run.agent.initial_state(1), actor.initial_output(
                  1, facts.num_actions), facts.observation_spec,
              run.config.unroll_length, len(levels)),
          protocol.weights_layout(
              {name: np.asarray(value) for name, value in weights.items()}),
          run.queue.put,
          lambda *episode: run.reporter.episode(actor.Episode(*episode)),
          security,
          make_actor=self._batched_policy and self._make_actor,
          max_environments=run.config.inference_maximum_batch_size)
    except service.ServiceError as e:
      raise config_lib.ConfigError(
          f'--learner_hosts={",".join(run.config.learner_hosts)}: {e}') from e
    self._service.update(weights, run.learner.steps)
    logging.info('Listening for actors on %s', address)

  @classmethod
  def start(cls, config, unused_stack):
    """Checks what can be checked before there is a run.

    Args:
      config: A `config.Config`.

    Returns:
      The environments' facts, and a function of a `training.Run` that returns
      its actors.

    Raises:
      config_lib.ConfigError: The address or the security will not do.
      environments.PoolError: There are no such environments.
    """
    security = jobs.load_security(config)
    address = jobs.listen_address(config, security)
    return suites.find_facts(config), lambda run: cls(run, address, security)

  def _make_actor(self, level_names):
    run = self._run
    return actor.Actor(
        level_names, run.facts.num_actions, self._act,
        run.agent.initial_state(len(level_names)), run.config.unroll_length,
        run.config.num_action_repeats, run.queue.put, run.reporter.episode,
        run.times)

  def _act(self, *inputs):
    try:
      with self._latency.measure():
        return self._batched_policy(*inputs)
    except dynamic_batching.ComputationError as e:
      self._policy_error = e
      raise

  def check(self):
    """Raises what ended the policy; says once a minute if there is nobody."""
    if self._policy_error:
      raise self._policy_error
    now = time.monotonic()
    if self._service.num_sessions:
      self._waiting_since = now
    elif now - max(self._logged_time, self._waiting_since) >= _LOG_SECONDS:
      self._logged_time = now
      logging.info('No actor has been heard of for %.0f s.',
                   now - self._waiting_since)

  def are_expected(self):
    """Whether unrolls should be coming."""
    return self._service.num_sessions > 0

  def update(self, weights, version):
    """Offers the weights of an update to the actors."""
    self._service.update(weights, version)
    if self._batched_policy:
      self._policy.update(weights, version)

  def finish(self):
    """Lets the actors know that training is done."""
    self._service.finish()

  def gauges(self):
    """Returns a dict of values to log."""
    values = dict(actor_jobs=self._service.num_sessions)
    if self._batched_policy:
      values['inference_latency_ms'] = 1e3 * self._latency.take()
    return values

  def take_batch_sizes(self):
    """A Counter of the sizes of the policy's batches since the last call."""
    if self._batched_policy is None:
      return collections.Counter()
    return self._batched_policy.take_batch_sizes()

  def close(self):
    """Ends the service. The queue must be closed before."""
    if self._batched_policy:
      self._batched_policy.close()
    self._service.close()
