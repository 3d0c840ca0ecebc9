"""--network=package.module:Name, with the example of the README."""

import importlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from scalable_agent.networks import torsos
from tests import your_own
from tests.networks import agents

_EXAMPLE = 'users_package.my_networks:Name'
_IMAGE = ArraySpec((17, 9, 2), np.uint8)

_MORE = """

class Folded(Name):
  first_kernel = 'conv_0/w'


class MissingKernel(Name):
  first_kernel = 'conv_7/w'


class Wide(Name):
  def init(self, initializer):
    return super().init(initializer) + 1


class Silent(Name):
  def init(self, initializer):
    super().init(initializer)


class Unflattened(Name):
  def apply(self, params, frame):
    return frame


class Mean(Name):
  def apply(self, params, frame):
    return tf.reduce_mean(super().apply(params, frame), 0, keepdims=True)


class Twice(Name):
  def init(self, initializer):
    initializer.linear('conv_0', 1, 1)
    return super().init(initializer)


class Outside(Name):
  def __init__(self, frame_shape):
    super().__init__(frame_shape)
    # TensorFlow would put fewer elements into the graph.
    self._mean = tf.constant([0.] * 256)

  def apply(self, params, frame):
    return super().apply(params, frame) - self._mean


class WrongSizes(Name):
  def apply(self, params, frame):
    return super().apply(params, frame) @ params['linear/w']


class Mistyped(Name):
  def apply(self, params, frame):
    return super().apply(params, frame) + params['nope/b']


class Fraction(Name):
  def init(self, initializer):
    return super().init(initializer) / 2


class HalfALayer(Name):
  def init(self, initializer):
    initializer.linear('half', self.height / 2, 8)
    return super().init(initializer)


class Wordy(Name):
  def init(self, initializer):
    raise RuntimeError('two\\n  lines')


class NoArgument(Name):
  def __init__(self):
    super().__init__((17, 9, 2))


class Linear:
  def __init__(self, frame_shape):
    self.size, = frame_shape

  def init(self, initializer):
    initializer.add('w', [[1. / self.size] * 8] * self.size)
    return 8

  def apply(self, params, frame):
    return tf.tanh(frame @ params['w'])


class NoApply:
  def init(self, initializer):
    return 1


function = lambda frame_shape: None
"""


def _example_code():
  return your_own.example('Your own network').code


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
  """Puts a user's package on the path; returns its folder."""
  folder = tmp_path / 'users_package'
  folder.mkdir()
  (folder / '__init__.py').touch()
  (folder / 'my_networks.py').write_text(_example_code() + _MORE)
  monkeypatch.syspath_prepend(tmp_path)
  yield folder
  for name in [n for n in sys.modules if n.split('.')[0] == 'users_package']:
    del sys.modules[name]


def _agent(name=_EXAMPLE, use_lstm=True, frame=_IMAGE, precision='float32',
           **options):
  return networks.Agent(
      agents.NUM_ACTIONS, (frame,), name, use_lstm, precision, **options)


def test_example_is_short_and_needs_nothing_of_this_project():
  code = _example_code()
  assert 'scalable_agent' not in code
  assert len([line for line in code.splitlines() if line]) <= 24


def test_find_returns_the_class():
  module = importlib.import_module('users_package.my_networks')
  assert torsos.find(_EXAMPLE) is module.Name


def test_initial_weights():
  """Under torso/, beside the agent's own, started like those of the project."""
  params = _agent().initial_params(3)
  assert {name: w.shape for name, w in params.items()} == {
      'torso/conv_0/w': (8, 8, 2, 16), 'torso/conv_0/b': (16,),
      'torso/conv_1/w': (4, 4, 16, 32), 'torso/conv_1/b': (32,),
      'torso/linear/w': (3 * 2 * 32, 256), 'torso/linear/b': (256,),
      'core/w': (256 + 1 + 4 + 256, 1024), 'core/b': (1024,),
      'policy_logits/w': (256, 4), 'policy_logits/b': (4,),
      'baseline/w': (256, 1), 'baseline/b': (1,)}
  for name, values in params.items():
    assert isinstance(values, np.ndarray) and values.dtype == np.float32
    if name.endswith('/b'):
      assert not values.any()
    elif name != 'core/w':
      agents.assert_truncated_normal(
          name, values, np.prod(values.shape[:-1]) ** -.5)
  again, other = _agent().initial_params(3), _agent().initial_params(4)
  np.testing.assert_array_equal(again['torso/conv_1/w'],
                                params['torso/conv_1/w'])
  assert not np.allclose(other['torso/conv_1/w'], params['torso/conv_1/w'])


def test_weights_that_the_user_draws_are_float32_and_can_be_written():
  weights = _agent('users_package.my_networks:Linear', frame=ArraySpec(
      (4,), np.float32)).initial_params(0)['torso/w']
  assert weights.dtype == np.float32
  np.testing.assert_array_equal(weights, np.full([4, 8], .25))
  weights[0, 0] = 7.


@pytest.mark.parametrize('use_lstm', [False, True])
def test_unroll_equals_steps(use_lstm):
  agent = _agent(use_lstm=use_lstm)
  agents.assert_unroll_equals_steps(agent, agents.params(agent), _IMAGE)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_gradient_reaches_all_weights(jit_compile):
  agent = _agent()
  params = {k: tf.constant(w) for k, w in agents.params(agent).items()}
  actions, env_outputs = agents.inputs(_IMAGE, 3, 4)

  @tf.function(autograph=False, jit_compile=jit_compile)
  def gradients(params, actions, env_outputs):
    with tf.GradientTape() as tape:
      tape.watch(params)
      (logits, baseline), _ = agent.unroll(
          params, actions, env_outputs, agent.initial_state(4))
      loss = tf.reduce_sum(logits ** 2) + tf.reduce_sum(baseline)
    return tape.gradient(loss, params)

  result = gradients(params, actions, env_outputs)
  assert set(result) == set(params)
  for name, gradient in result.items():
    assert gradient.shape == params[name].shape
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-6, name


@pytest.mark.parametrize('name', [
    _EXAMPLE, 'users_package.my_networks:Folded'])
def test_bytes_are_scaled_and_floats_are_not(name):
  agents.assert_bytes_are_scaled(name, _IMAGE.shape)


@pytest.mark.parametrize('frame_dtype', [np.uint8, np.float32])
@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
@pytest.mark.parametrize('class_name', ['Name', 'Folded'])
@pytest.mark.parametrize('without_background', [False, True])
def test_what_apply_is_given(
    without_background, class_name, precision, frame_dtype, monkeypatch):
  """Scaled frames, or a scaled kernel where the torso names its first."""
  name = 'users_package.my_networks:' + class_name
  frame = ArraySpec(_IMAGE.shape, frame_dtype)
  agent = _agent(name, True, frame, precision,
                 subtract_background=without_background)
  params = agent.initial_params(0)
  actions, env_outputs = agents.inputs(frame, 2, 3)
  pixels, = env_outputs.observation
  given = []
  apply = torsos.find(name).apply
  monkeypatch.setattr(
      torsos.find(name), 'apply',
      lambda self, *args: given.append(args) or apply(self, *args))
  agent.unroll(params, actions, env_outputs, agent.initial_state(3))
  (weights, frames), = given
  assert set(weights) == {'conv_0/w', 'conv_0/b', 'conv_1/w', 'conv_1/b',
                          'linear/w', 'linear/b'}
  assert {t.dtype.name for t in [*weights.values(), frames]} == {precision}
  is_bytes = frame_dtype == np.uint8
  folded = is_bytes and class_name == 'Folded'
  rounding = 1e-2 if precision == 'bfloat16' else 1e-6
  np.testing.assert_allclose(
      tf.cast(weights['conv_0/w'], tf.float32),
      params['torso/conv_0/w'] / (255. if folded else 1.), rtol=rounding)
  expected = np.reshape(pixels, frames.shape).astype(np.float32)
  if without_background:
    expected = agents.without_background(expected)
  np.testing.assert_allclose(
      tf.cast(frames, tf.float32),
      expected / (255. if is_bytes and not folded else 1.), rtol=rounding)


def test_bfloat16_is_near_and_stays_within_the_torso():
  agents.assert_near_in_bfloat16(
      lambda precision: _agent(precision=precision), _IMAGE)


def test_vectors_stay_float32():
  frame = ArraySpec((4,), np.float32)
  agents.assert_near_in_bfloat16(
      lambda precision: _agent(
          'users_package.my_networks:Linear', True, frame, precision),
      frame, is_faster=False)


@pytest.mark.parametrize('name, message', [
    ('users_package.absent:Net', 'users_package.absent.*failed with '
     'ModuleNotFoundError: No module.*current folder and on PYTHONPATH'),
    ('absent:Net', "'absent' failed with ModuleNotFoundError.*PYTHONPATH"),
    (':Net', "importing '' failed"),
    ('users_package.broken:Net', 'failed with ZeroDivisionError'),
    ('users_package.wordy:Net', r'failed with RuntimeError: two lines\.'),
    ('users_package.typo:Net', 'failed with SyntaxError'),
    ('users_package.needy:Net', "ImportError: cannot import name 'nothing'"),
    ('users_package.my_networks:Net', "my_networks' has no 'Net'"),
    ('users_package.my_networks:', "my_networks' has no ''"),
    ('users_package.my_networks:NoApply', "'NoApply' must be.*has no apply"),
    ('users_package.my_networks:function', "'function' must be.*has no init"),
    ('users_package.my_networks:math', "'math' must be a class"),
])
def test_names_that_give_no_torso_are_refused(name, message, package):
  (package / 'broken.py').write_text('1 / 0')
  (package / 'wordy.py').write_text('raise RuntimeError("two\\n  lines")')
  (package / 'typo.py').write_text('class Net')
  (package / 'needy.py').write_text('from users_package import nothing')
  with pytest.raises(ValueError) as raised:
    _agent(name)
  assert str(raised.value).startswith(f'--network={name}: ')
  assert re.search(message, str(raised.value))
  assert '\n' not in str(raised.value)


def test_shape_that_the_torso_does_not_take_is_refused():
  expected = re.escape(
      f'--network={_EXAMPLE} does not fit observations of shape (5,): not '
      'enough values')
  with pytest.raises(ValueError, match=expected):
    _agent(frame=ArraySpec((5,), np.float32))


@pytest.mark.parametrize('class_name, message', [
    ('MissingKernel', "first_kernel is 'conv_7/w', but init makes no such"),
    ('Wide', r'init returns the size 257, but apply.*\(2, 256\)'),
    ('Silent', 'init returns a NoneType instead of an int'),
    ('Fraction', 'init returns a float instead of an int'),
    ('HalfALayer', r'init failed with InvalidArgumentError: .* \(my_networks'),
    ('Wordy', r'init failed with RuntimeError: two lines \(my_networks\.py:'),
    ('NoArgument', '__init__ failed with TypeError: .* argument'),
    ('WrongSizes', r'apply failed with ValueError: .* equal.* \(my_networks'),
    ('Mistyped', r"apply failed with KeyError: 'nope/b' \(my_networks\.py:"),
    ('Unflattened', r'init returns the size 256, but.*\(2, 17, 9, 2\)'),
    ('Mean', r'init returns the size 256, but.*\(1, 256\)'),
    ('Twice', "The weight 'torso/conv_0/w' is made twice \\(my_net"),
    ('Outside', 'apply uses a tensor or a variable that is not in params'),
])
def test_torsos_that_break_the_interface_are_refused(class_name, message):
  """When weights are made, not by TensorFlow in the middle of a run."""
  name = 'users_package.my_networks:' + class_name
  with pytest.raises(ValueError, match=message) as raised:
    _agent(name).initial_params(0)
  assert str(raised.value).startswith(f'--network={name}: ')
  assert '\n' not in str(raised.value)


def test_the_line_that_failed_is_the_users(package):
  """However deep in TensorFlow the error was raised."""
  lines = (package / 'my_networks.py').read_text().splitlines()
  (number,) = [i for i, line in enumerate(lines, 1)
               if "apply(params, frame) @ params['linear/w']" in line]
  with pytest.raises(ValueError, match=fr'\(my_networks\.py:{number}\)\.$'):
    _agent('users_package.my_networks:WrongSizes').initial_params(0)
