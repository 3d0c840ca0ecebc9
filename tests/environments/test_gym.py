import sys
import types

import numpy as np
import pytest

gymnasium = pytest.importorskip('gymnasium')

from scalable_agent.environments import PoolError
from scalable_agent.environments import gym

pytestmark = pytest.mark.usefixtures('bounded')


class FakeEnvironment(gymnasium.Env):
  """Ends after 5 steps, by truncation in every other episode.

  An observation is the number of steps in this episode, in all its elements.
  """

  def __init__(self, observation_space, start=0):
    self.observation_space = observation_space
    self.action_space = gymnasium.spaces.Discrete(3, start=start)
    self.actions = []
    self._episode = 0

  def _observe(self):
    space = self.observation_space
    return np.full(space.shape, self._step, space.dtype)

  def reset(self, seed=None, options=None):
    self._step = 0
    self._episode += 1
    return self._observe(), {}

  def step(self, action):
    self.actions.append(action)
    self._step += 1
    ended = self._step == 5
    is_odd = bool(self._episode % 2)
    return (self._observe(), 0.5 * self._step, ended and is_odd,
            ended and not is_odd, {})


def _box(shape, dtype):
  return gymnasium.spaces.Box(0, 255, shape, dtype)


@pytest.fixture
def make_fake():
  """Registers a fake and makes it: (observation space, repeats, ...)."""

  def make(observation_space, num_action_repeats=1, **kwargs):
    gymnasium.register('Fake-v0', lambda: FakeEnvironment(
        observation_space, **kwargs))
    return gym.make_environment('gym:Fake-v0', 0, num_action_repeats)

  yield make
  gymnasium.registry.pop('Fake-v0', None)


def _step_directly(environment, action, num_action_repeats):
  """Returns what `GymEnvironment.step` should, written differently."""
  rewards = []
  while len(rewards) < num_action_repeats:
    observation, reward, terminated, truncated, _ = environment.step(action)
    rewards.append(reward)
    if terminated or truncated:
      return sum(rewards), True, environment.reset()[0]
  return sum(rewards), False, observation


@pytest.mark.parametrize('num_action_repeats', [1, 4])
def test_cartpole_is_exactly_gymnasiums(num_action_repeats):
  pool = gym.make_pool('gym:CartPole-v1', 3, seed=7, num_processes=2,
                       num_action_repeats=num_action_repeats)
  try:
    assert pool.num_actions == 2
    assert pool.level_names == ['gym:CartPole-v1'] * 3
    spec, = pool.observation_spec
    assert (spec.shape, spec.dtype) == ((4,), np.float32)
    references = [gymnasium.make('CartPole-v1') for _ in range(3)]
    expected = [(0.0, True, reference.reset(seed=7 + i)[0])
                for i, reference in enumerate(references)]
    counts = np.zeros(3, np.int64)
    episodes = 0
    rng = np.random.default_rng(3)
    while counts.min() < 500:
      output = pool.recv()
      step = output.step_output
      actions = rng.integers(2, size=len(output.ids))
      for row, i in enumerate(output.ids.tolist()):
        reward, done, observation = expected[i]
        assert step.reward[row] == reward
        assert step.done[row] == done
        assert step.observation[0][row].tolist() == observation.tolist()
        expected[i] = _step_directly(
            references[i], int(actions[row]), num_action_repeats)
        episodes += done
      counts[output.ids] += 1
      pool.send(output.ids, actions)
    assert episodes > 20
  finally:
    pool.close()


def test_seeds_differ_by_environment_and_do_not_repeat_the_episode():
  environment = gym.make_environment('gym:CartPole-v1', 5)
  first, = environment.initial()
  assert first.tolist() != gym.make_environment(
      'gym:CartPole-v1', 6).initial()[0].tolist()
  done = False
  while not done:
    _, done, (observation,) = environment.step(0)
  assert first.tolist() != observation.tolist()


def test_action_repeats_stop_at_the_end_of_an_episode(make_fake):
  environment = make_fake(_box((2,), np.float32), num_action_repeats=3)
  environment.initial()
  for _ in range(2):  # One episode is terminated, the other truncated.
    assert environment.step(0)[:2] == (3.0, False)
    reward, done, (observation,) = environment.step(0)
    assert (reward, done) == (4.5, True)
    assert observation.tolist() == [0, 0]


@pytest.mark.parametrize('shape,dtype,expected', [
    ((3,), np.float64, ((3,), np.float32)),
    ((3,), np.float32, ((3,), np.float32)),
    ((3,), np.uint8, ((3,), np.uint8)),
    ((6, 5, 3), np.uint8, ((6, 5, 3), np.uint8)),
    ((6, 5, 3), np.float64, ((6, 5, 3), np.float32)),
    ((6, 5), np.uint8, ((6, 5, 1), np.uint8))])
def test_observation_spec(make_fake, shape, dtype, expected):
  environment = make_fake(_box(shape, dtype))
  (spec,) = environment.observation_spec
  assert (spec.shape, spec.dtype) == expected
  for observation in (environment.initial(), environment.step(0)[2]):
    assert isinstance(observation, tuple)
    assert (observation[0].shape, observation[0].dtype) == expected
  assert (observation[0] == 1).all()


def test_actions_count_from_the_spaces_start(make_fake):
  environment = make_fake(_box((2,), np.float32), start=-1)
  environment.initial()
  assert environment.num_actions == 3
  for action in range(3):
    environment.step(action)
  assert environment._environment.unwrapped.actions == [-1, 0, 1]


@pytest.mark.parametrize('space,message', [
    (_box((), np.float32), 'neither a vector nor an image'),
    (_box((2, 2, 2, 2), np.uint8), 'neither a vector nor an image'),
    (_box((2,), np.int64), 'neither uint8 nor float'),
    (gymnasium.spaces.Discrete(3), r'Discrete\(3\) is not a Box')])
def test_unsupported_observations(make_fake, space, message):
  with pytest.raises(PoolError, match='^gym:Fake-v0: .*' + message):
    make_fake(space)


def _error(level_name, **kwargs):
  """Returns the message of the `PoolError` of making an environment."""
  with pytest.raises(PoolError) as info:
    gym.make_environment(level_name, 0, **kwargs)
  message = str(info.value)
  assert message.startswith(level_name + ': ')
  assert '\n' not in message
  return message


def test_unsupported_actions():
  assert _error('gym:Pendulum-v1').startswith(
      'gym:Pendulum-v1: action space Box(-2.0, 2.0, (1,), float32) is not ')


def test_unknown_id_names_similar_ones():
  assert 'gym:CartPole-v1' in _error('gym:CratPole-v1')
  assert 'similar' not in _error('gym:xyzzy')


def test_error_reaches_the_pools_maker():
  with pytest.raises(PoolError) as info:
    gym.make_pool('gym:CratPole-v1', 2, seed=0)
  assert str(info.value) == _error('gym:CratPole-v1')


@pytest.mark.parametrize('level_name', ['gym:', 'gym:a/b/c', 'gym:no_module:A'])
def test_malformed_id(level_name):
  _error(level_name)


def test_other_prefix():
  assert 'start with gym:' in _error('CartPole-v1')


def test_repeats_must_be_positive():
  assert 'num_action_repeats 0' in _error(
      'gym:CartPole-v1', num_action_repeats=0)


def test_gymnasium_missing(monkeypatch):
  monkeypatch.setitem(sys.modules, 'gymnasium', None)
  assert 'Gymnasium cannot be imported' in _error('gym:CartPole-v1')


def test_package_of_an_environment_missing():
  def make():
    raise gymnasium.error.DependencyNotInstalled('physics is not\ninstalled')

  gymnasium.register('Fake-v0', make)
  try:
    assert _error('gym:Fake-v0') == 'gym:Fake-v0: physics is not installed'
  finally:
    gymnasium.registry.pop('Fake-v0')


def test_namespace_registered_by_its_package(monkeypatch):
  monkeypatch.setitem(sys.modules, 'ale_py', None)
  assert 'ale_py' in _error('gym:ALE/Nothing-v5')
  monkeypatch.setitem(sys.modules, 'ale_py', types.ModuleType('ale_py'))
  gymnasium.register('ALE/Nothing-v5', lambda: FakeEnvironment(
      _box((2, 2, 3), np.uint8)))
  try:
    environment = gym.make_environment('gym:ALE/Nothing-v5', 0)
    assert environment.observation_spec[0].shape == (2, 2, 3)
  finally:
    gymnasium.registry.pop('ALE/Nothing-v5')


def test_pong():
  pytest.importorskip('ale_py')
  environment = gym.make_environment('gym:ALE/Pong-v5', 0)
  assert environment.num_actions == 6
  observation, = environment.initial()
  assert (observation.shape, observation.dtype) == ((210, 160, 3), np.uint8)
  assert environment.step(5)[:2] == (0.0, False)
  environment.close()
