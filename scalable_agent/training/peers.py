"""Several learners, which update the same weights together.

Every learner computes the gradient of its share of the batch, and collectives
sum these, so that the weights stay equal to the bit. All learners have to take
part in the same collectives, in the same order. Therefore they vote before each
update: it is made if all have a batch, and if one has to stop, all do. A
learner that waits for a batch votes too, so that nobody waits long for a vote.
"""

import collections
import itertools
import json
import math

from absl import logging
import numpy as np

from scalable_agent import config as config_lib
from scalable_agent import trajectories
from scalable_agent.checkpoints import weights_hash
from scalable_agent.training import collectives as collectives_lib

PeerError = collectives_lib.PeerError

_POLL_SECONDS = .5
_GOES_ON, _STOPPED, _FAILED = range(3)

Due = collections.namedtuple('Due', 'report save')
Due.__doc__ = """Whether to write metrics and a checkpoint now; bools."""

Verdict = collections.namedtuple('Verdict', 'trains stops due')
Verdict.__doc__ = """What all learners do now.

  trains: Bool, each trains on its batch.
  stops: Bool, all stop.
  due: A `Due` by the first learner's clock.
"""


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
  if collectives_lib.is_too_late():
    raise config_lib.ConfigError(
        'TensorFlow was used in this process before the learners have met. If '
        f'--network={config.network} does that when it is imported or made, '
        'leave it to init and apply.')
  return Peers(collectives_lib.Collectives(
      config.collective_hosts, config.task, devices.learner))


class Alone:
  """One learner, which decides everything by itself. See `Peers`."""

  strategy = None
  is_first = True
  poll_seconds = math.inf

  def check_settings(self, config, facts):
    """There is nobody to disagree with."""

  def share_state(self, learner):
    """The state is the learner's own."""

  def vote(self, is_ready, wants_stop, failure, due):
    """Returns the `Verdict` of one vote; raises the failure if there is one."""
    if failure:
      raise failure
    return Verdict(is_ready, wants_stop or not is_ready, due)

  def share_episodes(self, reporter):
    """All are the reporter's already."""

  def compare(self, learner):
    """There is nothing to compare with."""

  def check(self, error):
    """No error is another learner's."""

  def finish(self):
    """There is nobody to wait for."""


class Peers:
  """One of several learners, and what it does together with the others.

  Attributes:
    strategy: The `tf.distribute.Strategy` over the devices of all.
    is_first: Whether this is the learner that writes checkpoints and logs.
    poll_seconds: How long to wait for a batch before the next vote.
  """

  def __init__(self, collectives):
    """Initializes with a `collectives.Collectives`."""
    self._collectives = collectives
    self.strategy = collectives.strategy
    self.poll_seconds = _POLL_SECONDS
    self.is_first = collectives.task == 0

  def check_settings(self, config, facts):
    """Checks that all learners have the same settings and facts.

    Args:
      config: A `config.Config`.
      facts: Of `logdir.facts_of`.

    Raises:
      config_lib.ConfigError: A learner differs; raised at all of them.
    """
    settings = {
        f'--{name}': value for name, value in config_lib.effective_values(
            vars(config), config_lib.LEARNERS).items()}
    settings.update(facts, devices=self._collectives.num_devices)
    first, *others = map(
        json.loads, self._collectives.gather(json.dumps(settings).encode()))
    for task, other in enumerate(others, 1):
      for name, value in first.items():
        if other.get(name) != value:
          self.finish()  # So that all hear of it before one is gone.
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

  def vote(self, is_ready, wants_stop, failure, due):
    """Decides together what all do next.

    Args:
      is_ready: Whether this learner has a batch.
      wants_stop: Whether it wants to stop; then all do.
      failure: The exception that it is about to end with, or None.
      due: Its own `Due`.

    Returns:
      A `Verdict`: all train once every learner has a batch.

    Raises:
      PeerError: Another learner failed or is gone.
      Exception: `failure`, once the others know of it.
    """
    state = _FAILED if failure else _STOPPED if wants_stop else _GOES_ON
    # One sum: who is ready, the first one's clock, and everybody's state.
    num_learners = self._collectives.num_learners
    votes = np.zeros([3 + num_learners], np.int64)
    votes[0] = is_ready
    votes[1:3] = due if self.is_first else Due(False, False)
    votes[3 + self._collectives.task] = state
    votes = self._collectives.sum(votes)
    states = votes[3:]
    if failure:
      raise failure
    for task in np.flatnonzero(states == _FAILED):
      raise PeerError(
          f'{self._collectives.name(task)} has failed, its own log says why. '
          'Restart all learners; they go on from what learner 0 saves now.')
    for task in np.flatnonzero(states == _STOPPED):
      logging.info('%s stops, and all learners with it.',
                   self._collectives.name(task))
    stops = bool((states == _STOPPED).any())
    return Verdict(not stops and votes[0] == num_learners, stops,
                   Due(*map(bool, votes[1:3])))

  def share_episodes(self, reporter):
    """Hands the episodes that the others noted to the first learner.

    Args:
      reporter: The first learner's `metrics.Reporter`, or another's
        `metrics.Forwarder`.
    """
    episodes = [] if self.is_first else [
        (e.level_name, float(e.episode_return), int(e.episode_frames))
        for e in reporter.take()]
    gathered = self._collectives.gather(json.dumps(episodes).encode())
    if self.is_first:
      for episode in itertools.chain.from_iterable(map(json.loads, gathered)):
        reporter.episode(trajectories.Episode(*episode))

  def compare(self, learner):
    """Warns of weights that are not the first learner's, and replaces them.

    The sums are equal everywhere, but processors of different kinds may round
    an update differently.

    Args:
      learner: A `learner.Learner`.
    """
    hashes = self._collectives.gather(
        weights_hash.of(learner.weights()).encode())
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
      # The first sum may reach this learner before the others. A second sum
      # starts only when all have the first.
      self._collectives.sum(nothing)
    except PeerError:
      pass
