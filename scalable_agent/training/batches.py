"""Waits for the batches of a run, and says why there is none."""

import math
import time

from scalable_agent.process import errors
from scalable_agent.process import timing
from scalable_agent.training import logdir
from scalable_agent.training import replay_watch

# Less than what the health check allows on top, --log_interval_secs by default.
_NOTE_SECONDS = 5.


class TrainingError(errors.Failure):
  """Training cannot go on; the message says why, the last state is saved."""


class Batches:
  """Takes batches out of the staging area, and watches who has to fill it."""

  def __init__(self, config, staging_area, queue, source, actors, shared_replay,
               times, notes_waits):
    """Begins to wait.

    Args:
      config: A `config.Config`.
      staging_area: A `staging.StagingArea`.
      queue: The `staging.TrajectoryQueue` that actors put unrolls into.
      source: The source of the staging area, see `staging`.
      actors: As `run.Run` has them.
      shared_replay: As for `run.Run`.
      times: A `timing.StageTimes`.
      notes_waits: Whether this learner notes waits in the log directory.
    """
    self._config = config
    self._staging = staging_area
    self._queue = queue
    self._actors = actors
    self._times = times
    self._replay_watch = replay_watch.ReplayWatch(shared_replay)
    self._fill_watch = replay_watch.FillWatch(source.filling)
    self._waited = timing.Waited()
    self._notes_waits = notes_waits
    self._noted_time = -math.inf

  def next(self, stop, seconds=math.inf):
    """Returns the next batch.

    Args:
      stop: A `signals.Stop`.
      seconds: How long to wait, about.

    Returns:
      A pair of the `Batch` and the same on the learner's devices; None when
      `stop` is set or time is up.

    Raises:
      TrainingError: There has been none for too long, or there can be none.
      Exception: What ended an actor.
    """
    deadline = time.monotonic() + seconds
    with self._times.stage('learner_wait'):
      while not stop.is_set():
        self._actors.check()
        try:
          return self._staging.get(timeout=.5)
        except TimeoutError:
          self._check()
        except errors.Failure as e:
          raise TrainingError(str(e)) from e
        if time.monotonic() >= deadline:
          break
    return None

  def _check(self):
    """Raises `TrainingError` if there has been no batch for too long."""
    if (not self._actors.are_expected() or self._fill_watch.has_grown() or
        self._replay_watch.is_held()):
      self._waited.reset()
      self.note_wait()
    self._replay_watch.check()
    waited = self._waited.seconds()
    if waited > self._config.batch_timeout_secs:
      raise TrainingError(
          f'No batch of {self._config.learner_batch_size} unrolls within '
          f'{waited:.0f} s (--batch_timeout_secs): ' + (
              self._replay_watch.complaint() or
              f'{len(self._queue)} are in the queue. The environments are '
              'stuck, or too slow for this limit') + '.')

  def note_wait(self):
    """Notes for the health check that there is no update to make now."""
    now = time.monotonic()
    if self._notes_waits and now - self._noted_time >= _NOTE_SECONDS:
      self._noted_time = now
      logdir.note_wait(self._config.logdir)

  def trained(self):
    """Begins to wait anew, after an update."""
    self._waited.reset()
