"""Several learners, which update the same weights together.

Every learner computes the gradient of its share of the batch, and collectives
sum these, so that the weights stay equal to the bit. All learners have to take
part in the same collectives, in the same order. Therefore they vote before each
update: it is made if all have a batch, and if one has to stop, all do. Whoever
waits for a batch votes even so, and nobody waits long for a vote.
"""

import collections
import hashlib
import itertools
import json

from absl import logging
import numpy as np

from scalable_agent import actor
from scalable_agent import collectives as collectives_lib
from scalable_agent import config as config_lib
from scalable_agent import logdir as logdir_lib

PeerError = collectives_lib.PeerError

_POLL_SECONDS = .5
_GOES_ON, _STOPPED, _FAILED = range(3)

# What all learners need alike, beyond what decides which weights fit.
_SHARED_SETTINGS = logdir_lib.IDENTITY + (
    'learner_hosts', 'batch_size', 'unroll_length', 'total_environment_frames',
    'entropy_cost', 'baseline_cost', 'discounting', 'reward_clipping',
    'clip_rho_threshold', 'clip_pg_rho_threshold', 'vtrace_lambda',
    'precision', 'learning_rate', 'decay', 'momentum', 'epsilon',
    'gradient_norm_clip')

Due = collections.namedtuple('Due', 'report save')
Due.__doc__ = """Whether to write metrics and a checkpoint now; bools."""


def weights_hash(weights):
  """Returns 16 hex digits that tell weights apart.

  Args:
    weights: A dict of name to tensor or array.

  Returns:
    The first digits of the SHA-256 of names and bytes, in the order of names.
  """
  digest = hashlib.sha256()
  for name in sorted(weights):
    digest.update(name.encode())
    digest.update(np.asarray(weights[name]).tobytes())
  return digest.hexdigest()[:16]


def join(config, devices):
  """Meets the other learners, if there are any; waits until all are there.

  Call before TensorFlow has used any device.

  Args:
    config: A `config.Config`.
    devices: A `devices.Devices`.

  Returns:
    An `Alone` or a `Peers`.

  Raises:
    config_lib.ConfigError: The learners cannot work together like this.
    PeerError: The others did not come.
  """
  if config.num_learners == 1:
    return Alone()
  if config.learner_batch_size % len(devices.learner):
    raise config_lib.ConfigError(
        f'--batch_size={config.batch_size} cannot work: it has to be a '
        f'multiple of {config.num_learners} learners (--learner_hosts) times '
        f'{len(devices.learner)} devices (--num_learner_devices).')
  return Peers(collectives_lib.Collectives(
      config.collective_hosts, config.task, devices.learner))


class Alone:
  """One learner, which decides everything by itself. See `Peers`."""

  strategy = None
  is_first = True

  def check_settings(self, config, facts):
    """There is nobody to disagree with."""

  def share_state(self, learner):
    """The state is the learner's own."""

  def next_batch(self, run, stop):
    """Returns the run's next batch, or None to stop."""
    return run.next_batch(stop)

  def due(self, run):
    """Returns what is to be written now."""
    return run.due()

  def share_episodes(self, reporter):
    """All are the reporter's already."""

  def compare(self, learner):
    """There is nothing to compare with."""

  def check(self, error):
    """No error is another learner's."""

  def finish(self):
    """There is nobody to wait for."""


class Forwarder:
  """In place of a `reporting.Reporter` where another learner writes."""

  def __init__(self):
    self._episodes = collections.deque()

  def episode(self, episode):
    """Keeps a finished game, an `actor.Episode`, until `take`."""
    self._episodes.append(episode)

  def take(self):
    """Returns the games since the last call."""
    return [self._episodes.popleft() for _ in range(len(self._episodes))]

  def step(self, *unused_args):
    """The first learner logs the losses, which are sums over all learners."""

  def write(self, *unused_args):
    """There is nothing to write to."""

  def due(self):
    """Never."""
    return False

  def close(self):
    """There is nothing to close."""


class Peers:
  """One of several learners, and what it does together with the others.

  Attributes:
    strategy: The `tf.distribute.Strategy` over the devices of all.
    is_first: Whether this is the learner that writes checkpoints and logs.
  """

  def __init__(self, collectives):
    """Initializes with a `collectives.Collectives`."""
    self._collectives = collectives
    self._due = Due(False, False)
    self.strategy = collectives.strategy
    self.is_first = collectives.task == 0

  def check_settings(self, config, facts):
    """Compares what all need alike.

    Args:
      config: A `config.Config`.
      facts: A dict of what else has to be equal, as JSON can hold it.

    Raises:
      config_lib.ConfigError: A learner differs; raised at all of them.
    """
    settings = {f'--{name}': getattr(config, name) for name in _SHARED_SETTINGS}
    settings.update(facts, devices=self._collectives.num_devices)
    first, *others = map(
        json.loads, self._collectives.gather(json.dumps(settings).encode()))
    for task, other in enumerate(others, 1):
      for name, value in first.items():
        if other.get(name) != value:
          raise config_lib.ConfigError(
              f'{name} is {value} at learner 0 and {other.get(name)} at '
              f'learner {task}; all learners need the same.')

  def share_state(self, learner):
    """Gives all learners the first one's weights, slots and counters.

    Args:
      learner: A `learner.Learner`.
    """
    variables = learner.variables()
    values = [self.strategy.experimental_local_results(variable)[0].numpy()
              for variable in variables]
    shared = self._collectives.broadcast(
        b''.join(value.tobytes() for value in values))
    offset = 0
    for variable, value in zip(variables, values):
      variable.assign(np.frombuffer(
          shared, value.dtype, value.size, offset).reshape(value.shape))
      offset += value.nbytes

  def next_batch(self, run, stop):
    """Returns a batch once every learner has one, or None to stop.

    Args:
      run: A `training.Run`.
      stop: A `threading.Event`; once it is set at one, all learners stop.

    Raises:
      PeerError: Another learner failed or is gone.
      Exception: What the run's own `next_batch` raised.
    """
    batch = failure = None
    while True:
      if batch is None and not stop.is_set():
        try:
          batch = run.next_batch(stop, _POLL_SECONDS)
        except Exception as e:  # Raised again once the others know.
          failure = e
      state = _FAILED if failure else _STOPPED if stop.is_set() else _GOES_ON
      with run.times.stage('learner_peers'):
        all_ready, states = self._vote(batch is not None, state, run)
      if failure:
        raise failure
      for task in np.flatnonzero(states == _FAILED):
        raise PeerError(
            f'{self._collectives.name(task)} has failed, its own log says why. '
            'Restart all learners; they go on from what learner 0 saves now.')
      for task in np.flatnonzero(states == _STOPPED):
        logging.info('%s stops, and all learners with it.',
                     self._collectives.name(task))
        return None
      if all_ready:
        return batch

  def _vote(self, is_ready, state, run):
    """Returns whether all are ready, and the states of all, int64 [learners].

    What the first learner's clock says is voted on too, for `due`.
    """
    due = run.due() if self.is_first else Due(False, False)
    states = np.zeros([self._collectives.num_learners], np.int64)
    states[self._collectives.task] = state
    total = self._collectives.sum(
        np.concatenate([[is_ready], due, states]))
    self._due = Due(*map(bool, total[1:3]))
    return total[0] == len(states), total[3:]

  def due(self, unused_run):
    """Returns what all are to write now, as of the last vote."""
    return self._due

  def share_episodes(self, reporter):
    """Hands the games that the others took note of to the first learner.

    Args:
      reporter: The first learner's `reporting.Reporter`, or another's
        `Forwarder`.
    """
    games = [] if self.is_first else [
        (game.level_name, float(game.episode_return), int(game.episode_frames))
        for game in reporter.take()]
    gathered = self._collectives.gather(json.dumps(games).encode())
    if self.is_first:
      for game in itertools.chain.from_iterable(map(json.loads, gathered)):
        reporter.episode(actor.Episode(*game))

  def compare(self, learner):
    """Puts weights right that are not the first learner's, with a warning.

    The sums are equal everywhere, but processors of different kinds may round
    an update differently.

    Args:
      learner: A `learner.Learner`.
    """
    hashes = self._collectives.gather(weights_hash(learner.weights()).encode())
    if len(set(hashes)) > 1:
      logging.warning(
          'The weights of the learners differ: %s. All go on with those of '
          'learner 0.', ', '.join(digits.decode() for digits in hashes))
      self.share_state(learner)

  def check(self, error):
    """Raises `PeerError` if a `tf.errors.OpError` means that one is gone."""
    self._collectives.check(error)

  def finish(self):
    """Waits until all learners are about to end.

    Raises:
      PeerError: One is gone.
    """
    nothing = np.zeros([1], np.int64)
    self._collectives.sum(nothing)
    try:
      # One may know a sum before it has reached all, who now say that it has.
      self._collectives.sum(nothing)
    except PeerError:
      pass
