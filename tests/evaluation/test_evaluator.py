"""Evaluation while training: when, with which weights, and in nobody's way."""

import contextlib
import sys
import threading
import time

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent import trajectories
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.evaluation import evaluator as evaluator_lib
from scalable_agent.evaluation import play
from scalable_agent.process import signals
from scalable_agent.process import threads

pytestmark = pytest.mark.usefixtures('bounded')

_DEVICES = devices_assembly.Devices(['/cpu:0'], '/cpu:0', False)
_LEVEL = 'synthetic:step_ms=0,size=3,episode_steps=7'
_TIMEOUT_SECONDS = 60.


def _config(logdir='/nonexistent', **values):
  return config_lib.resolve(dict(dict(
      level_name=_LEVEL, logdir=str(logdir), evaluate_every_frames=100,
      test_num_episodes=3), **values))


class _Played:
  """Stands in for `play.play_level`, and lets a test say when one ends."""

  def __init__(self, monkeypatch):
    self.configs = []
    self.results = []
    self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
    monkeypatch.setattr(play, 'play_level', self._play_level)

  def _play_level(self, config, policy, agent, on_pool):
    del agent, on_pool
    self.configs.append(config)
    self.begun.release()
    while not self.may_end.acquire(timeout=.01):
      if policy.__self__._closing:
        raise threads.Ended()
    if self.results:
      raise self.results.pop(0)
    return [trajectories.Episode(config.level_name, 1., 7)]

  def wait(self):
    assert self.begun.acquire(timeout=_TIMEOUT_SECONDS)


@pytest.fixture
def played(monkeypatch):
  return _Played(monkeypatch)


@pytest.fixture
def evaluator():
  """An `Evaluator` of the level, and the frames that it has reported."""
  config = _config()
  facts = suites.find_facts(config)
  with contextlib.ExitStack() as stack:
    evaluator = evaluator_lib.start(config, facts, _DEVICES, stack)
    evaluator.reports = []
    evaluator.weights = agent_assembly.create_agent(
        config, facts).initial_params(1)
    yield evaluator


def _begin(evaluator, last_frames=0):
  evaluator.begin(
      last_frames, lambda frames, episodes: evaluator.reports.append(frames))


def _offer(evaluator, frames):
  start = time.monotonic()
  evaluator.offer(evaluator.weights, frames, frames)
  assert time.monotonic() - start < 1.


def _wait_until_idle(evaluator):
  stop = signals.Stop()
  timer = threading.Timer(_TIMEOUT_SECONDS, stop.set)
  timer.start()
  try:
    evaluator.wait(stop)
  finally:
    timer.cancel()
  assert not stop.is_set()


def test_every_so_many_frames(evaluator, played):
  """With the first weights that have reached another multiple."""
  _begin(evaluator)
  for frames in range(40, 500, 40):
    played.may_end.release()
    _offer(evaluator, frames)
    _wait_until_idle(evaluator)
  assert evaluator.reports == [120, 200, 320, 400]


def test_of_a_large_step_there_is_one_evaluation(evaluator, played):
  """Though it has reached several multiples."""
  played.may_end.release(9)
  _begin(evaluator)
  for frames in 350, 360, 390, 400:
    _offer(evaluator, frames)
    _wait_until_idle(evaluator)
  assert evaluator.reports == [350, 400]


def test_training_never_waits(evaluator, played):
  """What is due while another is played waits for its end; the last counts."""
  _begin(evaluator)
  _offer(evaluator, 100)
  played.wait()
  for frames in range(110, 460, 10):
    _offer(evaluator, frames)
  played.may_end.release(2)
  _wait_until_idle(evaluator)
  assert evaluator.reports == [100, 400]


def test_a_resumed_run_makes_up_for_what_was_lost(evaluator, played):
  """The last evaluation that is in the log was at 120 of 250 frames."""
  played.may_end.release(9)
  _begin(evaluator, last_frames=120)
  for frames in 130, 190, 250, 290, 310:
    _offer(evaluator, frames)
    _wait_until_idle(evaluator)
  assert evaluator.reports == [250, 310]


@pytest.mark.usefixtures('played')
def test_the_end_does_not_wait(evaluator):
  """An evaluation that goes on is given up."""
  _begin(evaluator)
  _offer(evaluator, 100)
  start = time.monotonic()
  evaluator.close()
  assert time.monotonic() - start < 10.
  assert evaluator.reports == []


def test_the_end_does_not_wait_for_environments(evaluator, monkeypatch):
  """They may be stuck, until their pool is closed."""
  is_stuck, is_closed = threading.Event(), threading.Event()

  class Pool:
    close = is_closed.set

  def play_level(config, policy, agent, on_pool):
    on_pool(Pool)
    is_stuck.set()
    is_closed.wait(_TIMEOUT_SECONDS)
    raise environments.PoolError('The pool is closed.')

  monkeypatch.setattr(play, 'play_level', play_level)
  _begin(evaluator)
  _offer(evaluator, 100)
  assert is_stuck.wait(_TIMEOUT_SECONDS)
  evaluator.close()
  assert is_closed.is_set() and evaluator.reports == []


def test_the_end_does_not_wait_for_environments_that_are_being_made(
    evaluator, monkeypatch):
  """Their pool is closed before anything is asked of it."""
  is_making, may_end, is_closed = (threading.Event() for _ in range(3))
  received = []

  class Pool:
    num_environments = 3
    close = is_closed.set

    def recv(self):
      received.append(self)
      raise environments.PoolError('The pool is closed.')

  def make_pools(config, layout, seed):
    is_making.set()
    may_end.wait(_TIMEOUT_SECONDS)
    return [Pool()]

  monkeypatch.setattr(suites, 'make_pools', make_pools)
  monkeypatch.setattr(evaluator_lib, '_MAKING_SECONDS', .01)
  _begin(evaluator)
  _offer(evaluator, 100)
  assert is_making.wait(_TIMEOUT_SECONDS)
  evaluator.close()
  assert not is_closed.is_set()
  may_end.set()
  assert is_closed.wait(_TIMEOUT_SECONDS)
  assert not received and evaluator.reports == []


@pytest.mark.usefixtures('played')
def test_a_signal_ends_the_wait(evaluator):
  _begin(evaluator)
  _offer(evaluator, 100)
  stop = signals.Stop()
  stop.set()
  evaluator.wait(stop)
  assert evaluator.reports == []


def test_an_evaluation_that_fails_is_told_and_the_next_is_made(
    evaluator, played, caplog):
  played.may_end.release(2)
  played.results = [environments.PoolError('the game is over')]
  _begin(evaluator)
  _offer(evaluator, 100)
  _wait_until_idle(evaluator)
  assert 'evaluation of frame 100 failed: the game is over' in caplog.text
  _offer(evaluator, 200)
  _wait_until_idle(evaluator)
  assert evaluator.reports == [200]


def test_what_should_not_happen_ends_the_run(evaluator, played):
  played.may_end.release()
  played.results = [KeyError('a mistake')]
  _begin(evaluator)
  _offer(evaluator, 100)
  with pytest.raises(KeyError, match='a mistake'):
    _wait_until_idle(evaluator)
  with pytest.raises(KeyError, match='a mistake'):
    _offer(evaluator, 110)


def test_all_levels_of_a_suite_are_played_as_in_test_mode(
    monkeypatch, played):
  played.may_end.release(100)
  monkeypatch.setattr(suites, 'find_facts', lambda config: None)
  monkeypatch.setattr(agent_assembly, 'create_agent',
                      lambda config, facts: None)
  monkeypatch.setattr(evaluator_lib.policy_lib, 'Policy',
                      lambda *args: type('Policy', (), dict(
                          update=lambda *args: None))())
  evaluator = evaluator_lib.Evaluator(
      _config(level_name='dmlab30', num_actors=30, environment_threads=8,
              dataset_path='/images'), None, _DEVICES)
  reports = []
  evaluator.begin(0, lambda frames, episodes: reports.append(episodes))
  evaluator.offer({}, 0, 100)
  _wait_until_idle(evaluator)
  evaluator.close()
  (episodes,) = reports
  names = [episode.level_name for episode in episodes]
  assert len(set(names)) == 30
  assert 'language_answer_quantitative_question' in names
  assert 'rooms_collect_good_objects_test' in names
  for config in played.configs:
    assert (config.mode, config.environment_threads, config.dataset_path,
            config.test_num_episodes) == ('test', 1, '/images', 3)


def test_real_episodes_with_the_weights_that_were_offered(evaluator):
  """Agents of which one has a bias for an action that it always takes."""
  config = _config()
  reports, actions = [], []
  evaluator.begin(0, lambda *report: reports.append(report))
  for action in 2, 5:
    weights = {name: np.zeros_like(value)
               for name, value in evaluator.weights.items()}
    weights['policy_logits/b'][action] = 1e3
    evaluator.offer(weights, action, 100 * action)
    _wait_until_idle(evaluator)
    output, _, versions = evaluator._policy(
        np.zeros([1], np.int32), environments.StepOutput(
            np.zeros([1], np.float32), (), np.ones([1], bool),
            (np.zeros([1, 3], np.float32),)), ())
    actions.append((int(output.action[0]), int(versions[0])))
  assert actions == [(2, 2), (5, 5)]
  assert [frames for frames, _ in reports] == [200, 500]
  for _, episodes in reports:
    assert [e.level_name for e in episodes] == [config.level_name] * 3
    # The reward is 1 in an episode's last step.
    assert [e.episode_return for e in episodes] == [1.] * 3


@pytest.mark.parametrize('settings, evaluates', [
    (dict(), True), (dict(evaluate_every_frames=0), False),
    (dict(mode='test'), False), (dict(task=0), True),
    (dict(task=0, job_name='actor'), False)])
def test_who_evaluates(settings, evaluates):
  """The process that writes the log directory, also where others act."""
  with contextlib.ExitStack() as stack:
    config = _config(**settings)
    found = evaluator_lib.start(
        config, suites.find_facts(config), _DEVICES, stack)
    assert (found is not None) == evaluates


def test_the_second_learner_does_not_evaluate():
  config = _config(task=1, learner_hosts=['a:1', 'b:2'], insecure_network=True,
                   batch_size=2)
  assert not config.evaluates


def test_what_cannot_be_played_here_is_refused_at_the_start(monkeypatch):
  """A learner job needs no DeepMind Lab but for this."""
  monkeypatch.setitem(sys.modules, 'deepmind_lab', None)
  values = dict(level_name='rooms_watermaze', task=0)
  plain = _config(**values, evaluate_every_frames=0)
  facts = suites.find_facts(plain)
  with contextlib.ExitStack() as stack:
    assert evaluator_lib.start(plain, facts, _DEVICES, stack) is None
    with pytest.raises(environments.PoolError, match='deepmind_lab'):
      evaluator_lib.start(_config(**values), facts, _DEVICES, stack)
