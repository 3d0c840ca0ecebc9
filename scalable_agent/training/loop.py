"""The loop of a training run: a batch, an update, the logs, a save."""

import contextlib

from absl import logging
import tensorflow as tf

from scalable_agent import dynamic_batching
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import memory as memory_assembly
from scalable_agent.logs import messages
from scalable_agent.process import errors
from scalable_agent.process import progress as progress_lib
from scalable_agent.process import signals
from scalable_agent.training import batches
from scalable_agent.training import logdir
from scalable_agent.training import not_finite
from scalable_agent.training import peers as peers_lib
from scalable_agent.training import run as run_lib

# Consecutive updates with gradients that are not finite before a run stops.
MAX_SKIPPED_UPDATES = 100


def train(config, start_actors, stop, start_evaluator, start_replay):
  """Trains until the frames are used up, or until it is told to stop.

  Args:
    config: A `config.Config`.
    start_actors: A function of the configuration and a `contextlib.ExitStack`
      that returns the environments' facts and the `make_actors` of `run.Run`.
    stop: A `signals.Stop`, or None to train to the end.
    start_evaluator: As `evaluation.evaluator.start`.
    start_replay: As `jobs.replay_link.start`.

  Raises:
    config.ConfigError: The configuration cannot work, or the log directory is
      another run's.
    environments.PoolError: Environments cannot be made, or died.
    checkpoint.CheckpointError: There are checkpoints and all are damaged, or
      none can be written.
    peers.PeerError: Another learner failed or is gone.
    batches.TrainingError: Training cannot go on.
  """
  stop = stop or signals.Stop()
  if stop.is_set():
    return  # There is nothing to save.
  make_replay = start_replay(config)
  devices = devices_assembly.choose(config)
  logging.info('%s', messages.level(config))
  with contextlib.ExitStack() as stack:
    try:
      with stop.interrupting():
        facts, make_actors = start_actors(config, stack)
        evaluator = start_evaluator(config, facts, devices, stack)
        agent = _construct_agent(config, facts)
    except signals.Interrupted:
      return  # Nothing has been trained that could be saved.
    peers = peers_lib.join(config, devices)
    stack.enter_context(_explaining_errors(peers))
    # TensorFlow takes SIGTERM for itself where it connects learners.
    stop.listen()
    _check_agent(config, agent, facts, peers)
    run = run_lib.Run(config, agent, devices, make_actors, peers, evaluator,
                      make_replay and make_replay(facts))
    stack.callback(run.close)
    # Save first: closing environments may outlast the grace period.
    stack.callback(run.save_last)
    first_frames = run.learner.frames
    for line in messages.agent_and_files(
        config, agent_assembly.choose_network(config, facts),
        run.num_parameters, devices, first_frames):
      logging.info('%s', line)
    progress = progress_lib.ProgressLine()
    stack.callback(progress.end)
    loop(config, run, peers, stop, progress)
    run.finish_evaluation(stop)
  run.check_saved()
  peers.finish()
  if peers.is_first:
    for line in messages.closing(
        config, run.learner.frames, run.learner.frames > first_frames,
        run.reporter.recent):
      logging.info('%s', line)


def _construct_agent(config, facts):
  """Makes the agent; refuses what can be refused before learners meet.

  A learner that refuses to work after that ends all of them. But until then
  nothing may use a device of TensorFlow's, as new weights do.

  Args:
    config: A `config.Config`.
    facts: The environments' `suites.Facts`.

  Returns:
    An agent of `networks`.

  Raises:
    config.ConfigError: The network or the memory will not do, or the log
      directory is another run's.
  """
  agent = agent_assembly.construct_agent(config, facts)
  if not config.policy_lag:
    memory_assembly.check(config, agent, facts)
  if config.writes_logdir:
    for line in logdir.check(config, logdir.facts_of(facts)):
      logging.warning('Differs from the run so far: %s', line)
  return agent


def _check_agent(config, agent, facts, peers):
  """Refuses what only new weights, or the other learners, can tell."""
  agent_assembly.check_weights(config, agent)
  if config.policy_lag:  # Copies of the weights take memory too.
    memory_assembly.check(config, agent, facts)
  peers.check_settings(config, logdir.facts_of(facts))


@contextlib.contextmanager
def _explaining_errors(peers):
  """Says in a line what errors of TensorFlow mean, where that is known.

  Args:
    peers: Of `peers.join`.

  Raises:
    peers.PeerError: Another learner is gone.
    batches.TrainingError: The memory of a device does not suffice.
  """
  try:
    yield
  except (tf.errors.OpError, dynamic_batching.ComputationError) as e:
    cause = e if isinstance(e, tf.errors.OpError) else e.__cause__
    if isinstance(cause, tf.errors.OpError):
      peers.check(cause)
    if isinstance(cause, tf.errors.ResourceExhaustedError):
      raise batches.TrainingError(
          'The memory of a device does not suffice. Lower --batch_size, '
          '--num_actors or --policy_lag, or choose a smaller --network. '
          'TensorFlow says: '
          f'{errors.first_line(cause)}') from e
    raise


def loop(config, run, peers, stop, progress):
  """Trains on one batch after the other, together with the other learners.

  Args:
    config: A `config.Config`.
    run: A `run.Run`.
    peers: Of `peers.join`.
    stop: A `signals.Stop` that ends the loop, of all learners.
    progress: A `progress.ProgressLine`.

  Raises:
    peers.PeerError: Another learner failed or is gone.
    batches.TrainingError: Training cannot go on.
    Exception: What ended an actor.
  """
  staged = None
  skipped_in_a_row = 0
  while not run.done:
    failure = None
    if staged is None:
      try:
        staged = run.batches.next(stop, peers.poll_seconds)
      except Exception as e:  # Raised again once the others know.
        failure = e
    with run.times.stage('learner_peers'):
      verdict = peers.vote(
          staged is not None, stop.is_set(), failure, run.due())
    if verdict.stops:
      break
    if not verdict.trains:
      if staged is not None:
        run.batches.note_wait()  # Another learner has no batch yet.
      continue
    logs = run.train_on(staged)
    skipped_in_a_row = skipped_in_a_row + 1 if logs['skipped'] else 0
    if skipped_in_a_row >= MAX_SKIPPED_UPDATES:
      raise batches.TrainingError(
          not_finite.explain(config, skipped_in_a_row, staged[0]))
    staged = None
    # Logs come first: a checkpoint must not be ahead of them.
    if verdict.due.report or verdict.due.save:
      peers.share_episodes(run.reporter)
      text = run.report()
      if text:
        progress.show(text)
    if verdict.due.save:
      run.save()
      peers.compare(run.learner)
  peers.share_episodes(run.reporter)
  if run.done:
    run.finish()
