"""Whole episodes: how many of each environment, and what they are worth."""

import collections
import itertools
import json
import logging as python_logging
import math

import numpy as np
import pytest

from scalable_agent import environments
from scalable_agent import trajectories
from scalable_agent.evaluation import play as play_lib
from scalable_agent.evaluation import scores

pytestmark = pytest.mark.usefixtures('bounded')

_NUM_ACTIONS = 7


class ScriptedPool(environments.Pool):
  """Plays episodes of given lengths and returns, a random few at a time.

  All environments are stepped equally often. The return of an episode comes
  with its last step; in the middle of it a life is lost. An observation is [the
  environment, its steps over all episodes].
  """

  num_actions = _NUM_ACTIONS
  observation_spec = (environments.ArraySpec((2,), np.dtype(np.int64)),)

  def __init__(self, episodes, batch_size=None, seed=0):
    """Takes for each environment an iterable of (length, return)."""
    self.num_environments = len(episodes)
    self.level_names = [f'level_{i}' for i in range(len(episodes))]
    self.actions = [[] for _ in episodes]
    self._episodes = [iter(e) for e in episodes]
    self._current = [next(e) for e in self._episodes]
    self._step = np.zeros([len(episodes)], np.int32)
    self._total_step = np.zeros([len(episodes)], np.int64)
    self._batch_size = batch_size or len(episodes)
    self._rng = np.random.RandomState(seed)
    self._waiting = []
    self._ids = None

  def _advance(self, i):
    """Returns reward, totals, done, is_last of environment i."""
    if not self.actions[i]:
      return 0, 0, 0, True, False
    self._step[i] += 1
    self._total_step[i] += 1
    step, (length, episode_return) = self._step[i], self._current[i]
    if step < length:
      return 0, 0, step, step == length // 2, False
    self._step[i] = 0
    self._current[i] = next(self._episodes[i])
    return episode_return, episode_return, length, True, True

  def recv(self):
    assert self._ids is None, 'There has been no send.'
    if not self._waiting:
      self._waiting = list(self._rng.permutation(self.num_environments))
    ids = np.array(self._waiting[:self._batch_size], np.int32)
    del self._waiting[:self._batch_size]
    is_first = np.array([not self.actions[i] for i in ids])
    reward, episode_return, step, done, is_last = map(
        np.array, zip(*(self._advance(i) for i in ids)))
    self._ids = ids
    return environments.PoolOutput(
        ids,
        environments.StepOutput(
            reward.astype(np.float32),
            environments.StepOutputInfo(
                episode_return.astype(np.float32), step.astype(np.int32)),
            done,
            (np.stack([ids, self._total_step[ids]], axis=-1),)),
        is_first, is_last)

  def send(self, ids, actions):
    np.testing.assert_array_equal(ids, self._ids)
    self._ids = None
    for i, action in zip(ids, actions):
      self.actions[i].append(action)

  def close(self):
    pass


def _output(actions):
  size = len(actions)
  return trajectories.AgentOutput(
      action=actions,
      policy_logits=np.zeros([size, _NUM_ACTIONS], np.float32),
      baseline=np.zeros([size], np.float32))


def _always_zero(last_actions, env_output, core_state):
  return (_output(np.zeros_like(last_actions)), core_state,
          np.zeros([len(last_actions)], np.int64))


class CheckingPolicy:
  """Acts at random, and checks that what it gets is what it gave."""

  def __init__(self, num_environments):
    self.actions = [[] for _ in range(num_environments)]
    self._rng = np.random.RandomState(3)

  def __call__(self, last_actions, env_output, core_state):
    ids, steps = env_output.observation[0].T
    assert env_output.info == ()
    actions = self._rng.randint(_NUM_ACTIONS, size=len(ids)).astype(np.int32)
    counts, owners = core_state
    np.testing.assert_array_equal(counts, 100 + steps)
    np.testing.assert_array_equal(owners[:, 1], ids)
    for i, step, last_action, action in zip(ids, steps, last_actions, actions):
      assert step == len(self.actions[i])
      assert last_action == (self.actions[i][-1] if self.actions[i] else 0)
      self.actions[i].append(action)
    versions = np.zeros([len(ids)], np.int64)
    return _output(actions), (counts + 1, owners), versions


def _play(pool, num_episodes, policy=_always_zero, initial_state=(), **kwargs):
  return play_lib.play(pool, policy, initial_state, 4, num_episodes, **kwargs)


def _returns_of(episodes):
  """Returns the returns by environment."""
  returns = collections.defaultdict(list)
  for episode in episodes:
    returns[episode.level_name].append(episode.episode_return)
  return returns


def _numbered(num_environments, lengths):
  """Episode k of environment i returns 100 i + k."""
  return [[(lengths[i], 100 * i + k) for k in range(100)]
          for i in range(num_environments)]


def test_who_takes_the_place_of_another_has_no_last_action():
  """As in training."""
  pool = ScriptedPool(_numbered(2, [9, 9]))
  recv, seen, calls = pool.recv, [], itertools.count(1)

  def replace_the_first():
    output = recv()
    if next(calls) == 4:
      output = output._replace(is_first=output.ids == 0)
    return output

  def act(last_actions, env_output, core_state):
    seen.append(last_actions[np.argsort(env_output.observation[0][:, 0])])
    output, core_state, versions = _always_zero(
        last_actions, env_output, core_state)
    return output._replace(action=output.action + 1), core_state, versions

  pool.recv = replace_the_first
  _play(pool, 2, act)
  np.testing.assert_array_equal(
      seen[:5], [[0, 0], [1, 1], [1, 1], [0, 1], [1, 1]])


@pytest.mark.parametrize('batch_size', [1, 3])
@pytest.mark.parametrize('num_episodes, expected', [
    (6, [2, 2, 2]), (7, [3, 2, 2]), (8, [3, 3, 2]), (2, [1, 1, 0]),
    (1, [1, 0, 0])])
def test_every_environment_plays_its_share(batch_size, num_episodes, expected):
  """The first episodes of each environment count, however long they are."""
  pool = ScriptedPool(_numbered(3, [20, 9, 2]), batch_size)
  episodes = _play(pool, num_episodes)
  assert len(episodes) == num_episodes
  returns = _returns_of(episodes)
  assert [returns[f'level_{i}'] for i in range(3)] == [
      [100 * i + k for k in range(expected[i])] for i in range(3)]


def test_episodes():
  """Each has its level, and the return and frames of all its lives."""
  pool = ScriptedPool([[(5, 2.5), (3, -1.0), (4, 9.0)], [(2, 8.0)] * 9])
  seen = []
  episodes = _play(pool, 4, on_episode=seen.append)
  assert sorted(episodes) == [
      ('level_0', -1.0, 12), ('level_0', 2.5, 20),
      ('level_1', 8.0, 8), ('level_1', 8.0, 8)]
  assert seen == episodes
  assert all(isinstance(episode, trajectories.Episode) for episode in episodes)


def _short_or_long(seed):
  """Either 5 steps for a score of 1, or 50 for 10: 5.5 on average."""
  rng = np.random.RandomState(seed)
  while True:
    yield (50, 10.0) if rng.randint(2) else (5, 1.0)


@pytest.mark.parametrize('num_environments', [400, 200])
def test_mean_is_unbiased(num_environments):
  """Long episodes count as much as short ones, which finish first."""
  make_pool = lambda: ScriptedPool(
      [_short_or_long([1, i]) for i in range(num_environments)], batch_size=50)
  returns = [e.episode_return for e in _play(make_pool(), 400)]
  standard_error = 4.5 / math.sqrt(400)
  assert abs(np.mean(returns) - 5.5) < 3 * standard_error

  pool = make_pool()
  first = []
  while len(first) < 400:
    ids, step_output, _, is_last = pool.recv()
    first.extend(step_output.info.episode_return[is_last])
    pool.send(ids, np.zeros_like(ids))
  assert np.mean(first[:400]) < 5.5 - 4 * standard_error


@pytest.mark.parametrize('batch_size', [1, 2, 5])
def test_policy_gets_back_what_it_gave(batch_size):
  """Actions, last actions and core states stay with their environment."""
  policy = CheckingPolicy(5)
  pool = ScriptedPool(
      [itertools.repeat((i + 2, 1.0)) for i in range(5)], batch_size)
  initial_state = (np.full([5], 100), np.tile(np.arange(5), [3, 1]).T)
  _play(pool, 15, policy, initial_state)
  assert pool.actions == policy.actions
  assert min(map(len, pool.actions)) >= 3 * 6
  # The caller's array is not what the states are kept in.
  np.testing.assert_array_equal(initial_state[0], 100)


def test_error_of_the_pool_is_raised():
  class DyingPool(ScriptedPool):

    def recv(self):
      if len(self.actions[0]) == 3:
        raise environments.PoolError('level_0 died.')
      return super().recv()

  with pytest.raises(environments.PoolError, match='level_0 died'):
    _play(DyingPool([[(100, 0.0)] * 2]), 1)


def test_an_episode_that_does_not_end_is_refused(monkeypatch):
  """But not where an environment that has played its share goes on."""
  monkeypatch.setattr(play_lib, '_MAX_STEPS', 50)
  endless, short = [(10**9, 0.)], [(49, 0.)] * 9
  with pytest.raises(environments.PoolError, match=(
      'An episode of level_1 has had 50 agent steps and has not ended. ')):
    _play(ScriptedPool([short, endless]), 2)
  assert len(_play(ScriptedPool([short, endless]), 1)) == 1


def test_long_episodes_are_told(monkeypatch, caplog):
  caplog.set_level(python_logging.INFO)
  monkeypatch.setattr(play_lib, '_LOG_SECONDS', 0.)
  _play(ScriptedPool([[(9, 0.)] * 2]), 1)
  assert ('Playing level_0: the longest episode has had 7 agent steps so far.'
          in caplog.messages)


def test_scores_of_played_episodes_can_be_written(tmp_path):
  """What a pool hands out in NumPy types ends up in the file."""
  episodes = _play(ScriptedPool([[(5, 0.1)] * 3]), 2)
  scores.write_scores(
      str(tmp_path), {'level_0': scores.of_level('level_0', episodes)}, 8,
      {})
  levels = json.loads((tmp_path / 'test_scores.json').read_text())['levels']
  assert levels['level_0']['mean'] == pytest.approx(0.1)
  assert levels['level_0']['episode_frames'] == [20, 20]
