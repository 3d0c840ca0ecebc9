"""TensorFlow's collectives between learners: sums, and what sums can carry."""

import contextlib
import os
import re
import socket
import time

from absl import logging
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # Has no public name.

from scalable_agent import config as config_lib
from scalable_agent.process import errors
from scalable_agent.process import signals

# If a learner is silent for this long, the others give up on it. If its process
# died, the broken connection often tells sooner.
_HEARTBEAT_TIMEOUT_MS = 20_000
_SHUTDOWN_TIMEOUT_MS = 5_000
# While learners wait for each other, one tries to reach another this often, and
# for this long.
_POLL_SECONDS = .2
_CONNECT_SECONDS = 2.
# How often a learner logs whom it waits for.
_LOG_SECONDS = 60.

# What TensorFlow may raise when another learner is gone.
_LOST_ERRORS = (
    tf.errors.UnavailableError, tf.errors.AbortedError,
    tf.errors.CancelledError, tf.errors.FailedPreconditionError,
    tf.errors.InternalError, tf.errors.DeadlineExceededError)


def is_too_late():
  """Whether TensorFlow is in use, so that learners cannot meet any more."""
  # pylint: disable=protected-access
  return context.context()._context_handle is not None  # Has no public name.


class PeerError(errors.Failure):
  """Another learner failed or was lost; the message says which."""


class Collectives:
  """What several learners compute together.

  All learners have to make the same calls, in the same order.

  Attributes:
    strategy: The `tf.distribute.Strategy` over the devices of all learners.
    task: The index of this learner.
    num_learners: How many there are.
    num_devices: How many devices each of them has.
  """

  def __init__(self, hosts, task, device_names):
    """Connects the learners; waits until all are there.

    Call before TensorFlow has used any device.

    Args:
      hosts: A list of 'host:port' where TensorFlow is to listen, one each.
      task: The index of this learner.
      device_names: The names of its devices, as many as the others have.

    Raises:
      config_lib.ConfigError: There are no such devices, or no such port.
      PeerError: The others did not come.
    """
    self._hosts = hosts
    self.task = task
    self.num_learners = len(hosts)
    self.num_devices = len(device_names)
    self.strategy = _create_strategy(hosts, task, device_names)
    self._sum = tf.function(
        self._sum_over_learners, autograph=False,
        input_signature=[tf.TensorSpec([None], tf.int64)])

  def name(self, task):
    """A learner as messages name it."""
    return f'Learner {task} ({self._hosts[task]})'

  def _sum_over_learners(self, values):
    def contribution(values):
      replica = tf.distribute.get_replica_context().replica_id_in_sync_group
      # One device speaks for this learner, the others add zeros.
      return values * tf.cast(replica % self.num_devices == 0, tf.int64)

    return self.strategy.reduce(
        tf.distribute.ReduceOp.SUM,
        self.strategy.run(contribution, (values,)), axis=None)

  def sum(self, values):
    """The sum over all learners.

    Args:
      values: An int64 vector, of the same length at all of them.

    Returns:
      An int64 array like it.

    Raises:
      PeerError: A learner is gone.
    """
    try:
      return self._sum(tf.constant(values, tf.int64)).numpy()
    except tf.errors.OpError as e:
      self.check(e)
      raise

  def gather(self, payload):
    """Exchanges bytes.

    Args:
      payload: This learner's, of any length.

    Returns:
      A list of everybody's, in the order of their tasks.

    Raises:
      PeerError: A learner is gone.
    """
    lengths = np.zeros([self.num_learners], np.int64)
    lengths[self.task] = len(payload)
    lengths = self.sum(lengths)
    words = -(-int(lengths.max()) // 8)
    block = np.zeros([self.num_learners, words * 8], np.uint8)
    block[self.task, :len(payload)] = np.frombuffer(payload, np.uint8)
    # The zeros of the others leave every bit as it is.
    block = self.sum(block.reshape([-1]).view(np.int64)).view(np.uint8)
    rows = block.reshape([self.num_learners, words * 8])
    return [row[:length].tobytes() for row, length in zip(rows, lengths)]

  def broadcast(self, payload):
    """Returns the first learner's bytes; all pass as many.

    Raises:
      PeerError: A learner is gone.
    """
    padded = payload + bytes(-len(payload) % 8)
    words = np.frombuffer(padded, np.int64)
    total = self.sum(words if self.task == 0 else np.zeros_like(words))
    return total.tobytes()[:len(payload)]

  def check(self, error):
    """Raises `PeerError` if a `tf.errors.OpError` means that one is gone."""
    # An error that names no other learner may be this learner's own.
    tasks = {int(task) for task in re.findall(r'/task:(\d+)', error.message)}
    others = sorted(tasks & set(range(self.num_learners)) - {self.task})
    if not isinstance(error, _LOST_ERRORS) or not (
        others or 'Collective ops is aborted' in error.message):
      return
    names = [self.name(task) for task in others] or ['Another learner']
    raise PeerError(
        f'{" and ".join(names)} died or is out of reach. Restart all learners; '
        'they go on from the last checkpoint of learner 0.') from error


def _create_strategy(hosts, task, device_names):
  is_gpu = 'gpu' in device_names[0]
  first = [f'/gpu:{i}' for i in range(len(device_names))]
  if is_gpu and sorted(device_names) != first:
    raise config_lib.ConfigError(
        'Several learners need the first GPUs of each machine, not '
        f'{", ".join(name[1:] for name in device_names)}: choose another '
        '--inference_device.')
  if not is_gpu and len(device_names) > 1:
    raise config_lib.ConfigError(
        f'--num_learner_devices={len(device_names)} cannot work: without GPUs, '
        'each of several learners has one device.')
  context.context().configure_coordination_service(
      'standalone', service_leader='/job:worker/replica:0/task:0',
      heartbeat_timeout_in_ms=_HEARTBEAT_TIMEOUT_MS,
      shutdown_barrier_timeout_in_ms=_SHUTDOWN_TIMEOUT_MS,
      coordinated_jobs=[context.coordination_config_pb2.CoordinatedJob(
          name='worker', num_tasks=len(hosts))])
  logging.info('Learner %d waits for all of %s (--collective_hosts)', task,
               ', '.join(hosts))
  # TensorFlow would look for them behind the proxy that `http_proxy` names.
  names = [host.rpartition(':')[0].strip('[]') for host in hosts]
  if os.environ.get('no_grpc_proxy'):
    names.insert(0, os.environ['no_grpc_proxy'])
  os.environ['no_grpc_proxy'] = ','.join(names)
  # Before the learners have met there is nothing to save.
  with signals.end_on_signals():
    _meet(hosts, task)
    try:
      return tf.distribute.MultiWorkerMirroredStrategy(
          tf.distribute.cluster_resolver.SimpleClusterResolver(
              tf.train.ClusterSpec({'worker': hosts}), task_type='worker',
              task_id=task, rpc_layer='grpc',
              num_accelerators={'GPU': len(device_names) if is_gpu else 0}))
    except tf.errors.UnknownError as e:
      raise config_lib.ConfigError(
          f'--collective_hosts: TensorFlow cannot listen on {hosts[task]} '
          f'({e.message.splitlines()[0]}).') from e
    except tf.errors.OpError as e:
      raise PeerError(
          f'The learners did not all come to {", ".join(hosts)} '
          f'(--collective_hosts): {e.message.splitlines()[0]}.') from e


def _meet(hosts, task):
  """Waits until all learners listen on their port of `hosts`.

  TensorFlow would wait for them too, but takes SIGTERM for itself before, and
  forgets it.

  Raises:
    config_lib.ConfigError: This learner cannot listen.
  """
  others = hosts[:task] + hosts[task + 1:]
  logged = time.monotonic()
  with _listen(hosts[task]) as server:
    while not all(map(_listens, others)):
      if time.monotonic() - logged >= _LOG_SECONDS:
        _log_missing(hosts, task)
        logged = time.monotonic()
      # A learner that has seen this one has hung up: make room for others.
      with contextlib.suppress(BlockingIOError):
        while True:
          server.accept()[0].close()
      time.sleep(_POLL_SECONDS)


def _log_missing(hosts, task):
  for other, host in enumerate(hosts):
    reason = other != task and _why_out_of_reach(host)
    if reason:
      logging.warning(
          'Learner %d still waits for learner %d at %s (--collective_hosts): '
          '%s', task, other, host, reason)


def _listen(host):
  """Returns a socket that listens on the port of `host`, on all addresses."""
  is_dual = socket.has_dualstack_ipv6()
  try:
    server = socket.create_server(
        ('', int(host.rpartition(':')[2])), dualstack_ipv6=is_dual,
        family=socket.AF_INET6 if is_dual else socket.AF_INET)
  except OSError as e:
    raise config_lib.ConfigError(
        f'--collective_hosts: this learner cannot listen on {host} '
        f'({errors.first_line(e)}). Choose another port, at all learners.'
    ) from e
  server.setblocking(False)
  return server


def _listens(host):
  """Whether another learner, or its TensorFlow, listens on 'host:port'."""
  return not _why_out_of_reach(host)


def _why_out_of_reach(host):
  """Returns why nobody can be reached at 'host:port', '' if somebody can."""
  name, _, port = host.rpartition(':')
  try:
    with socket.create_connection(
        (name.strip('[]'), int(port)), _CONNECT_SECONDS) as connection:
      # Where nobody listens, a port of this machine may reach itself.
      is_another = connection.getsockname() != connection.getpeername()
      return '' if is_another else 'nobody listens'
  except OSError as e:
    return errors.first_line(e)
