"""The training run: builds the parts, connects them, and turns the wheel."""

import contextlib
import math
import time

from absl import logging
import tensorflow as tf

from scalable_agent import checkpoint
from scalable_agent import config as config_lib
from scalable_agent import devices as devices_lib
from scalable_agent import learner as learner_lib
from scalable_agent import local_actors
from scalable_agent import logdir as logdir_lib
from scalable_agent import networks
from scalable_agent import replay
from scalable_agent import reporting
from scalable_agent import signals
from scalable_agent import staging
from scalable_agent import synchronization
from scalable_agent import timing

# Consecutive updates with gradients that are not finite before a run stops.
MAX_SKIPPED_UPDATES = 100


class TrainingError(RuntimeError):
  """Training cannot go on; the message says why, the last state is saved."""


def choose_devices(config):
  """Chooses the devices of a configuration."""
  return devices_lib.choose_devices(
      config.num_learner_devices, config.inference_device, config.xla,
      config.intra_op_threads,
      has_policy=not config.leaves_acting_to_others)


def create_agent(config, pool):
  """Makes the agent for a pool's observations and actions."""
  network = config.network
  if network == 'auto':
    is_vector = len(pool.observation_spec[0].shape) == 1
    network = 'vector' if is_vector else 'shallow'
  try:
    return networks.Agent(pool.num_actions, pool.observation_spec, network,
                          config.use_lstm, config.precision)
  except ValueError as e:
    raise config_lib.ConfigError(str(e)) from e


def create_learner(config, agent, devices, strategy=None):
  """Makes the learner of a configuration; unless given, the strategy is new."""
  return learner_lib.Learner(
      agent,
      strategy or learner_lib.create_strategy(devices.learner),
      learner_lib.LossSettings(
          discounting=config.discounting,
          reward_clipping=config.reward_clipping,
          baseline_cost=config.baseline_cost,
          entropy_cost=config.entropy_cost,
          clip_rho_threshold=config.clip_rho_threshold or None,
          clip_pg_rho_threshold=config.clip_pg_rho_threshold or None,
          lambda_=config.vtrace_lambda),
      learner_lib.OptimizerSettings(
          learning_rate=config.learning_rate,
          total_environment_frames=config.total_environment_frames,
          decay=config.decay,
          momentum=config.momentum,
          epsilon=config.epsilon,
          gradient_norm_clip=config.gradient_norm_clip),
      seed=config.seed,
      frames_per_step=config.frames_per_step,
      jit_compile=devices.jit_compile_learner)


def unroll_source(config, queue):
  """What batches are taken from: a queue, with replay if so configured."""
  if not config.num_replayed_unrolls:
    return queue
  return replay.ReplayedQueue(queue, config.replay_capacity,
                              config.num_replayed_unrolls, config.seed)


def facts_of(pool):
  """What the environments turned out to be, for `config.json`."""
  return dict(
      num_actions=pool.num_actions,
      observation_shapes=[spec.shape for spec in pool.observation_spec])


class Run:
  """The parts of a training run, connected and started."""

  def __init__(self, config, facts, devices, make_actors,
               peers=synchronization.Alone()):
    """Restores the newest checkpoint, and starts all threads.

    Args:
      config: A `config.Config`.
      facts: Has `num_actions` and `observation_spec`, as an
        `environments.Pool`.
      devices: A `devices.Devices`.
      make_actors: A function of this run that starts what puts unrolls into its
        `queue`, such as `local_actors.LocalActors`.
      peers: Of `synchronization.join`: the other learners. The first writes to
        the log directory.
    """
    self.config = config
    self.peers = peers
    self.devices = devices
    self.facts = facts
    self.agent = create_agent(config, facts)
    peers.check_settings(config, facts_of(facts))
    if peers.is_first:
      for line in logdir_lib.prepare(config, facts_of(facts)):
        logging.warning('Differs from the run so far: %s', line)
    self.learner = create_learner(config, self.agent, devices, peers.strategy)
    self._checkpointer = self._restore() if peers.is_first else None
    peers.share_state(self.learner)
    self.reporter = reporting.Reporter(
        config.logdir, self.learner.frames, config.total_environment_frames,
        config.log_interval_secs, config.level_name) if peers.is_first else (
            synchronization.Forwarder())
    self.times = timing.StageTimes()
    self.queue = staging.TrajectoryQueue(config.queue_capacity)
    self._staging = staging.StagingArea(
        unroll_source(config, self.queue), config.learner_batch_size,
        lambda batch: (batch, self.learner.place(batch)))
    self._actors = make_actors(self)
    self._saved_time = self._waiting_since = time.time()

  def _restore(self):
    config = self.config
    checkpointer = checkpoint.Checkpointer(
        config.logdir, self.learner, config.to_json(), config.keep_checkpoints)
    path = checkpointer.restore()
    if path:
      logging.info('Resuming from %s', path)
    return checkpointer

  def next_batch(self, stop, seconds=math.inf):
    """Returns the next staged batch.

    Args:
      stop: A `threading.Event`.
      seconds: How long to wait, about.

    Returns:
      What `train_on` takes, or None when `stop` is set or time is up.

    Raises:
      TrainingError: There has been none for too long.
    """
    deadline = time.time() + seconds
    with self.times.stage('learner_wait'):
      while not stop.is_set():
        self._actors.check()
        try:
          return self._staging.get(timeout=.5)
        except TimeoutError:
          if not self._actors.are_expected():
            self._waiting_since = time.time()
          waited = time.time() - self._waiting_since
          if waited > self.config.batch_timeout_secs:
            raise TrainingError(
                f'No batch of {self.config.learner_batch_size} unrolls within '
                f'{waited:.0f} s (--batch_timeout_secs): '
                f'{len(self.queue)} are in the queue. The environments are '
                'stuck, or too slow for this limit.') from None
        if time.time() >= deadline:
          break
    return None

  def train_on(self, batch):
    """Updates the weights, and gives them to the actors."""
    _, placed = batch
    lags = self.policy_lags(batch)
    with self.times.stage('learner_step'):
      logs = self.learner.step(placed)
    steps = self.learner.steps
    with self.times.stage('learner_publish'):
      self._actors.update(self.learner.weights(), steps)
    self.reporter.step(self.learner.frames, logs, lags)
    self._waiting_since = time.time()
    return logs

  def policy_lags(self, batch):
    """Learner steps since the new unrolls of a batch were begun, int64."""
    unrolls, _ = batch
    versions = unrolls.policy_version[:self.config.num_new_unrolls]
    return self.learner.steps - versions

  def take_batch_sizes(self):
    """A Counter of the sizes of the policy's batches since the last call."""
    return self._actors.take_batch_sizes()

  def due(self):
    """Returns a `synchronization.Due` by this learner's clock."""
    return synchronization.Due(
        self.reporter.due(),
        time.time() - self._saved_time >= self.config.save_checkpoint_secs)

  def save(self):
    """Saves a checkpoint, or leaves that to the learner that does."""
    if self._checkpointer:
      self._checkpointer.save()
    self._saved_time = time.time()
    if self.peers.strategy:
      logging.info('Weights at frame %d: %s', self.learner.frames,
                   synchronization.weights_hash(self.learner.weights()))

  def report(self):
    """Writes metrics and progress."""
    sizes = self.take_batch_sizes()
    self.reporter.write(
        self.learner.steps,
        dict(self._actors.gauges(),
             queue_size=len(self.queue),
             inference_batch_mean=(
                 sum(size * count for size, count in sizes.items()) /
                 max(sum(sizes.values()), 1))),
        self.times.take())

  def close(self):
    """Ends all threads and environments, and writes what is left to write."""
    self._staging.close()
    self._actors.close()
    self.report()
    self.reporter.close()

  @property
  def done(self):
    """Whether the frames are used up."""
    return self.learner.frames >= self.config.total_environment_frames

  def finish(self):
    """Lets the actors know that training is done."""
    self._actors.finish()


def train(config, start_actors=local_actors.LocalActors.start):
  """Trains until the frames are used up or a signal says stop.

  Args:
    config: A `config.Config`.
    start_actors: A function of the configuration and a `contextlib.ExitStack`
      that returns the environments' facts and the `make_actors` of `Run`.

  Raises:
    config.ConfigError: The configuration cannot work, or the log directory is
      another run's.
    environments.PoolError: Environments cannot be made, or died.
    checkpoint.CheckpointError: There are checkpoints, and all are corrupt.
    synchronization.PeerError: Another learner failed or is gone.
    TrainingError: Training cannot go on.
  """
  devices = choose_devices(config)
  peers = synchronization.join(config, devices)
  try:
    with signals.stop_on_signals('saving and stopping') as stop:
      with contextlib.ExitStack() as stack:
        facts, make_actors = start_actors(config, stack)
        run = Run(config, facts, devices, make_actors, peers)
        stack.callback(run.save)
        stack.callback(run.close)
        logging.info(
            'Training %s with %s: learner on %s, inference on %s, XLA %s',
            config.level_name, config.architecture, ', '.join(devices.learner),
            devices.inference, 'on' if devices.jit_compile_learner else 'off')
        _loop(run, stop)
      peers.finish()
  except tf.errors.OpError as e:
    peers.check(e)
    raise


def _loop(run, stop):
  skipped_in_a_row = 0
  while not run.done:
    batch = run.peers.next_batch(run, stop)
    if batch is None:
      break
    logs = run.train_on(batch)
    skipped_in_a_row = skipped_in_a_row + 1 if logs['skipped'] else 0
    if skipped_in_a_row >= MAX_SKIPPED_UPDATES:
      raise TrainingError(
          f'The gradients of {skipped_in_a_row} updates in a row were not '
          'finite. The weights as they are, finite but perhaps useless, are '
          f'saved in {run.config.logdir}; move that checkpoint away to resume '
          'from the one before it, with a smaller --learning_rate than '
          f'{run.config.learning_rate:g} or a larger --epsilon than '
          f'{run.config.epsilon:g}.')
    due = run.peers.due(run)
    if due.report:
      run.peers.share_episodes(run.reporter)
      run.report()
    if due.save:
      run.save()
      run.peers.compare(run.learner)
  run.peers.share_episodes(run.reporter)
  if run.done:
    run.finish()
