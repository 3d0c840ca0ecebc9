import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import StepOutput

_NUM_ACTIONS = 4
_FRAMES = {'deep': ArraySpec((13, 18, 3), np.uint8),
           'shallow': ArraySpec((24, 21, 2), np.uint8),
           'vector': ArraySpec((5,), np.float32)}
_WORDS = ArraySpec((3,), np.int32)


def _agent(torso, use_lstm, instruction=False, num_actions=_NUM_ACTIONS):
  spec = (_FRAMES[torso],) + ((_WORDS,) if instruction else ())
  return networks.Agent(num_actions, spec, torso, use_lstm)


def _params(agent, seed=0):
  """Initial weights, with biases that are not zero."""
  rng = np.random.default_rng(seed)
  return {name: w if w.any() else rng.normal(size=w.shape).astype(np.float32)
          for name, w in agent.initial_params(seed).items()}


def _inputs(torso, time, batch, seed=0, instruction=False):
  """Random last actions and environment outputs, [T, B]."""
  rng = np.random.default_rng(seed)
  frame = _FRAMES[torso]
  if frame.dtype == np.uint8:
    observation = rng.integers(256, size=(time, batch) + frame.shape)
  else:
    observation = rng.normal(size=(time, batch) + frame.shape)
  observation = (tf.constant(observation.astype(frame.dtype)),)
  if instruction:
    words = rng.integers(1000, size=[time, batch, 3])
    num_words = rng.integers(4, size=[time, batch, 1])
    observation += (tf.constant(
        np.where(np.arange(3) < num_words, words, -1).astype(np.int32)),)
  return (tf.constant(rng.integers(_NUM_ACTIONS, size=[time, batch]), tf.int32),
          StepOutput(
              reward=tf.constant(rng.normal(size=[time, batch]), tf.float32),
              info=(), done=tf.constant(rng.random([time, batch]) < .3),
              observation=observation))


def _random_state(batch, seed=0):
  rng = np.random.default_rng(seed)
  return networks.LSTMState(*(
      rng.normal(size=[batch, 256]).astype(np.float32) for _ in range(2)))


def _map(function, structure):
  return tf.nest.map_structure(function, structure)


def _assert_close(actual, expected, tolerance=1e-5):
  tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(
          a, b, rtol=tolerance, atol=tolerance), actual, expected)


def _lstm_block_cell(params, name, inputs, state):
  """TensorFlow 1's fused kernel, as LSTMBlockCell(units) calls it."""
  units = state.h.shape[-1]
  peephole = tf.zeros([units])
  _, c, _, _, _, _, h = tf.raw_ops.LSTMBlockCell(
      x=inputs, cs_prev=state.c, h_prev=state.h, w=params[name + '/w'],
      wci=peephole, wcf=peephole, wco=peephole, b=params[name + '/b'],
      forget_bias=1., cell_clip=-1., use_peephole=False)
  return networks.LSTMState(c, h)


def test_lstm_is_tensorflow_1s_block_cell():
  """The same weights, in the same layout, give the same states."""
  rng = np.random.default_rng(0)
  normal = lambda *shape: tf.constant(rng.normal(size=shape), tf.float32)
  params = {'lstm/w': normal(5 + 7, 4 * 7), 'lstm/b': normal(4 * 7)}
  state = oracle = networks.LSTMState(normal(3, 7), normal(3, 7))
  for _ in range(4):
    inputs = normal(3, 5)
    gates = networks.lstm_gates(params, 'lstm', inputs)
    state = networks.lstm_step(params, 'lstm', gates, state)
    oracle = _lstm_block_cell(params, 'lstm', inputs, oracle)
    _assert_close(state, oracle)


@pytest.mark.parametrize('instruction', [False, True])
@pytest.mark.parametrize('use_lstm', [False, True])
@pytest.mark.parametrize('torso', networks.TORSOS)
def test_unroll_equals_steps(torso, use_lstm, instruction):
  """Logits, baselines and core state, with episodes that end on the way."""
  agent = _agent(torso, use_lstm, instruction)
  params = _params(agent)
  actions, env_outputs = _inputs(torso, 5, 2, instruction=instruction)
  env_outputs = env_outputs._replace(done=tf.constant(
      [[True, False], [False, False], [False, True], [True, True],
       [False, False]]))
  state = initial_state = _random_state(2) if use_lstm else ()

  outputs = []
  for t in range(5):
    output, state = agent.step(
        params, [0, t], actions[t], _map(lambda a: a[t], env_outputs), state)
    assert output.action.shape == output.baseline.shape == (2,)
    assert output.policy_logits.shape == (2, _NUM_ACTIONS)
    outputs.append((output.policy_logits, output.baseline))
  expected = tuple(tf.stack(ts) for ts in zip(*outputs))

  unrolled, last_state = agent.unroll(
      params, actions, env_outputs, initial_state)
  _assert_close(unrolled, expected)
  _assert_close(last_state, state)


def test_done_resets_the_core_before_that_step():
  """From there on the past does not matter; without done it does."""
  agent = _agent('vector', True)
  params = _params(agent)
  actions, env_outputs = _inputs('vector', 4, 2)
  done = np.zeros([4, 2], bool)
  done[2, 0] = True
  env_outputs = env_outputs._replace(done=tf.constant(done))
  (logits, _), state = agent.unroll(
      params, actions, env_outputs, _random_state(2, seed=1))
  (others, _), other_state = agent.unroll(
      params, actions, env_outputs, _random_state(2, seed=2))
  difference = np.abs(logits - others).max(axis=-1)
  np.testing.assert_array_equal(
      difference > 1e-4, [[True, True], [True, True], [False, True],
                          [False, True]])
  np.testing.assert_array_equal(state.c[0], other_state.c[0])

  late = lambda a: a[2:, :1]
  (fresh, _), _ = agent.unroll(
      params, late(actions),
      _map(late, env_outputs)._replace(done=tf.constant([[False], [False]])),
      agent.initial_state(1))
  _assert_close(late(logits), fresh)


def test_core_is_block_cell_over_torso_reward_action_and_instruction():
  """The core's inputs, in this order, through TensorFlow 1's kernel."""
  agent = _agent('vector', True, instruction=True)
  params = _params(agent)
  (action,), env_output = _inputs('vector', 1, 6, instruction=True)
  frame, words = _map(lambda a: a[0], env_output.observation)
  reward = tf.constant([[-3.], [-1.], [-.5], [.25], [1.], [7.]])
  env_output = env_output._replace(
      reward=tf.transpose(reward), done=tf.zeros([1, 6], tf.bool))
  torso = frame
  for i in range(2):
    torso = tf.nn.relu(tf.matmul(torso, params[f'torso/linear_{i}/w'])
                       + params[f'torso/linear_{i}/b'])
  core_input = tf.concat(
      [torso, tf.constant([[-1.], [-1.], [-.5], [.25], [1.], [1.]]),
       np.eye(_NUM_ACTIONS, dtype=np.float32)[action.numpy()],
       _encode_slowly(params, words.numpy())], axis=1)
  state = _random_state(6)
  expected = _lstm_block_cell(params, 'core', core_input, state)
  (logits, baseline), next_state = agent.unroll(
      params, [action], env_output, state)
  _assert_close(next_state, expected)
  _assert_close(logits[0], tf.matmul(expected.h, params['policy_logits/w'])
                + params['policy_logits/b'])
  _assert_close(baseline[0], (tf.matmul(expected.h, params['baseline/w'])
                              + params['baseline/b'])[:, 0])


@pytest.mark.parametrize('torso', networks.TORSOS)
def test_torso_sees_one_frame_at_a_time(torso):
  """Running T * B frames at once is running each alone."""
  agent = _agent(torso, use_lstm=False)
  params = _params(agent)
  actions, env_outputs = _inputs(torso, 3, 2)
  (logits, baseline), state = agent.unroll(params, actions, env_outputs, ())
  assert state == ()
  for t, b in np.ndindex(3, 2):
    one = lambda a: a[t:t + 1, b:b + 1]
    (one_logits, one_baseline), _ = agent.unroll(
        params, one(actions), _map(one, env_outputs), ())
    _assert_close(one_logits, one(logits))
    _assert_close(one_baseline, one(baseline))


def _layer(params, name, layer_class, units, *args, **kwargs):
  return layer_class(
      units, *args,
      kernel_initializer=lambda *_, **__: params[name + '/w'],
      bias_initializer=lambda *_, **__: params[name + '/b'], **kwargs)


def _keras_shallow(params, out):
  conv, dense = tf.keras.layers.Conv2D, tf.keras.layers.Dense
  out = _layer(params, 'torso/conv_0', conv, 16, 8, strides=4,
               padding='valid', activation='relu')(out)
  out = _layer(params, 'torso/conv_1', conv, 32, 4, strides=2,
               padding='valid', activation='relu')(out)
  out = tf.keras.layers.Flatten()(out)
  return _layer(params, 'torso/linear', dense, 256, activation='relu')(out)


def _keras_deep(params, out):
  conv, dense = tf.keras.layers.Conv2D, tf.keras.layers.Dense
  for i, units in enumerate([16, 32, 32]):
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


@pytest.mark.parametrize('torso, keras_torso', [
    ('deep', _keras_deep), ('shallow', _keras_shallow)])
def test_convolutional_torsos_equal_keras_layers(torso, keras_torso):
  """The network of the paper's Figure 3, built a second time, agrees."""
  agent = _agent(torso, use_lstm=False)
  params = _params(agent)
  ((action,), env_output) = _inputs(torso, 1, 3)
  pixels = env_output.observation[0][0].numpy().astype(np.float32)
  features = np.concatenate(
      [keras_torso(params, pixels / 255.),
       np.clip(env_output.reward[0], -1., 1.)[:, np.newaxis],
       np.eye(_NUM_ACTIONS)[action.numpy()]], axis=1)
  (logits, baseline), _ = agent.unroll(params, [action], env_output, ())
  _assert_close(
      logits[0], features @ params['policy_logits/w']
      + params['policy_logits/b'], 1e-4)
  _assert_close(
      baseline[0],
      (features @ params['baseline/w'] + params['baseline/b'])[:, 0], 1e-4)


@pytest.mark.parametrize('torso', ['deep', 'shallow', 'vector'])
def test_bfloat16_is_near_and_stays_within_the_torso(torso):
  """Outputs and gradients are float32, and within bfloat16's rounding."""
  agent = _agent(torso, use_lstm=True)
  fast = networks.Agent(
      _NUM_ACTIONS, (_FRAMES[torso],), torso, True, precision='bfloat16')
  params = tf.nest.map_structure(tf.constant, _params(agent))
  actions, env_output = _inputs(torso, 4, 3)
  results = []
  for one in (agent, fast):
    with tf.GradientTape() as tape:
      tape.watch(params)
      (logits, baseline), state = one.unroll(
          params, actions, env_output, one.initial_state(3))
      loss = tf.reduce_sum(tf.nn.log_softmax(logits)[..., 0] + baseline)
    results.append(((logits, baseline, state), tape.gradient(loss, params)))
    assert {t.dtype for t in tf.nest.flatten(results[-1])} == {tf.float32}
  (outputs, gradients), (fast_outputs, fast_gradients) = results
  if torso == 'vector':
    _assert_close(fast_outputs, outputs)
    return
  _assert_close(fast_outputs, outputs, 3e-2)
  assert not np.allclose(fast_outputs[0], outputs[0], rtol=1e-5, atol=1e-5)
  for name, gradient in gradients.items():
    error = np.linalg.norm(fast_gradients[name] - gradient)
    assert error < .1 * np.linalg.norm(gradient), name


@pytest.mark.parametrize('torso, shape', [
    ('vector', (5,)), ('shallow', (20, 20, 1))])
def test_bytes_are_scaled_and_floats_are_not(torso, shape):
  """uint8 is divided by 255, whatever its rank; float32 is taken as it is."""
  rng = np.random.default_rng(0)
  frame = rng.integers(256, size=(1, 3) + shape)
  logits = []
  for values in (frame.astype(np.uint8), (frame / 255).astype(np.float32)):
    agent = networks.Agent(
        _NUM_ACTIONS, (ArraySpec(shape, values.dtype),), torso, False)
    env_output = StepOutput(
        reward=tf.zeros([1, 3]), info=(), done=tf.zeros([1, 3], tf.bool),
        observation=(tf.constant(values),))
    (result, _), _ = agent.unroll(
        agent.initial_params(0), tf.zeros([1, 3], tf.int32), env_output, ())
    logits.append(result)
  _assert_close(*logits)
  assert np.abs(logits[0][0, 0] - logits[0][0, 1]).max() > 1e-3


def _num_parameters(num_actions, frame, words, torso, use_lstm):
  spec = (ArraySpec(frame, np.uint8),) + ((_WORDS,) if words else ())
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


def _fan_in(name, shape):
  # Of an embedding, one row is looked up, not multiplied.
  return shape[1] if name == 'instruction/embedding' else np.prod(shape[:-1])


@pytest.mark.parametrize('torso', networks.TORSOS)
def test_initial_weights(torso):
  """Truncated normal of stddev 1/sqrt(fan in), drawn once each; biases 0."""
  params = _agent(torso, True, instruction=True).initial_params(0)
  # What is left of the variance of a normal that is cut at two sigma.
  shrunk = .8796
  drawn = []
  for name, values in params.items():
    assert isinstance(values, np.ndarray) and values.dtype == np.float32
    if name.endswith('/b'):
      assert not values.any()
      continue
    stddev = _fan_in(name, values.shape) ** -.5
    assert np.abs(values).max() <= 2 * stddev * (1 + 1e-6), name
    assert abs(values.mean()) < 5 * stddev / values.size ** .5, name
    assert values.std() == pytest.approx(
        shrunk * stddev, rel=4 / (2 * values.size) ** .5), name
    if values.size > 1000:
      assert np.abs(values).max() > 1.9 * stddev, name
    drawn.append(values.ravel()[:50] / stddev)
  for i, one in enumerate(drawn):
    for other in drawn[:i]:
      size = min(len(one), len(other))
      assert not np.allclose(one[:size], other[:size])


def test_initial_weights_are_the_seeds():
  agent = _agent('shallow', True)
  first, again, other = (agent.initial_params(seed) for seed in (3, 3, 4))
  for name in first:
    np.testing.assert_array_equal(first[name], again[name])
    assert name.endswith('/b') or not np.allclose(first[name], other[name])


@pytest.mark.parametrize('use_lstm', [False, True])
def test_initial_state(use_lstm):
  state = _agent('vector', use_lstm).initial_state(3)
  if use_lstm:
    for array in state:
      np.testing.assert_array_equal(array, np.zeros([3, 256], np.float32))
  else:
    assert state == ()


@pytest.mark.parametrize('use_lstm', [False, True])
def test_sees_clipped_reward_and_last_action(use_lstm):
  """Rewards count up to 1 in size; every last action counts differently."""
  agent = _agent('vector', use_lstm)
  params = _params(agent)
  _, env_output = _inputs('vector', 1, 1)

  def logits(action, reward):
    (result, _), _ = agent.unroll(
        params, tf.constant([[action]]),
        env_output._replace(reward=tf.constant([[reward]])),
        agent.initial_state(1))
    return result[0, 0].numpy()

  np.testing.assert_array_equal(logits(0, 1.), logits(0, 50.))
  np.testing.assert_array_equal(logits(0, -1.), logits(0, -50.))
  different = [logits(0, reward) for reward in (-1., -.5, 0., .5, 1.)]
  different += [logits(action, 0.) for action in (1, 2, 3)]
  for i, one in enumerate(different):
    for other in different[:i]:
      assert np.abs(one - other).max() > 1e-4


def _sample(agent, params, seed, batch):
  """Actions of many equal environments."""
  env_output = StepOutput(
      reward=tf.zeros([batch]), info=(), done=tf.zeros([batch], tf.bool),
      observation=(tf.zeros([batch, 5]),))
  output, _ = agent.step(params, seed, tf.zeros([batch], tf.int32), env_output,
                         agent.initial_state(batch))
  assert output.action.dtype == tf.int32
  return output.action.numpy(), output.policy_logits.numpy()


def _assert_frequencies(actions, logits):
  """Bounds chi-square where chance exceeds it once in a million."""
  expected = np.exp(logits) / np.exp(logits).sum() * len(actions)
  observed = np.bincount(actions, minlength=_NUM_ACTIONS)
  assert ((observed - expected) ** 2 / expected).sum() < 30.7


def test_actions_are_drawn_from_the_policy():
  """Over environments with one seed, and over seeds with one environment."""
  agent = _agent('vector', use_lstm=False)
  params = agent.initial_params(0)
  params['policy_logits/b'] = np.array([0., 1., -1.5, .5], np.float32)
  for seed in ([0, 0], [1, 7]):
    actions, logits = _sample(agent, params, seed, 20000)
    _assert_frequencies(actions, logits[0])
  step = tf.function(lambda seed: _sample_one(agent, params, seed))
  actions = np.array([int(step(tf.constant([5, i]))) for i in range(400)])
  _assert_frequencies(actions, logits[0])
  # Consecutive seeds are to be independent, too: look at pairs.
  policy = np.exp(logits[0]) / np.exp(logits[0]).sum()
  same = (actions[1:] == actions[:-1]).mean()
  assert abs(same - (policy ** 2).sum()) < .1


def _sample_one(agent, params, seed):
  env_output = StepOutput(
      reward=tf.zeros([1]), info=(), done=tf.zeros([1], tf.bool),
      observation=(tf.zeros([1, 5]),))
  output, _ = agent.step(params, seed, tf.zeros([1], tf.int32), env_output, ())
  return output.action[0]


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_actions_exist_whatever_the_logits(value):
  """Weights that went wrong must not crash environments instead."""
  agent = _agent('vector', use_lstm=False)
  params = agent.initial_params(0)
  params['policy_logits/b'] = np.full([_NUM_ACTIONS], value, np.float32)
  actions, _ = _sample(agent, params, [0, 0], 100)
  assert ((actions >= 0) & (actions < _NUM_ACTIONS)).all()


def test_actions_are_the_seeds():
  """The same seed draws the same, and either half of another draws others."""
  agent = _agent('vector', use_lstm=True)
  params = agent.initial_params(0)
  first, again, other, another = (
      _sample(agent, params, seed, 100)[0]
      for seed in ([3, 4], [3, 4], [3, 5], [4, 4]))
  np.testing.assert_array_equal(first, again)
  for actions in (other, another):
    assert .3 < (actions != first).mean() < .95


def test_hash_instructions():
  """TensorFlow's hash of each word into 1000 buckets, then -1."""
  ids = networks.hash_instructions(
      tf.constant(['go to the red door', '', 'red', '  two \t spaces ']))
  bucket = lambda word: int(tf.strings.to_hash_bucket_fast(word, 1000))
  expected = [[bucket(word) for word in words] + [-1] * (5 - len(words))
              for words in (['go', 'to', 'the', 'red', 'door'], [], ['red'],
                            ['two', 'spaces'])]
  assert ids.dtype == tf.int32
  np.testing.assert_array_equal(ids, expected)


def test_hash_instructions_without_words():
  """There is always a column, so that shapes of the network stay sane."""
  np.testing.assert_array_equal(
      networks.hash_instructions(tf.constant(['', ''])), [[-1], [-1]])


def _encode_slowly(params, words):
  """Word by word through TensorFlow 1's kernel, up to the last word."""
  rows = []
  for ids in words:
    state = networks.LSTMState(tf.zeros([1, 64]), tf.zeros([1, 64]))
    for word in ids[ids >= 0]:
      state = _lstm_block_cell(
          params, 'instruction/lstm',
          params['instruction/embedding'][word][np.newaxis], state)
    rows.append(state.h)
  return tf.concat(rows, axis=0)


def _encode(words):
  """The encoding as the heads see it: the policy is made to show it."""
  agent = _agent('vector', use_lstm=False, instruction=True, num_actions=64)
  params = _params(agent)
  params['policy_logits/w'] = np.concatenate(
      [np.zeros([64 + 1 + 64, 64]), np.eye(64)]).astype(np.float32)
  params['policy_logits/b'] = np.zeros([64], np.float32)
  batch = len(words)
  env_output = StepOutput(
      reward=tf.zeros([1, batch]), info=(), done=tf.zeros([1, batch], tf.bool),
      observation=(tf.ones([1, batch, 5]), tf.constant(words)[tf.newaxis]))
  (logits, _), _ = agent.unroll(
      params, tf.zeros([1, batch], tf.int32), env_output, ())
  return params, logits[0].numpy()


def test_instruction_encoding_is_the_output_at_the_last_word():
  """However wide the padding is; zeros without words."""
  words = np.array([[5, 999, 5, 0], [7, -1, -1, -1], [-1, -1, -1, -1],
                    [0, -1, -1, -1]], np.int32)
  params, encoding = _encode(words)
  _assert_close(encoding, _encode_slowly(params, words))
  np.testing.assert_array_equal(encoding[2], np.zeros([64]))
  assert np.abs(encoding[3]).max() > 1e-3
  wide = np.pad(words, [[0, 0], [0, 3]], constant_values=-1)
  np.testing.assert_allclose(_encode(wide)[1], encoding, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('torso, shape', [
    ('vector', (84, 84, 4)), ('deep', (5,)), ('shallow', (5,))])
def test_torso_that_does_not_fit_is_refused(torso, shape):
  with pytest.raises(ValueError, match=f'network={torso} does not fit'):
    networks.Agent(3, (ArraySpec(shape, np.float32),), torso, False)


def test_unknown_torso_is_refused():
  with pytest.raises(ValueError, match="'wide'.*deep.*shallow.*vector"):
    networks.Agent(3, (ArraySpec((5,), np.float32),), 'wide', False)
