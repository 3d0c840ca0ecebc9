import re

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from scalable_agent.networks import layers
from scalable_agent.networks import torsos
from tests.networks import agents


@pytest.mark.parametrize('torso', torsos.TORSOS)
def test_torso_sees_one_frame_at_a_time(torso):
  """Running T * B frames at once is running each alone."""
  agent = agents.make(torso, use_lstm=False)
  params = agents.params(agent)
  actions, env_outputs = agents.inputs(torso, 3, 2)
  (logits, baseline), state = agent.unroll(params, actions, env_outputs, ())
  assert state == ()
  for t, b in np.ndindex(3, 2):
    one = lambda a: a[t:t + 1, b:b + 1]
    (one_logits, one_baseline), _ = agent.unroll(
        params, one(actions), tree.map_structure(one, env_outputs), ())
    agents.assert_close(one_logits, one(logits))
    agents.assert_close(one_baseline, one(baseline))


@pytest.mark.parametrize('dtype', [tf.float32, tf.bfloat16])
def test_gradients_of_biases_are_sums_over_all_places(dtype):
  """Which a sum in bfloat16 is not: from 256 on, it adds 1 and stays there."""
  params = {'a/w': tf.zeros([1, 1, 1, 2], dtype), 'a/b': tf.zeros([2], dtype)}
  inputs = tf.ones([168, 20, 20, 1], dtype)
  with tf.GradientTape() as tape:
    tape.watch(params)
    total = tf.reduce_sum(layers.conv(params, 'a', inputs, 1, 'VALID'))
  gradient = tape.gradient(total, params)['a/b']
  assert gradient.dtype == dtype
  np.testing.assert_allclose(
      tf.cast(gradient, tf.float32), 168 * 20 * 20, rtol=4e-3)


def _layer(params, name, layer_class, units, *args, **kwargs):
  return layer_class(
      units, *args,
      kernel_initializer=lambda *_, **__: params[name + '/w'],
      bias_initializer=lambda *_, **__: params[name + '/b'], **kwargs)


def _keras_shallow(params, out, multiplier):
  conv, dense = tf.keras.layers.Conv2D, tf.keras.layers.Dense
  out = _layer(params, 'torso/conv_0', conv, multiplier * 16, 8, strides=4,
               padding='valid', activation='relu')(out)
  out = _layer(params, 'torso/conv_1', conv, multiplier * 32, 4, strides=2,
               padding='valid', activation='relu')(out)
  out = tf.keras.layers.Flatten()(out)
  return _layer(params, 'torso/linear', dense, 256, activation='relu')(out)


def _keras_small(params, out, multiplier):
  conv, dense = tf.keras.layers.Conv2D, tf.keras.layers.Dense
  out = _layer(params, 'torso/conv', conv, multiplier * 16, 3,
               padding='same', activation='relu')(out)
  out = tf.keras.layers.Flatten()(out)
  return _layer(params, 'torso/linear', dense, 128, activation='relu')(out)


def _keras_deep(params, out, multiplier):
  conv, dense = tf.keras.layers.Conv2D, tf.keras.layers.Dense
  for i, units in enumerate(multiplier * np.array([16, 32, 32])):
    name = f'torso/section_{i}/'
    out = _layer(params, name + 'conv', conv, units, 3, padding='same')(out)
    out = tf.keras.layers.MaxPool2D(3, strides=2, padding='same')(out)
    for j in range(2):
      residual = out
      for k in range(2):
        residual = tf.keras.layers.ReLU()(residual)
        residual = _layer(params, f'{name}residual_{j}/conv_{k}', conv, units,
                          3, padding='same')(residual)
      out = tf.keras.layers.Add()([out, residual])
  out = tf.keras.layers.Flatten()(tf.keras.layers.ReLU()(out))
  return _layer(params, 'torso/linear', dense, 256, activation='relu')(out)



def _keras_reactor(params, frame, multiplier):
  conv, dense = tf.keras.layers.Conv2D, tf.keras.layers.Dense
  both = lambda out: np.concatenate(
      [np.maximum(out, 0), np.maximum(-out, 0)], -1)
  out = frame
  for i, (units, size, stride) in enumerate([(16, 8, 4), (32, 4, 2),
                                             (32, 3, 1)]):
    out = both(_layer(params, f'torso/conv_{i}', conv, multiplier * units,
                      size, strides=stride)(out))
  out = tf.keras.layers.Flatten()(out)
  return both(_layer(params, 'torso/linear', dense, 128)(out))


@pytest.mark.parametrize('torso, keras_torso', [
    ('deep', _keras_deep), ('shallow', _keras_shallow),
    ('small', _keras_small), ('reactor', _keras_reactor)])
@pytest.mark.parametrize('multiplier, without_background', [
    (1, False), (4, False), (1, True)])
def test_convolutional_torsos_equal_keras_layers(
    torso, keras_torso, multiplier, without_background):
  """The networks of the paper's Figure 3, built a second time, agree."""
  agent = agents.make(
      torso, use_lstm=False, channel_multiplier=multiplier,
      subtract_background=without_background)
  params = agents.params(agent)
  ((action,), env_output) = agents.inputs(torso, 1, 3)
  pixels = env_output.observation[0][0].numpy() / np.float32(255.)
  if without_background:
    pixels = agents.without_background(pixels)
  features = np.concatenate(
      [keras_torso(params, pixels, multiplier),
       np.clip(env_output.reward[0], -1., 1.)[:, np.newaxis],
       np.eye(agents.NUM_ACTIONS)[action.numpy()]], axis=1)
  (logits, baseline), _ = agent.unroll(params, [action], env_output, ())
  agents.assert_close(
      logits[0], features @ params['policy_logits/w']
      + params['policy_logits/b'], 1e-4)
  agents.assert_close(
      baseline[0],
      (features @ params['baseline/w'] + params['baseline/b'])[:, 0], 1e-4)


@pytest.mark.parametrize('torso', torsos.TORSOS)
def test_bfloat16_is_near_and_stays_within_the_torso(torso):
  """Outputs and gradients are float32, and within bfloat16's rounding."""
  agents.assert_near_in_bfloat16(
      lambda precision: networks.Agent(
          agents.NUM_ACTIONS, (agents.FRAMES[torso],), torso, True, precision),
      torso, is_faster=torso != 'vector')


@pytest.mark.parametrize('torso, shape', [
    ('vector', (5,)), ('shallow', (20, 20, 1)), ('small', (5, 4, 2)),
    ('deep', (13, 18, 3)), ('reactor', (36, 36, 1))])
def test_bytes_are_scaled_and_floats_are_not(torso, shape):
  """uint8 is divided by 255, whatever its rank; float32 is taken as it is."""
  agents.assert_bytes_are_scaled(torso, shape)


def test_vectors_have_no_background():
  with pytest.raises(ValueError, match=re.escape(
      '--subtract_background cannot work: observations of shape (5,) are no '
      'images. Give --nosubtract_background.')):
    networks.Agent(2, (ArraySpec((5,), np.float32),), 'vector', False,
                   subtract_background=True)


def _num_parameters(num_actions, frame, words, torso, use_lstm):
  spec = (ArraySpec(frame, np.uint8),) + ((agents.WORDS,) if words else ())
  params = networks.Agent(
      num_actions, spec, torso, use_lstm).initial_params(0)
  return sum(w.size for w in params.values())


def test_number_of_parameters_deep():
  """By hand, for DMLab with instruction: the 1.6 M of the paper."""
  section_0 = 3 * 3 * 3 * 16 + 16 + 4 * (3 * 3 * 16 * 16 + 16)
  section_1 = 3 * 3 * 16 * 32 + 32 + 4 * (3 * 3 * 32 * 32 + 32)
  section_2 = 3 * 3 * 32 * 32 + 32 + 4 * (3 * 3 * 32 * 32 + 32)
  linear = 9 * 12 * 32 * 256 + 256  # 72x96 halved three times.
  instruction = 1000 * 20 + (20 + 64) * 4 * 64 + 4 * 64
  core = (256 + 1 + 9 + 64 + 256) * 4 * 256 + 4 * 256
  heads = 256 * 9 + 9 + 256 + 1
  expected = (
      section_0 + section_1 + section_2 + linear + instruction + core + heads)
  assert expected == 1628010
  assert _num_parameters(9, (72, 96, 3), True, 'deep', True) == expected


def test_number_of_parameters_deep_odd_size():
  """Pooling rounds up: 84 becomes 42, 21, 11."""
  convolutions = (3 * 3 * 4 * 16 + 16 + 4 * (3 * 3 * 16 * 16 + 16) +
                  3 * 3 * 16 * 32 + 32 + 3 * 3 * 32 * 32 + 32 +
                  8 * (3 * 3 * 32 * 32 + 32))
  expected = convolutions + 11 * 11 * 32 * 256 + 256 + (256 + 1 + 6) * 7 + 7
  assert _num_parameters(6, (84, 84, 4), False, 'deep', False) == expected


def test_number_of_parameters_shallow():
  """By hand, for Atari: 84 becomes 20, then 9; 6 actions, no core."""
  expected = (8 * 8 * 4 * 16 + 16 + 4 * 4 * 16 * 32 + 32 +
              9 * 9 * 32 * 256 + 256 + (256 + 1 + 6) * (6 + 1) + 6 + 1)
  assert expected == 677992
  assert _num_parameters(6, (84, 84, 4), False, 'shallow', False) == expected


def test_number_of_parameters_shallow_with_core():
  """By hand, for DMLab with instruction: the 1.2 M of the paper."""
  convolutions = 8 * 8 * 3 * 16 + 16 + 4 * 4 * 16 * 32 + 32
  linear = 7 * 10 * 32 * 256 + 256  # 72x96 becomes 17x23, then 7x10.
  instruction = 1000 * 20 + (20 + 64) * 4 * 64 + 4 * 64
  core = (256 + 1 + 9 + 64 + 256) * 4 * 256 + 4 * 256
  heads = 256 * 9 + 9 + 256 + 1
  expected = convolutions + linear + instruction + core + heads
  assert expected == 1230426
  assert _num_parameters(9, (72, 96, 3), True, 'shallow', True) == expected


def test_names_and_shapes_of_weights():
  """Checkpoints are read by them."""
  shapes = lambda torso, *args: {
      name: w.shape
      for name, w in agents.make(torso, *args).initial_params(0).items()}
  heads = {'policy_logits/w': (256, 4), 'policy_logits/b': (4,),
           'baseline/w': (256, 1), 'baseline/b': (1,)}
  assert shapes('shallow', True, True) == {
      'torso/conv_0/w': (8, 8, 2, 16), 'torso/conv_0/b': (16,),
      'torso/conv_1/w': (4, 4, 16, 32), 'torso/conv_1/b': (32,),
      'torso/linear/w': (1 * 1 * 32, 256), 'torso/linear/b': (256,),
      'instruction/embedding': (1000, 20),
      'instruction/lstm/w': (84, 256), 'instruction/lstm/b': (256,),
      'core/w': (256 + 1 + 4 + 64 + 256, 1024), 'core/b': (1024,), **heads}
  assert shapes('vector', True) == {
      'torso/linear_0/w': (5, 64), 'torso/linear_0/b': (64,),
      'torso/linear_1/w': (64, 64), 'torso/linear_1/b': (64,),
      'core/w': (64 + 1 + 4 + 256, 1024), 'core/b': (1024,), **heads}
  expected = {'torso/linear/w': (2 * 3 * 32, 256), 'torso/linear/b': (256,),
              'core/w': (256 + 1 + 4 + 256, 1024), 'core/b': (1024,), **heads}
  for i, (channels, units) in enumerate([(3, 16), (16, 32), (32, 32)]):
    section = f'torso/section_{i}/'
    expected[section + 'conv/w'] = (3, 3, channels, units)
    expected[section + 'conv/b'] = (units,)
    for j in range(2):
      for k in range(2):
        block = f'{section}residual_{j}/conv_{k}/'
        expected[block + 'w'] = (3, 3, units, units)
        expected[block + 'b'] = (units,)
  assert shapes('deep', True) == expected


@pytest.mark.parametrize('torso, shape', [
    ('vector', (84, 84, 4)), ('deep', (5,)), ('shallow', (5,)),
    ('small', (5,)), ('reactor', (5,)), ('vector', ()), ('deep', (84, 84)),
    ('shallow', (2, 84, 84, 3))])
def test_torso_that_does_not_fit_is_refused(torso, shape):
  expected = re.escape(
      f'--network={torso} does not fit observations of shape {shape}: images '
      'need deep, shallow, small or reactor, vectors need vector.')
  with pytest.raises(ValueError, match=expected):
    networks.Agent(3, (ArraySpec(shape, np.float32),), torso, False)


@pytest.mark.parametrize('torso, shape, smallest', [
    ('shallow', (19, 84, 3), 20), ('shallow', (84, 19, 3), 20),
    ('shallow', (3, 3, 1), 20), ('reactor', (35, 84, 1), 36),
    ('reactor', (84, 35, 1), 36)])
def test_an_image_that_is_too_small_is_refused(torso, shape, smallest):
  expected = re.escape(
      f'--network={torso} does not fit observations of shape {shape}: {torso} '
      f'needs images of at least {smallest} x {smallest} pixels')
  with pytest.raises(ValueError, match=expected):
    networks.Agent(3, (ArraySpec(shape, np.uint8),), torso, False)


@pytest.mark.parametrize('torso, shape', [
    ('shallow', (20, 20, 3)), ('shallow', (20, 84, 3)), ('deep', (1, 2, 3)),
    ('small', (1, 1, 1)), ('small', (1, 30, 4)), ('reactor', (36, 36, 1))])
def test_smallest_images(torso, shape):
  """What is not refused has an output."""
  spec = ArraySpec(shape, np.uint8)
  agent = networks.Agent(agents.NUM_ACTIONS, (spec,), torso, False)
  actions, env_outputs = agents.inputs(spec, 1, 2)
  (logits, _), _ = agent.unroll(
      agent.initial_params(0), actions, env_outputs, ())
  assert np.abs(logits[0, 0] - logits[0, 1]).max() > 1e-3


@pytest.mark.parametrize('large, shape, torso', [
    ('shallow', (5,), 'vector'), ('shallow', (10, 10, 4), 'small'),
    ('shallow', (19, 84, 3), 'small'), ('shallow', (84, 19, 3), 'small'),
    ('shallow', (20, 20, 1), 'shallow'), ('shallow', (84, 84, 4), 'shallow'),
    ('reactor', (5,), 'vector'), ('reactor', (35, 84, 1), 'small'),
    ('reactor', (36, 36, 1), 'reactor')])
def test_auto_is_a_torso_that_fits(large, shape, torso):
  assert networks.choose_torso(shape, large) == torso
  torsos.make(torso, shape)


@pytest.mark.parametrize('torso', ['vector', 'tests.networks.agents:Plain'])
def test_a_torso_that_takes_no_channel_multiplier(torso):
  with pytest.raises(ValueError, match=re.escape(
      f'--channel_multiplier=2 cannot work: --network={torso} does not')):
    networks.Agent(3, (ArraySpec((5,), np.float32),), torso, False,
                   channel_multiplier=2)


def test_unknown_torso_is_refused():
  with pytest.raises(ValueError, match="'wide'.*deep.*shallow.*vector"):
    networks.Agent(3, (ArraySpec((5,), np.float32),), 'wide', False)

