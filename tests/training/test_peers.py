"""Votes of several learners, here threads that add up in memory."""

import collections
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import trajectories
from scalable_agent.logs import metrics
from scalable_agent.process import progress
from scalable_agent.process import signals
from scalable_agent.process import timing
from scalable_agent.training import batches
from scalable_agent.training import collectives
from scalable_agent.training import loop
from scalable_agent.training import not_finite
from scalable_agent.training import peers as peers_lib

pytestmark = pytest.mark.usefixtures('bounded')

_NUM_LEARNERS = 3


class _Meeting:
  """Where the learners' vectors meet."""

  def __init__(self):
    self.vectors = [None] * _NUM_LEARNERS
    self.barrier = threading.Barrier(_NUM_LEARNERS)


class _FakeCollectives(collectives.Collectives):
  """Adds up without TensorFlow; the rest is the real thing."""

  strategy = None
  num_learners = _NUM_LEARNERS
  num_devices = 1
  _hosts = [f'host{task}:1' for task in range(_NUM_LEARNERS)]

  def __init__(self, task, meeting):
    self.task = task
    self._meeting = meeting

  def sum(self, values):
    meeting = self._meeting
    meeting.vectors[self.task] = np.array(values, np.int64)
    meeting.barrier.wait(60.)
    total = np.sum(np.stack(meeting.vectors), axis=0)
    meeting.barrier.wait(60.)
    return total


class _FakeRun:
  """Hands out numbers as batches, None where there is to be none in time."""

  reporter = metrics.Forwarder()
  learner = None

  def __init__(self, batches, due=peers_lib.Due(False, False), skipped=()):
    self._batches = list(batches)
    self._skipped = skipped
    self._due = due
    self._num_calls = 0
    self.times = timing.StageTimes()
    self.batches = types.SimpleNamespace(
        next=self._next_batch, note_wait=self._note_wait)
    self.trained = []
    self.written = []
    self.num_noted = 0
    self.num_steps = 0

  @property
  def done(self):
    return len(self.trained) >= self.num_steps

  def _next_batch(self, stop, seconds):
    assert seconds < 1.
    self._num_calls += 1
    assert self._num_calls < 100, 'polled for ever'
    batch = (self._batches.pop(0)
             if self._batches and not stop.is_set() else None)
    if isinstance(batch, Exception):
      raise batch
    return batch

  def _note_wait(self):
    self.num_noted += 1

  def train_on(self, batch):
    self.trained.append(batch)
    return dict(skipped=float(batch in self._skipped))

  def due(self):
    return self._due

  def report(self):
    self.written.append('report')

  def save(self):
    self.written.append('save')

  def finish(self):
    self.written.append('finish')


def _together(function):
  """What `function(task, peers)` returned or raised in each learner."""
  meeting = _Meeting()
  results = [None] * _NUM_LEARNERS

  def run(task):
    try:
      results[task] = function(
          task, peers_lib.Peers(_FakeCollectives(task, meeting)))
    except Exception as e:  # Given to the test.
      results[task] = e
      meeting.barrier.abort()

  threads = [threading.Thread(target=run, args=(task,))
             for task in range(_NUM_LEARNERS)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return results


def _learn(peers, run, stop, num_steps):
  """The batches trained on until something stops this learner."""
  peers.share_episodes = peers.compare = lambda unused_argument: None
  run.trained, run.num_steps = [], num_steps
  try:
    loop.loop(None, run, peers, stop, progress.ProgressLine())
  except Exception as e:  # Given to the test.
    return run.trained, e
  return run.trained, None


@pytest.mark.parametrize('num_learners', [1, 2])
@pytest.mark.parametrize('is_early', [True, False])
def test_a_signal_ends_a_learner_before_it_waits_for_others(
    monkeypatch, is_early, num_learners):
  stop, started = signals.Stop(), []

  def start_actors(unused_config, stack):
    stack.callback(started.append, 'closed')
    started.append('started')
    stop.set()
    stop.interrupt()
    pytest.fail('goes on')

  monkeypatch.setattr(loop.devices_assembly, 'choose', lambda config: None)
  monkeypatch.setattr(loop.messages, 'level', lambda config: '')
  monkeypatch.setattr(
      peers_lib, 'join', lambda *unused_args: pytest.fail('waits'))
  if is_early:
    stop.set()
  loop.train(
      types.SimpleNamespace(num_learners=num_learners), start_actors, stop,
      None, lambda config: None)
  assert started == ([] if is_early else ['started', 'closed'])


def test_learners_do_not_wait_in_vain_once_tensorflow_is_used(monkeypatch):
  """Which refuses to connect them then."""
  tf.constant(1)
  monkeypatch.setattr(collectives, '_meet', lambda *_: pytest.fail('waits'))
  config = types.SimpleNamespace(
      num_learners=2, task=0, network='my.torso:Name',
      collective_hosts=['localhost:1', 'localhost:2'])
  devices = types.SimpleNamespace(learner=['/cpu:0'])
  with pytest.raises(config_lib.ConfigError, match='--network=my.torso:Name'):
    peers_lib.join(config, devices)


def test_an_update_waits_for_all_and_loses_no_batch():
  late = {0: [1, None, 2, 3], 1: [None, None, 1, 2, None, 3], 2: [1, 2, 3]}
  runs = [_FakeRun(late[task]) for task in range(_NUM_LEARNERS)]
  results = _together(lambda task, peers: _learn(
      peers, runs[task], threading.Event(), 3))
  assert results == [([1, 2, 3], None)] * _NUM_LEARNERS
  # What one without a batch has to note, it notes while it waits for that.
  assert [run.num_noted for run in runs] == [3, 1, 4]


@pytest.mark.parametrize('has_batch', [True, False])
@pytest.mark.parametrize('stopped', range(_NUM_LEARNERS))
def test_one_that_stops_stops_all(stopped, has_batch):
  """After the same number of updates, whoever had batches left."""
  def learn(task, peers):
    stop = threading.Event()
    run = _FakeRun([1, 2] if task == stopped and not has_batch else range(1, 9))
    trained, error = _learn(peers, run, stop, 2)
    assert error is None
    if task == stopped:
      stop.set()
    more, error = _learn(peers, run, stop, 9)
    assert error is None
    return trained + more

  assert _together(learn) == [[1, 2]] * _NUM_LEARNERS


@pytest.mark.parametrize('num_steps', [2, 3])
def test_actors_hear_of_the_end_of_training_and_of_no_other(num_steps):
  run = _FakeRun([1, 2])
  peers = peers_lib.Alone()
  peers.poll_seconds = .5
  _learn(peers, run, threading.Event(), num_steps)
  assert run.trained == [1, 2]
  assert run.written == ['finish'] * (num_steps == 2)


def test_episodes_are_shared_once_more_at_the_end():
  """Those since the last report would be lost."""
  run, shared = _FakeRun([1]), []
  run.num_steps = 1
  peers = peers_lib.Alone()
  peers.poll_seconds = .5
  peers.share_episodes = shared.append
  loop.loop(None, run, peers, threading.Event(), progress.ProgressLine())
  assert run.trained == [1] and shared == [run.reporter]


@pytest.mark.parametrize('skipped, last, is_error', [
    ([1, 2, 4, 5, 6, 7], 6, True), ([6, 7, 8], 8, True),
    ([2, 3, 5, 6, 8], 8, False)])
def test_a_run_ends_after_so_many_skipped_updates_in_a_row(
    monkeypatch, skipped, last, is_error):
  monkeypatch.setattr(loop, 'MAX_SKIPPED_UPDATES', 3)
  monkeypatch.setattr(not_finite, 'explain', lambda config, count, batch: (
      f'{count} in a row, the last is {batch}'))
  run = _FakeRun([(number,) for number in range(1, 9)],
                 skipped=[(number,) for number in skipped])
  peers = peers_lib.Alone()
  peers.poll_seconds = .5
  trained, error = _learn(peers, run, threading.Event(), 8)
  assert len(trained) == last
  assert isinstance(error, batches.TrainingError) == is_error
  if is_error:
    assert str(error) == f'3 in a row, the last is {last}'


@pytest.mark.parametrize('failing', range(_NUM_LEARNERS))
def test_one_that_fails_stops_all_and_is_named(failing):
  failure = RuntimeError('no environments')
  results = _together(lambda task, peers: _learn(
      peers, _FakeRun([1, failure if task == failing else 2]),
      threading.Event(), 9))
  assert [trained for trained, _ in results] == [[1]] * _NUM_LEARNERS
  for task, (_, error) in enumerate(results):
    if task == failing:
      assert error is failure
    else:
      assert isinstance(error, peers_lib.PeerError)
      assert str(error).startswith(
          f'Learner {failing} (host{failing}:1) has failed')


@pytest.mark.parametrize('report, save', [(True, False), (False, True)])
def test_the_first_learners_clock_decides_what_is_written(report, save):
  def learn(task, peers):
    run = _FakeRun([1], peers_lib.Due(report, save) if task == 0 else
                   peers_lib.Due(not report, not save))
    _learn(peers, run, threading.Event(), 1)
    return run.written[:-1]  # Without the end.

  # The logs of what is saved are written before.
  expected = ['report'] + ['save'] * save
  assert _together(learn) == [expected] * _NUM_LEARNERS


def test_episodes_of_all_learners_reach_the_first():
  games = lambda task: [
      trajectories.Episode(f'level {task}', .1 * i, 1000 + i)
      for i in range(task + 1)]

  class Reporter:

    def __init__(self):
      self.games = []

    def episode(self, game):
      self.games.append(game)

  def share(task, peers):
    reporter = metrics.Forwarder() if task else Reporter()
    for game in games(task):
      reporter.episode(game)
    peers.share_episodes(reporter)
    assert not task or not reporter.take()
    peers.share_episodes(reporter)
    return reporter.games if task == 0 else []

  first, *others = _together(share)
  assert collections.Counter(first) == collections.Counter(
      game for task in range(_NUM_LEARNERS) for game in games(task))
  assert others == [[], []]


@pytest.mark.parametrize('error, message, named', [
    (tf.errors.UnavailableError, 'heartbeats: /job:worker/replica:0/task:2',
     'Learner 2 (host2:1) died'),
    (tf.errors.InternalError, 'from /task:0, at /job:worker/task:1',
     'Learner 0 (host0:1) died'),
    (tf.errors.AbortedError, 'from /task:0 and /task:2',
     'Learner 0 (host0:1) and Learner 2 (host2:1) died'),
    (tf.errors.UnavailableError, 'Collective ops is aborted by: a reset',
     'Another learner died'),
    (tf.errors.InternalError, 'no kernel at /job:worker/task:1', None),
    (tf.errors.ResourceExhaustedError, 'memory of /task:0', None),
])
def test_what_means_that_a_learner_is_gone(error, message, named):
  """To learner 1; its own errors stay what they are."""
  peers = peers_lib.Peers(_FakeCollectives(1, _Meeting()))
  if named is None:
    peers.check(error(None, None, message))
    return
  with pytest.raises(peers_lib.PeerError) as caught:
    peers.check(error(None, None, message))
  assert str(caught.value).startswith(named)


@pytest.mark.parametrize('lost_at', [1, 2, None])
def test_who_ends_waits_for_all_and_for_their_word_that_they_know(lost_at):
  """Who is lost only then has ended well, and knew that all were there."""
  sums = []

  class Collectives(_FakeCollectives):

    def sum(self, values):
      sums.append(values)
      if len(sums) == lost_at:
        raise peers_lib.PeerError('gone')

  peers = peers_lib.Peers(Collectives(1, None))
  if lost_at == 1:
    with pytest.raises(peers_lib.PeerError):
      peers.finish()
  else:
    peers.finish()
    assert len(sums) == 2
