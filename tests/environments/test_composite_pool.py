"""Several pools as one: ids, turns and shapes."""

import numpy as np
import pytest

from scalable_agent import environments
from scalable_agent.environments.pools import composite_pool


class EchoPool(environments.Pool):
  """Shows each environment's steps and the last action it was sent.

  `recv` fails where it would wait for ever. Environments come in a new order
  each time.
  """

  def __init__(self, name, size, num_actions=3, shape=(2,)):
    self.num_environments = size
    self.num_actions = num_actions
    self.observation_spec = (
        environments.ArraySpec(shape, np.dtype(np.float32)),)
    self.level_names = [name] * size
    self.closed = False
    self.log = None
    self._steps = np.zeros([size], np.int32)
    self._actions = np.full([size], -1)
    self._ids = None
    self._ready = True
    self._rng = np.random.RandomState(size)

  def recv(self):
    assert self._ready, 'nothing was sent'
    self._ready = False
    if self.log is not None:
      self.log.append(self.level_names[0])
    ids = self._ids = self._rng.permutation(
        self.num_environments).astype(np.int32)
    steps = self._steps[ids]
    reward = self._actions[ids].astype(np.float32)
    return environments.PoolOutput(
        ids, environments.StepOutput(
            reward, environments.StepOutputInfo(reward / 2, steps),
            steps == 0, (np.stack([ids, steps], 1).astype(np.float32),)),
        is_first=steps == 0, is_last=steps == 7)

  def send(self, ids, actions):
    np.testing.assert_array_equal(ids, self._ids)
    assert not self._ready
    self._actions[ids] = actions
    self._steps[ids] += 1
    self._ready = True

  def close(self):
    self.closed = True


def _make(sizes, batch_size):
  pools = [EchoPool(f'level_{i}', size) for i, size in enumerate(sizes)]
  return composite_pool.CompositePool(pools, batch_size), pools


@pytest.mark.parametrize('batch_size', [0, 1, 3, 4, 6])
def test_environments_keep_their_identity(batch_size):
  """Level, observations, rewards and actions are those of the same one."""
  pool, _ = _make([2, 3, 1], batch_size)
  assert pool.num_environments == 6
  assert pool.level_names == ['level_0'] * 2 + ['level_1'] * 3 + ['level_2']
  first_ids = np.array([0, 0, 2, 2, 2, 5])
  steps = np.zeros([6], np.int32)
  actions = np.full([6], -1)
  for k in range(60):
    ids, output, is_first, is_last = pool.recv()
    assert len(set(ids)) == len(ids) and ids.dtype == np.int32
    np.testing.assert_array_equal(
        output.observation[0], np.stack([ids - first_ids[ids], steps[ids]], 1))
    np.testing.assert_array_equal(output.reward, actions[ids])
    np.testing.assert_array_equal(output.info.episode_return, actions[ids] / 2)
    np.testing.assert_array_equal(output.info.episode_step, steps[ids])
    np.testing.assert_array_equal(output.done, steps[ids] == 0)
    np.testing.assert_array_equal(is_first, steps[ids] == 0)
    np.testing.assert_array_equal(is_last, steps[ids] == 7)
    actions[ids] = 10 * k + ids
    pool.send(ids, actions[ids])
    steps[ids] += 1
  # All had as many turns, but for the one that is under way.
  assert steps.max() - steps.min() <= 1 and steps.min() >= 10


@pytest.mark.parametrize('batch_size, count', [(0, 4), (4, 4), (3, 3), (1, 1)])
def test_members_take_turns(batch_size, count):
  """The next to be received is who was sent to longest ago."""
  pool, members = _make([1] * 4, batch_size)
  log = []
  for member in members:
    member.log = log
  for _ in range(8):
    ids = pool.recv().ids
    assert len(ids) == count
    pool.send(ids, np.zeros([count], np.int32))
  assert log == [f'level_{i % 4}' for i in range(8 * count)]


def test_different_actions_or_observations_are_refused():
  for other in (dict(num_actions=4), dict(shape=(3,))):
    with pytest.raises(environments.PoolError, match='a and b cannot share'):
      composite_pool.CompositePool(
          [EchoPool('a', 1), EchoPool('b', 1, **other)])


def test_close_closes_all():
  pool, members = _make([1, 2], 0)
  pool.close()
  assert all(member.closed for member in members)
