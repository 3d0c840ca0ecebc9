"""An actor job: environments here, the learner elsewhere."""

import contextlib
import dataclasses
import queue as queue_lib
import threading

from absl import logging
import grpc
import numpy as np

from scalable_agent import actor
from scalable_agent import devices as devices_lib
from scalable_agent import inference
from scalable_agent import remote_actors
from scalable_agent import signals
from scalable_agent import staging
from scalable_agent import suites
from scalable_agent import timing
from scalable_agent import training
from scalable_agent.remote import client as client_lib
from scalable_agent.remote import protocol

Refused = client_lib.Refused

_CHECK_SECONDS = .2


def run(config):
  """Acts until the learner says that training is done, or a signal says stop.

  Args:
    config: A `config.Config` of an actor job.

  Raises:
    config.ConfigError: The configuration cannot work.
    environments.PoolError: Environments cannot be made, or died.
    Refused: The learner will not work with this actor.
  """
  security = remote_actors.load_security(config)
  devices = devices_lib.choose_devices(
      1, 'cpu:0', config.xla, config.intra_op_threads)
  with signals.stop_on_signals() as stop, contextlib.ExitStack() as stack:
    levels = suites.level_names(config)
    level_config = dataclasses.replace(
        config, level_name=levels[config.task % len(levels)])
    pools = suites.make_pools(
        level_config,
        suites.choose_layout(level_config, config.num_environments),
        # Every actor job has environments with seeds of their own.
        config.seed + config.task * config.num_environments)
    for pool in pools:
      stack.callback(pool.close)
    make_job = _RemoteInferenceJob if config.inference == 'learner' else _Job
    job = make_job(config, pools, security, devices)
    stack.callback(job.close)
    job.wait(stop)


def _make_client(config, pools, security, agent):
  facts = pools[0]
  return client_lib.LearnerClient(
      config.learner_hosts[config.task % len(config.learner_hosts)],
      protocol.agreement(config, facts.num_actions, facts.observation_spec),
      config.task,
      [name for pool in pools for name in pool.level_names],
      lambda num_levels: protocol.unroll_layout(
          agent.initial_state(1), actor.initial_output(1, facts.num_actions),
          facts.observation_spec, config.unroll_length, num_levels),
      protocol.weights_layout(agent.initial_params(0)), security)


class _Job:
  """Acts with weights of the learner's, and sends it unrolls."""

  def __init__(self, config, pools, security, devices):
    self._config = config
    self._pools = pools
    self._devices = devices
    self._agent = training.create_agent(config, pools[0])
    self._times = timing.StageTimes()
    # Acting goes on while an unroll of every environment waits to be sent.
    self._queue = staging.TrajectoryQueue(config.num_environments)
    self._episodes = queue_lib.SimpleQueue()
    self._client = _make_client(config, pools, security, self._agent)
    self._policy = None
    self._weights_lock = threading.Lock()
    self._actors = actor.ActorThreads(pools, self._act)
    self._sender = actor.ActorThreads([self._queue], self._send)

  def wait(self, stop):
    """Returns once training is done, or `stop` is set; raises what failed."""
    try:
      while not stop.wait(_CHECK_SECONDS):
        self._actors.check()
        self._sender.check()
    except client_lib.TrainingDone:
      logging.info('Training is done.')

  def close(self):
    """Ends the threads."""
    self._client.close()
    self._sender.close()
    self._actors.close()
    if self._client.num_dropped:
      logging.info('%d unrolls were begun with the weights of a learner that '
                   'is gone, and were dropped.', self._client.num_dropped)

  def _act(self, pool):
    config = self._config
    self._refresh(np.array([-1]))
    actor.run_actor(pool, self._times, actor.Actor(
        pool.level_names, pool.num_actions, self._policy,
        self._agent.initial_state(pool.num_environments),
        config.unroll_length, config.num_action_repeats, self._queue.put,
        self._episodes.put, self._times, refresh=self._refresh))

  def _refresh(self, versions):
    """Fetches weights, unless the ones here have begun no unroll yet."""
    with self._weights_lock:
      policy = self._policy
      if policy and not (versions == policy.version).any():
        return
      fetched = self._client.get_weights(policy.version if policy else -1)
      if policy is None:
        self._policy = inference.Policy(
            self._agent, *fetched,
            # Unlike any other actor's, and unlike its own before a restart.
            seed=(self._config.seed + self._client.session) % 2**31,
            device=self._devices.inference,
            jit_compile=self._devices.jit_compile_policy)
      elif fetched:
        policy.update(*fetched)

  def _send(self, queue):
    while True:
      (unroll,) = queue.get_many(1)
      episodes = []
      while not self._episodes.empty():
        episodes.append(self._episodes.get())
      if episodes:
        self._client.put_episodes(episodes)
      self._client.put_unroll(unroll)


class _RemoteInferenceJob:
  """Steps environments as the learner says."""

  def __init__(self, config, pools, security, unused_devices):
    self._config = config
    self._security = security
    self._clients = []
    self._actors = actor.ActorThreads(pools, self._step)

  def wait(self, stop):
    """Returns once training is done, or `stop` is set; raises what failed."""
    try:
      while not stop.wait(_CHECK_SECONDS):
        self._actors.check()
    except client_lib.TrainingDone:
      logging.info('Training is done.')

  def close(self):
    """Ends the threads."""
    for client in self._clients:
      client.close()
    self._actors.close()

  def _step(self, pool):
    client = _make_client(
        self._config, [pool], self._security,
        training.create_agent(self._config, pool))
    self._clients.append(client)
    layouts = {
        size: (protocol.steps_layout(pool.observation_spec, size,
                                     pool.num_environments),
               protocol.actions_layout(size))
        for size in range(1, pool.num_environments + 1)}
    output = pool.recv()
    is_new = True
    while True:
      seen = np.zeros([pool.num_environments], bool)
      requests = queue_lib.SimpleQueue()
      answers = client.act(iter(requests.get, None))
      try:
        while True:
          steps, actions = layouts[len(output.ids)]
          # To the learner, what a stream has not shown yet has just begun.
          step_output = output.step_output._replace(
              done=output.step_output.done | ~seen[output.ids])
          seen[output.ids] = True
          requests.put(steps.encode(protocol.StepsMessage(
              output.ids, output.game_over & is_new, step_output)))
          answer = actions.decode(next(answers))
          pool.send(answer.ids, answer.actions)
          output = pool.recv()
          is_new = True
      except (grpc.RpcError, StopIteration):
        requests.put(None)
        is_new = False
        client.lost(answers)
