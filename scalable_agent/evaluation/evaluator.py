"""Evaluates an agent while it is trained, with an actor of its own."""

import collections
import dataclasses
import threading

from absl import logging
import tensorflow as tf

from scalable_agent import policy as policy_lib
from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.environments import PoolError
from scalable_agent.evaluation import play
from scalable_agent.evaluation import schedule
from scalable_agent.process import errors
from scalable_agent.process import threads
from scalable_agent.suites import scores as suite_scores

# How long the end waits for environments that are being made.
_MAKING_SECONDS = 2.

_Due = collections.namedtuple('_Due', 'weights version frames')


def start(config, facts, devices, stack):
  """Makes the evaluator of a run; uses no device of TensorFlow's yet.

  Args:
    config: A `config.Config` that trains.
    facts: The environments' `suites.Facts`.
    devices: A `devices.Devices`.
    stack: A `contextlib.ExitStack` that is to close the evaluator.

  Returns:
    An `Evaluator`, None if this process is to evaluate nothing.

  Raises:
    environments.PoolError: There is nothing here to play the levels with.
  """
  if not config.evaluates:
    return None
  evaluator = Evaluator(config, facts, devices)
  stack.callback(evaluator.close)
  return evaluator


class Evaluator:
  """Plays whole episodes with the weights of a moment, in its own thread.

  Each evaluation makes its own environments, so that all of their episodes
  begin in it. `offer` never waits: while an evaluation goes on, only the last
  weights that are due wait for its end, and earlier ones are left out.
  """

  def __init__(self, config, facts, devices):
    """Initializes the evaluator; see `start`."""
    self._config = dataclasses.replace(
        # Training has the cores.
        config, mode='test', task=-1, environment_threads=1)
    # A level that cannot be played ends the run now, not in the middle of it.
    suites.find_facts(self._config)
    self._facts = facts
    self._devices = devices
    self._period = config.evaluate_every_frames
    self._last_frames = 0
    self._report = None
    self._agent = self._policy = None
    self._lock = threading.Condition()
    self._due = self._playing = self._pool = self._error = None
    self._closing = False
    self._thread = threading.Thread(
        target=self._run, name='evaluator', daemon=True)

  def begin(self, last_frames, report):
    """Starts the thread.

    Args:
      last_frames: Environment frames at which the last evaluated weights stood,
        0 for none.
      report: A function of such frames and a list of `Episode`s, which the
        thread calls after each evaluation.
    """
    self._last_frames = last_frames
    self._report = report
    self._thread.start()

  def offer(self, weights, version, frames):
    """Takes the weights if an evaluation is due, see `schedule`; never waits.

    Args:
      weights: A dict of name to tensor.
      version: The update that they are from.
      frames: Environment frames that they were trained on.

    Raises:
      Exception: What ended the thread.
    """
    if self._error:
      raise self._error
    if schedule.is_due(frames, self._last_frames, self._period):
      self._last_frames = frames
      with self._lock:
        self._due = _Due(weights, version, frames)
        self._lock.notify_all()

  def wait(self, stop):
    """Waits until all that is due is played.

    Args:
      stop: A `signals.Stop` that ends the wait.

    Raises:
      Exception: What ended the thread.
    """
    is_done = lambda: not (self._due or self._playing) or self._error
    with self._lock:
      if not is_done():
        logging.info('Training is done; waiting for an evaluation to end.')
      while not stop.is_set() and not self._lock.wait_for(is_done, timeout=.2):
        pass
    if self._error:
      raise self._error

  def close(self):
    """Ends the thread, and with it an evaluation that goes on.

    A thread that makes environments ends once these are made, or with the
    process: that may take an hour.
    """
    with self._lock:
      self._closing = True
      self._lock.notify_all()
      pool, is_playing = self._pool, self._playing is not None
    if pool:
      pool.close()
    if self._thread.is_alive():
      self._thread.join(_MAKING_SECONDS if is_playing and not pool else None)

  def _run(self):
    try:
      while self._take():
        self._evaluate(self._playing)
        with self._lock:
          self._playing = None
          self._lock.notify_all()
    except threads.Ended:
      pass
    except BaseException as e:  # Raised by `offer`.
      if not self._closing:
        self._error = e

  def _take(self):
    """Waits for weights; returns False at the end."""
    with self._lock:
      self._lock.wait_for(lambda: self._due or self._closing)
      self._playing, self._due = self._due, None
      return not self._closing

  def _evaluate(self, due):
    try:
      episodes = self._play(due)
    except (PoolError, tf.errors.OpError) as e:
      # Training is worth more than an evaluation.
      if not self._closing:
        logging.warning('The evaluation of frame %d failed: %s', due.frames,
                        errors.first_line(e))
      return
    self._report(due.frames, episodes)
    scores = suite_scores.of_episodes(self._config.level_name, episodes)
    logging.info('Evaluation of frame %d: %s over %d episodes', due.frames,
                 ', '.join(f'{name.replace("_", " ")} {value:.2f}'
                           for name, value in scores.items()), len(episodes))

  def _play(self, due):
    """Plays the episodes of all levels, with some weights."""
    if self._policy is None:
      self._agent = agent_assembly.create_agent(self._config, self._facts)
      self._policy = policy_lib.Policy(
          self._agent, due.weights, due.version, play.seed(self._config),
          self._devices.inference, self._devices.jit_compile)
    self._policy.update(due.weights, due.version)
    episodes = []
    for level_name in suites.level_names(self._config):
      self._note_pool(None)  # It is being made.
      episodes += play.play_level(
          dataclasses.replace(self._config, level_name=level_name), self._act,
          self._agent, on_pool=self._note_pool)
    return episodes

  def _note_pool(self, pool):
    with self._lock:
      self._pool = pool
      # Otherwise `close` has yet to look for a pool, and will close this one.
      if self._closing:
        raise threads.Ended()

  def _act(self, *inputs):
    if self._closing:
      raise threads.Ended()
    return self._policy(*inputs)
