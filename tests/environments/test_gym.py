import json
import os
import sys
import types

import absl.logging
import gymnasium
import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import contract
from scalable_agent.environments import PoolError
from scalable_agent.environments.engines import gym
from scalable_agent.environments.engines import gym_actions
from scalable_agent.environments.engines import gym_ids
from scalable_agent.environments.pools import process_pool
from tests.environments.processes import LIMITS

pytestmark = pytest.mark.usefixtures('bounded')


class FakeEnvironment(gymnasium.Env):
  """Ends after 5 steps, by truncation in every other episode.

  An observation is the number of steps in this episode, in all its elements.
  `change` makes something else of what a step, or a reset, returns.
  """

  def __init__(self, observation_space, start=0, change=lambda result: result):
    self.observation_space = observation_space
    self.action_space = gymnasium.spaces.Discrete(3, start=start)
    self.actions = []
    self._change = change
    self._episode = 0

  def _observe(self):
    space = self.observation_space
    return np.full(space.shape, self._step, space.dtype)

  def reset(self, seed=None, options=None):
    self._step = 0
    self._episode += 1
    return self._change((self._observe(), {}))

  def step(self, action):
    self.actions.append(action)
    self._step += 1
    ended = self._step == 5
    is_odd = bool(self._episode % 2)
    return self._change((self._observe(), 0.5 * self._step, ended and is_odd,
                         ended and not is_odd, {}))


def _box(shape, dtype):
  return gymnasium.spaces.Box(0, 1 if dtype == bool else 255, shape, dtype)


_BOOLEANS = _box((2,), bool)


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
  pool = gym.make_pool('gym:CartPole-v1', 3, seed=7, num_processes=2, **LIMITS,
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
    ((6, 5), np.uint8, ((6, 5, 1), np.uint8)),
    ((6, 5, 3), bool, ((6, 5, 3), np.uint8)),
    ((3,), bool, ((3,), np.uint8))])
def test_observation_spec(make_fake, shape, dtype, expected):
  environment = make_fake(_box(shape, dtype))
  (spec,) = environment.observation_spec
  assert (spec.shape, spec.dtype) == expected
  for observation in (environment.initial(), environment.step(0)[2]):
    assert isinstance(observation, tuple)
    assert (observation[0].shape, observation[0].dtype) == expected
  assert (observation[0] == (255 if dtype == bool else 1)).all()


@pytest.mark.parametrize('shape, warns', [
    ((4, 84, 84), True), ((3, 32, 17), True), ((84, 84, 4), False),
    ((10, 10, 10), False), ((4, 20), False), ((4,), False)])
def test_images_that_have_channels_first_are_warned_of(
    monkeypatch, shape, warns):
  """They would be trained on as images of four rows."""
  warnings = []
  monkeypatch.setattr(absl.logging, 'log_first_n',
                      lambda level, text, count, *args: warnings.append(
                          text % args))
  monkeypatch.setattr(
      process_pool, 'ProcessPool', lambda *args, **kwargs:
      types.SimpleNamespace(observation_spec=(ArraySpec(shape, np.uint8),)))
  gym.make_pool('gym:Fake-v0', 1, 0)
  assert len(warnings) == warns
  if warns:
    assert f'of the shape {shape}, which are taken for {shape[0]} rows' in (
        warnings[0])


# -- What an environment returns ----------------------------------------------


def _changing(index, value):
  """Returns a `change` of one item of what steps return."""
  return lambda result: result if len(result) == 2 else (
      result[:index] + (value,) + result[index + 1:])


def _step_changed(make_fake, space, index, value):
  environment = make_fake(space, change=_changing(index, value))
  environment.initial()
  return environment.step(0)


@pytest.mark.parametrize('space, value, expected', [
    (_box((2,), np.float32), np.array([1.5, 2.5]), [1.5, 2.5]),
    (_box((2,), np.float64), np.array([.1, .2]), [np.float32(.1),
                                                  np.float32(.2)]),
    (_box((2,), np.float32), np.array([1, -2]), [1, -2]),
    (_box((2,), np.float32), [1, 2.5], [1, 2.5]),
    (_box((2,), np.float32), (True, np.float64(.5)), [1, .5]),
    (_box((2,), np.float64), np.array([np.nan, 1e300]), [np.nan, np.inf]),
    (_box((2,), np.uint8), np.array([0, 255]), [0, 255]),
    (_box((2,), np.uint8), [7, 8], [7, 8]),
    (_box((1, 2), np.uint8), [[7, 8]], [[[7], [8]]]),
    (_BOOLEANS, np.array([True, False]), [255, 0]),
    (_BOOLEANS, [0, 1], [0, 255]),
])
@pytest.mark.filterwarnings('ignore:overflow')
def test_observations_that_can_be_converted(make_fake, space, value, expected):
  _, _, (observation,) = _step_changed(make_fake, space, 0, value)
  np.testing.assert_array_equal(observation, expected)
  assert observation.dtype == (
      np.float32 if space.dtype.kind == 'f' else np.uint8)


_VECTOR = _box((2,), np.float32)


@pytest.mark.parametrize('space, value, seen', [
    (_VECTOR, np.zeros(1, np.float32), r'float32 \(1,\)'),
    (_VECTOR, np.zeros([2, 1], np.float32), r'float32 \(2, 1\)'),
    (_VECTOR, 1.5, 'float 1.5'),
    (_VECTOR, None, 'None'),
    (_VECTOR, [None, None], 'list .*'),
    (_VECTOR, '12', "str '12'"),
    (_VECTOR, ['1', '2'], 'list .*'),
    (_VECTOR, np.array(['1', '2']), r'<U1 \(2,\)'),
    (_VECTOR, np.zeros(2, np.complex64), r'complex64 \(2,\)'),
    (_VECTOR, [[1.], [1., 2.]], 'list .*'),
    (_box((2,), np.uint8), np.zeros(2), r'float64 \(2,\)'),
    (_box((2,), np.uint8), np.array([0, 256]), r'int64 \(2,\)'),
    (_box((2,), np.uint8), [-1, 0], 'list .*'),
    (_box((4, 3), np.uint8), np.zeros([3, 4], np.uint8), r'uint8 \(3, 4\)'),
    (_box((4, 3, 1), np.uint8), np.zeros([4, 3], np.uint8), r'uint8 \(4, 3\)'),
    (_BOOLEANS, [0, 2], 'list .*'),
    (_BOOLEANS, np.zeros(2), r'float64 \(2,\)'),
])
def test_observations_that_are_refused(make_fake, space, value, seen):
  """The message says what the space promises."""
  expected = f'{space.dtype} {space.shape}'.replace('(', r'\(').replace(
      ')', r'\)')
  with pytest.raises(
      contract.ContractError,
      match=f'^the observation is {seen}, expected {expected}$'):
    _step_changed(make_fake, space, 0, value)


@pytest.mark.parametrize('index, name, value', [
    (1, 'the reward', None), (1, 'the reward', '3.5'),
    (1, 'the reward', np.zeros(2)), (2, 'terminated', None),
    (2, 'terminated', 0), (2, 'terminated', 'False'), (3, 'truncated', 1.)])
def test_other_values_that_are_refused(make_fake, index, name, value):
  with pytest.raises(contract.ContractError, match=f'^{name} is '):
    _step_changed(make_fake, _VECTOR, index, value)


@pytest.mark.parametrize('index, value, place, expected', [
    (1, np.array([1.5]), 0, 1.5), (1, 2, 0, 2.), (2, np.bool_(True), 1, True),
    (3, np.bool_(True), 1, True)])
def test_other_values_that_can_be_converted(
    make_fake, index, value, place, expected):
  result = _step_changed(make_fake, _VECTOR, index, value)[place]
  assert (type(result), result) == (type(expected), expected)


def test_what_is_not_of_the_length_that_gymnasium_documents(make_fake):
  short = make_fake(_VECTOR, change=lambda result: result[:4])
  short.initial()
  with pytest.raises(contract.ContractError, match=r'of length 4, expected '
                     r'\(observation, reward, terminated, truncated, info\)$'):
    short.step(0)
  with pytest.raises(contract.ContractError, match=(
      r'^what its reset returned is None, expected \(observation, info\)$')):
    make_fake(_VECTOR, change=lambda result: None).initial()


def test_the_first_observation_of_an_episode_is_checked_too(make_fake):
  environment = make_fake(_VECTOR, num_action_repeats=5)
  environment.initial()
  environment._environment.unwrapped._change = lambda result: (
      (None, {}) if len(result) == 2 else result)
  with pytest.raises(contract.ContractError, match='^the observation is None'):
    environment.step(0)


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
    (_box((2,), np.int64), 'neither uint8, bool nor float'),
    (_box((0, 5, 3), np.uint8), 'is empty'),
    (gymnasium.spaces.Discrete(3),
     r'Discrete\(3\) is no gymnasium\.spaces\.Box$'),
    # As those of the package that Gymnasium has taken the place of.
    (types.SimpleNamespace(shape=(3,)), r'Box \(it is of types\)$')])
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
      'gym:Pendulum-v1: action space Box(-2.0, 2.0, (1,), float32) is no '
      'gymnasium.spaces.Discrete')


def test_unknown_id_names_similar_ones():
  assert 'gym:CartPole-v1' in _error('gym:CratPole-v1')
  assert 'similar' not in _error('gym:xyzzy')
  for name in 'gym:SpaceInvadersNoFrameskip-v77', 'gym:SpaceInvaders-v77':
    assert ('(Atari: space_invaders by the paper\'s protocol, or '
            'gym:ALE/SpaceInvaders-v5)') in _error(name)
  assert 'Atari' not in _error('gym:MinAtar/Breakout-v77')


def test_error_reaches_the_pools_maker():
  with pytest.raises(PoolError) as info:
    gym.make_pool('gym:CratPole-v1', 2, seed=0, num_processes=2, **LIMITS)
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
  gymnasium.register('ALE/Nothing-v5', lambda frameskip: FakeEnvironment(
      _box((2, 2, 3), np.uint8)))
  try:
    environment = gym.make_environment('gym:ALE/Nothing-v5', 0)
    assert environment.observation_spec[0].shape == (2, 2, 3)
  finally:
    gymnasium.registry.pop('ALE/Nothing-v5')


# -- The Arcade Learning Environment, and MinAtar -----------------------------


def test_pong():
  environment = gym.make_environment('gym:ALE/Pong-v5', 0)
  assert environment.num_actions == 6
  observation, = environment.initial()
  assert (observation.shape, observation.dtype) == ((210, 160, 3), np.uint8)
  assert environment.step(5)[:2] == (0.0, False)
  environment.close()


@pytest.mark.parametrize('num_action_repeats', [4, 3])
def test_the_emulator_skips_as_many_frames_as_an_action_is_repeated(
    num_action_repeats):
  """So that frames are those of the emulator, as everywhere."""
  environment = gym.make_environment(
      'gym:ALE/Pong-v5', 0, num_action_repeats=num_action_repeats)
  environment.initial()
  for _ in range(5):
    environment.step(0)
  frames = environment._environment.unwrapped.ale.getEpisodeFrameNumber()
  assert frames == 5 * num_action_repeats
  environment.close()


@pytest.mark.parametrize('game, expected', [
    ('SpaceInvaders', ' --level_name=space_invaders is the paper\'s.'),
    ('Adventure', '')])
def test_ales_own_levels_are_told_from_the_papers(game, expected):
  level_name = f'gym:ALE/{game}-v5'
  text = gym._describe_ale(level_name)
  assert text.startswith(f'{level_name} is not the paper\'s protocol')
  assert text.endswith(f'its actions are sticky.{expected}')


def test_every_atari_game_is_known_by_its_name_in_gymnasium():
  gym.make_environment('gym:ALE/Pong-v5', 0).close()  # Registers them.
  known = [gym_ids.atari_level(f'gym:{name}') for name in gymnasium.registry
           if name.startswith('ALE/')]
  assert set(known) - {None} == set(atari57.GAMES)


def test_minatars_planes_are_bytes():
  environment = gym.make_environment('gym:MinAtar/Breakout-v1', 0)
  spec, = environment.observation_spec
  assert (spec.shape, spec.dtype) == ((10, 10, 4), np.uint8)
  assert environment.num_actions == 3
  game = environment._environment.unwrapped.game
  observation, = environment.initial()
  for action in range(3):
    np.testing.assert_array_equal(observation, np.where(game.state(), 255, 0))
    _, _, (observation,) = environment.step(action)


# -- What a person sees -------------------------------------------------------


class Rendering(FakeEnvironment):
  """Renders the number of steps in all pixels, as `convert` has it."""
  metadata = {'render_modes': ['rgb_array']}

  def __init__(self, convert=lambda screen: screen, render_mode=None, **kwargs):
    super().__init__(**kwargs)
    self._convert = convert
    self._render_mode = render_mode

  def render(self):
    assert self._render_mode == 'rgb_array'
    return self._convert(np.full((200, 7, 3), self._step, np.uint8))


@pytest.fixture
def make_shown():
  """Registers a class and makes one that is shown: (class, ...)."""

  def make(cls, **kwargs):
    gymnasium.register('Shown-v0', cls, kwargs=kwargs)
    return gym.make_environment('gym:Shown-v0', 0, 2, shows=True)

  yield make
  gymnasium.registry.pop('Shown-v0', None)


@pytest.mark.parametrize('convert', [
    lambda screen: screen, lambda screen: (screen + .5) / 255])
def test_what_is_rendered_is_seen_with_what_is_observed(make_shown, convert):
  environment = make_shown(
      Rendering, observation_space=_VECTOR, convert=convert)
  specs = [(spec.shape, spec.dtype) for spec in environment.observation_spec]
  assert specs == [((2,), np.float32), ((200, 7, 3), np.uint8)]
  results = [environment.initial()]
  results += [environment.step(0)[-1] for _ in range(4)]
  for step, (observation, screen) in zip([0, 2, 4, 0, 2], results, strict=True):
    assert (observation == step).all() and (screen == step).all()


def test_an_image_of_few_pixels_is_enlarged(make_shown):
  environment = make_shown(
      Rendering, observation_space=_VECTOR,
      convert=lambda screen: np.arange(90, dtype=np.uint8).reshape(5, 6, 3))
  _, screen = environment.initial()
  assert screen.shape == (130, 156, 3)
  assert (screen[:26, 26:52] == [3, 4, 5]).all()


def test_an_image_is_seen_where_nothing_is_rendered(make_shown):
  environment = make_shown(
      FakeEnvironment, observation_space=_box((90, 80, 3), np.uint8))
  environment.initial()
  _, _, (observation, screen) = environment.step(0)
  assert observation.shape == (90, 80, 3) and (observation == 2).all()
  assert screen.shape == (90, 80, 3) and (screen == 2).all()


def _fail(screen):
  raise OSError('no\ndisplay')


@pytest.mark.parametrize('cls, kwargs, message', [
    (FakeEnvironment, {}, 'it has no render mode rgb_array, and its '
     'observations are no images'),
    (Rendering, dict(convert=_fail), 'OSError: no display'),
    (Rendering, dict(convert=lambda screen: None), 'ContractError: what it '
     r'renders is None, expected uint8 \(height, width, 3\)'),
    (Rendering, dict(convert=lambda screen: screen[0]), 'ContractError: what '
     r'it renders is uint8 \(7, 3\), expected .*')])
def test_what_cannot_be_shown_is_refused(make_shown, cls, kwargs, message):
  with pytest.raises(PoolError, match=(
      f'^gym:Shown-v0 cannot be shown: {message}$')):
    make_shown(cls, observation_space=_VECTOR, **kwargs)


# -- What actions mean --------------------------------------------------------


class Named(FakeEnvironment):
  """Says what its actions mean."""

  def __init__(self, names):
    super().__init__(_VECTOR, start=1)
    self._names = names

  def get_action_meanings(self):
    return self._names


class _Fewer(gymnasium.Wrapper):

  def __init__(self, environment):
    super().__init__(environment)
    self.action_space = gymnasium.spaces.Discrete(2, start=1)


class _Exchanged(gymnasium.ActionWrapper):

  def action(self, action):
    return 4 - action


@pytest.mark.parametrize('wrap, names, expected', [
    (lambda environment: environment, ['STAY', 'UP', 'DOWN'],
     ['STAY', 'UP', 'DOWN']),
    (gymnasium.wrappers.RecordEpisodeStatistics, ['STAY', 'UP', 'DOWN'],
     ['STAY', 'UP', 'DOWN']),
    (lambda environment: environment, ['STAY', 'UP'], ['1', '2', '3']),
    (_Fewer, ['STAY', 'UP'], ['1', '2']),
    (_Exchanged, ['STAY', 'UP', 'DOWN'], ['1', '2', '3'])])
def test_actions_have_names_where_these_are_sure(
    monkeypatch, wrap, names, expected):
  """Those of a wrapped environment may be of other actions."""
  monkeypatch.setattr(gym_ids, 'make', lambda _: wrap(Named(names)))
  described = gym_actions.make_described_actions('gym:Named-v0')
  assert described.num_actions == len(expected)
  (text,) = described.initial()
  assert json.loads(text.tobytes()) == [
      [name, number] for number, name in enumerate(expected, 1)]


def test_actions_are_described_where_environments_play(tmp_path, monkeypatch):
  """Some cannot be made in a process that has loaded TensorFlow."""
  (tmp_path / 'with_an_engine.py').write_text(
      'import os\nimport gymnasium\n'
      'def make():\n'
      f'  if os.getpid() == {os.getpid()}: raise RuntimeError("no\\nengine")\n'
      '  return gymnasium.make("CartPole-v1")\n'
      'def fail(): raise RuntimeError("no\\nengine")\n'
      'gymnasium.register("Engine-v0", make)\n'
      'gymnasium.register("Broken-v0", fail)\n')
  monkeypatch.syspath_prepend(tmp_path)
  options = dict(num_processes=1, **LIMITS)
  assert gym_actions.find_actions(
      'gym:with_an_engine:Engine-v0', **options) == [('0', 0), ('1', 1)]
  with pytest.raises(PoolError, match='no engine') as error:
    gym_actions.find_actions('gym:with_an_engine:Broken-v0', **options)
  assert '\n' not in str(error.value)
