"""The parts of a training run, connected."""

import collections
import contextlib
import time

from absl import logging
import numpy as np

from scalable_agent import staging
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import policy as policy_assembly
from scalable_agent.checkpoints import checkpoint
from scalable_agent.checkpoints import weights_hash
from scalable_agent.config import ConfigError
from scalable_agent.logs import metrics
from scalable_agent.process import errors
from scalable_agent.process import timing
from scalable_agent.training import batches
from scalable_agent.training import logdir
from scalable_agent.training import peers as peers_lib
from scalable_agent.training import profiler as profiler_lib
from scalable_agent.training import saver

# Episodes to film over a run, and one at its start.
_FILMS = 20


class Run:
  """The parts of a training run, connected and started.

  Attributes:
    learner: The `learner.Learner`.
    queue: The `staging.TrajectoryQueue` that actors put unrolls into.
    batches: What to train on, a `batches.Batches`.
    reporter: What notes episodes and updates, a `metrics.Reporter` or, where
      another learner writes, a `metrics.Forwarder`.
    times: A `timing.StageTimes`.
  """

  def __init__(self, config, agent, devices, make_actors,
               peers=peers_lib.Alone(), evaluator=None, shared_replay=None):
    """Restores the newest checkpoint, and starts all threads.

    No log and no checkpoint is written before the first batch: a run that gets
    none leaves the log directory to another.

    Args:
      config: A `config.Config`.
      agent: An agent of `networks`.
      devices: A `devices.Devices`.
      make_actors: A function of an agent, a policy (None if actor jobs have
        their own), a function that takes an `ActorOutput`, one that takes an
        `Episode`, and a `timing.StageTimes`. It starts actors, which have the
        methods of `actor_threads.ActorThreads`.
      peers: Of `peers.join`: the other learners. The first writes to the log
        directory.
      evaluator: None, or what plays with the weights meanwhile, which has the
        methods of `evaluation.evaluator.Evaluator`.
      shared_replay: None, or the replay that this agent shares with others, see
        `jobs.replay_link`.
    """
    self._config = config
    self._is_one_of_several = peers.strategy is not None
    # If a part refuses to work, closes those that were made before it.
    with contextlib.ExitStack() as undo:
      if shared_replay:
        undo.callback(shared_replay.close)
      self.learner = learner_assembly.create_learner(
          config, agent, devices, peers.strategy)
      self._restore(agent, peers, undo)
      self._connect_learner(agent, devices, shared_replay)
      undo.callback(self._staging.close)
      weights, steps = self.learner.weights(), self.learner.steps
      self._source.publish(weights)
      # Actors get the oldest entry.
      self._newest_weights = collections.deque(
          [(weights, steps)], config.policy_lag + 1)
      policy = self._create_policy(agent, devices, weights, steps)
      self._evaluator = evaluator
      if evaluator:
        evaluator.begin(
            self.reporter.evaluated_frames, self.reporter.evaluation)
      self._actors = make_actors(
          agent, policy, self.queue.put, self.reporter.episode, self.times)
      undo.pop_all()
    self._actors.publish(weights, steps)
    self.batches = batches.Batches(
        config, self._staging, self.queue, self._source, self._actors,
        shared_replay, self.times, notes_waits=self._saver is not None)
    self._saved_time = time.monotonic()
    self._films = -1

  def _restore(self, agent, peers, undo):
    """Restores the learner, and creates what saves it, and logs its training.

    Args:
      agent: An agent of `networks`.
      peers: Of `peers.join`.
      undo: A `contextlib.ExitStack` that is to close these parts.
    """
    config = self._config
    self._saver = self._profiler = None
    if peers.is_first:
      self._saver = saver.Saver(config, logdir.facts_of(agent), self.learner)
      undo.callback(self._saver.close)
    peers.share_state(self.learner)
    self.reporter = (
        self._create_reporter() if peers.is_first else metrics.Forwarder())
    if peers.is_first and config.profile_updates:
      self._profiler = profiler_lib.Profiler(config, self.learner.steps)
      undo.callback(self._profiler.close)
    self.times = timing.StageTimes(
        *([profiler_lib.annotate] if self._profiler else []))

  def _connect_learner(self, agent, devices, shared_replay):
    """Creates what brings unrolls from the actors to the learner."""
    config = self._config
    self.queue = (
        staging.LagLimitedQueue(config.queue_capacity, config.max_policy_lag,
                                self.learner.steps)
        if config.max_policy_lag else
        staging.TrajectoryQueue(config.queue_capacity))
    self._source = learner_assembly.create_source(
        config, self.queue, self.times, agent, devices, shared_replay)
    place, self._update = self.learner.place, self.learner.step
    if config.architecture == 'a3c':
      place = lambda batch: batch.unrolls.gradient
      self._update = self.learner.apply
    self._staging = staging.StagingArea(
        self._source, config.learner_batch_size,
        lambda batch: self._stage(batch, place), self.times)

  def _create_policy(self, agent, devices, weights, steps):
    """Returns what actors act with, None where actor jobs have their own."""
    config = self._config
    self._policy = self._batched_policy = None
    if config.leaves_acting_to_others:
      return None
    policy = policy_assembly.create_policy(
        config, agent, devices, weights, steps)
    if config.architecture == 'a3c':
      return policy  # Its workers fetch weights themselves.
    self._policy = policy
    self._batched_policy = policy_assembly.batch_calls(config, policy)
    return self._batched_policy

  def _stage(self, batch, place):
    self.queue.next_batch()
    return batch, place(batch)

  def _create_reporter(self):
    config = self._config
    try:
      return metrics.Reporter(
          config, self.learner.frames, self.learner.steps)
    except OSError as e:
      raise ConfigError(
          f'The logs in --logdir={config.logdir} cannot be read and written: '
          f'{e.filename}: {errors.first_line(e)}.') from e

  def train_on(self, staged):
    """Updates the weights, and gives them to the actors.

    Args:
      staged: Of `batches.next`.

    Returns:
      A dict of floats, see `Learner.step`.
    """
    if self._saver:
      self._saver.begin()
    batch, placed = staged
    lags = self.policy_lags(batch)
    with self.times.stage('learner_step'):
      logs, priorities = self._update(placed)
    if not logs['skipped']:
      self._source.update(batch.keys, priorities)
    frames, steps = self.learner.frames, self.learner.steps
    with self.times.stage('learner_publish'):
      self._publish(frames, steps)
    self.reporter.step(
        frames, logs, lags, batch.unrolls.agent_outputs.action[1:])
    self.batches.trained()
    if self._profiler:
      self._profiler.reach(steps)
    return logs

  def _publish(self, frames, steps):
    weights = self.learner.weights()
    self._newest_weights.append((weights, steps))
    self._source.publish(weights)
    if self._policy:
      self._policy.update(*self._newest_weights[0])
    self._actors.publish(*self._newest_weights[0])
    if self._evaluator:
      self._evaluator.offer(weights, steps, frames)

  def policy_lags(self, batch):
    """Returns how many updates ago each unroll that came for a `Batch` began.

    Args:
      batch: A `Batch` to be trained on now.

    Returns:
      int64 [N]. Replayed unrolls are not counted, those kept for replay are.
    """
    return self.learner.steps - np.concatenate([
        batch.unrolls.policy_version[~batch.is_replayed],
        np.array(batch.kept_versions, np.int64)])

  def take_batch_sizes(self):
    """A Counter of the sizes of the policy's batches since the last call."""
    if self._batched_policy is None:
      return {}
    return self._batched_policy.take_batch_sizes()

  def due(self):
    """Returns a `peers.Due` by this learner's clock."""
    return peers_lib.Due(
        self.reporter.due(),
        time.monotonic() - self._saved_time >=
        self._config.save_checkpoint_secs)

  def save(self):
    """Saves the logs and a checkpoint, if this is the learner that does.

    Raises:
      checkpoint.CheckpointError: See `saver.Saver.save`.
    """
    self._saved_time = time.monotonic()
    if self._saver:
      self._saver.save(self.reporter)
    if self._is_one_of_several:
      logging.info('Weights at frame %d: %s', self.learner.frames,
                   weights_hash.of(self.learner.weights()))

  def save_last(self):
    """Reports what is left, and saves; if that fails, `check_saved` raises."""
    try:
      if self._saver and self._saver.has_begun:
        self.report()
    finally:
      with contextlib.suppress(checkpoint.CheckpointError):
        self.save()

  def check_saved(self):
    """Raises `checkpoint.CheckpointError` if the last save failed."""
    if self._saver:
      self._saver.check()

  def report(self):
    """Writes metrics; returns a line on how the run is doing, or None."""
    gauges = dict(self._actors.gauges(), **self._source.take_gauges())
    if self._batched_policy is not None:
      sizes = self.take_batch_sizes()
      gauges['inference_batch_mean'] = (
          sum(size * count for size, count in sizes.items()) /
          max(sum(sizes.values()), 1))
    return self.reporter.write(
        self.learner.steps, gauges, self.times.take(), self._take_film())

  def _take_film(self):
    """Returns a `film.Film` or None; has an episode filmed now and then."""
    films = (self.learner.frames * _FILMS //
             self._config.total_environment_frames)
    if films > self._films:
      self._films = films
      self._actors.start_film()
    return self._actors.take_film()

  def close(self):
    """Ends all threads and environments; saves nothing."""
    with contextlib.ExitStack() as parts:  # The last one closes first.
      if self._saver:
        parts.callback(self._saver.close)
      parts.callback(self.reporter.close)
      parts.callback(self._actors.close)
      # Actors may wait for these two.
      if self._batched_policy:
        parts.callback(self._batched_policy.close)
      parts.callback(self._staging.close)
      if self._profiler:
        parts.callback(self._profiler.close)

  @property
  def num_parameters(self):
    """Numbers in the agent's weights."""
    return sum(int(np.prod(weight.shape))
               for weight in self.learner.weights().values())

  @property
  def done(self):
    """Whether the frames are used up."""
    return self.learner.frames >= self._config.total_environment_frames

  def finish(self):
    """Lets the actors know that training is done."""
    self._actors.finish()

  def finish_evaluation(self, stop):
    """Waits for evaluations that are due at the end of training.

    Args:
      stop: A `signals.Stop` that ends the wait.
    """
    # Other learners do not wait long for this one.
    if self._evaluator and self.done and not self._is_one_of_several:
      self.save_last()
      # Offered again, for a run that was stopped while it waited.
      self._evaluator.offer(self.learner.weights(), self.learner.steps,
                            self.learner.frames)
      self._evaluator.wait(stop)
      self.report()
