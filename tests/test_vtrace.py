import inspect

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import vtrace

_SMALLEST_RHO, _LARGEST_RHO = 1e-3, 1e2


def _paper_vtrace(log_rhos, discounts, rewards, values, bootstrap_value,
                  clip_rho_threshold, clip_pg_rho_threshold, lambda_):
  """The sum of equation 1 as it is printed, in O(T^2) and float64.

      v_s = V(x_s) + sum_{t=s}^{s+n-1} gamma^{t-s} (prod_{i=s}^{t-1} c_i) dV_t

  The powers of gamma are products here, since discounts differ by step.
  """
  num_steps = len(rewards)
  rhos = np.exp(log_rhos.astype(np.float64))
  rho_bar, pg_rho_bar = (
      np.inf if threshold is None else threshold
      for threshold in (clip_rho_threshold, clip_pg_rho_threshold))
  cs = lambda_ * np.minimum(rhos, 1.)
  v = np.concatenate([values, bootstrap_value[np.newaxis]]).astype(np.float64)

  vs = []
  for s in range(num_steps):
    v_s = v[s].copy()
    for t in range(s, num_steps):
      dv_t = np.minimum(rhos[t], rho_bar) * (
          rewards[t] + discounts[t] * v[t + 1] - v[t])
      v_s += (np.prod(discounts[s:t], axis=0, dtype=np.float64) *
              np.prod(cs[s:t], axis=0) * dv_t)
    vs.append(v_s)
  vs.append(v[num_steps])
  pg_advantages = [
      np.minimum(rhos[t], pg_rho_bar) * (
          rewards[t] + discounts[t] * vs[t + 1] - v[t])
      for t in range(num_steps)]
  return np.stack(vs[:-1]), np.stack(pg_advantages)


def _random_inputs(shape, seed, end_probability=.2):
  """Log importance weights from 1/1000 to 100, and episodes that end inside."""
  rng = np.random.default_rng(seed)
  log_rhos = rng.uniform(np.log(_SMALLEST_RHO), np.log(_LARGEST_RHO), shape)
  log_rhos = np.where(rng.random(shape) < .2, np.log(_SMALLEST_RHO), log_rhos)
  log_rhos = np.where(rng.random(shape) < .2, np.log(_LARGEST_RHO), log_rhos)
  discounts = rng.uniform(.8, 1., shape) * (rng.random(shape) > end_probability)
  inputs = dict(log_rhos=log_rhos, discounts=discounts,
                rewards=rng.normal(size=shape), values=rng.normal(size=shape),
                bootstrap_value=rng.normal(size=shape[1:]))
  return {name: array.astype(np.float32) for name, array in inputs.items()}


def _assert_close(actual, expected):
  scale = max(1., np.abs(expected).max())
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize('lambda_', [1., .7, 0.])
@pytest.mark.parametrize('clip_pg_rho_threshold', [None, 1., 3.])
@pytest.mark.parametrize('clip_rho_threshold', [None, 1., .5, 2.5])
def test_equals_sum_of_paper(
    clip_rho_threshold, clip_pg_rho_threshold, lambda_):
  """Targets and advantages are equation 1's, for any truncation and lambda."""
  settings = dict(clip_rho_threshold=clip_rho_threshold,
                  clip_pg_rho_threshold=clip_pg_rho_threshold, lambda_=lambda_)
  for shape in [(1, 1), (7, 4)]:
    inputs = _random_inputs(shape, seed=sum(shape))
    returns = vtrace.from_importance_weights(**inputs, **settings)
    vs, pg_advantages = _paper_vtrace(**inputs, **settings)
    _assert_close(returns.vs, vs)
    _assert_close(returns.pg_advantages, pg_advantages)


def test_default_settings_are_the_papers():
  """Both thresholds and lambda are 1 unless given."""
  inputs = _random_inputs((6, 3), seed=0)
  returns = vtrace.from_importance_weights(**inputs)
  vs, pg_advantages = _paper_vtrace(**inputs, clip_rho_threshold=1.,
                                    clip_pg_rho_threshold=1., lambda_=1.)
  _assert_close(returns.vs, vs)
  _assert_close(returns.pg_advantages, pg_advantages)


_float = st.floats(-10., 10., width=32)


@st.composite
def _inputs(draw):
  shape = draw(st.integers(1, 6)), draw(st.integers(1, 3))

  def array(elements, shape):
    size = int(np.prod(shape))
    return np.array(draw(st.lists(elements, min_size=size, max_size=size)),
                    np.float32).reshape(shape)

  # Hypothesis finds terms that cancel. With weights of 100 what remains of them
  # is less exact in float32 than is asked for here.
  rhos = st.floats(_SMALLEST_RHO, 10.).map(np.log)
  discounts = st.one_of(st.just(0.), st.floats(0., 1.))
  return dict(log_rhos=array(rhos, shape), discounts=array(discounts, shape),
              rewards=array(_float, shape), values=array(_float, shape),
              bootstrap_value=array(_float, shape[1:]))


_threshold = st.one_of(st.none(), st.floats(.1, 10.))
_property = hypothesis.settings(max_examples=60)


@_property
@hypothesis.given(_inputs(), _threshold, _threshold, st.floats(0., 1.))
def test_equals_sum_of_paper_for_any_input(
    inputs, clip_rho_threshold, clip_pg_rho_threshold, lambda_):
  """Shapes and values, for whatever Hypothesis comes up with."""
  settings = dict(clip_rho_threshold=clip_rho_threshold,
                  clip_pg_rho_threshold=clip_pg_rho_threshold, lambda_=lambda_)
  returns = vtrace.from_importance_weights(**inputs, **settings)
  vs, pg_advantages = _paper_vtrace(**inputs, **settings)
  assert returns.vs.shape == returns.pg_advantages.shape == vs.shape
  assert returns.vs.dtype == returns.pg_advantages.dtype == tf.float32
  _assert_close(returns.vs, vs)
  _assert_close(returns.pg_advantages, pg_advantages)


@_property
@hypothesis.given(_inputs(), st.floats(-5., 5.))
def test_is_linear_in_rewards_and_values(inputs, factor):
  """Scaling rewards, values and bootstrap scales everything that comes out."""
  scaled = dict(inputs, **{
      name: (inputs[name] * factor).astype(np.float32)
      for name in ('rewards', 'values', 'bootstrap_value')})
  once = vtrace.from_importance_weights(**inputs)
  other = vtrace.from_importance_weights(**scaled)
  _assert_close(other.vs, factor * once.vs.numpy())
  _assert_close(other.pg_advantages, factor * once.pg_advantages.numpy())


@_property
@hypothesis.given(_inputs(), _inputs(), st.data())
def test_nothing_crosses_the_end_of_an_episode(inputs, others, data):
  """What follows a discount of 0 does not matter to what is before."""
  num_steps = min(len(inputs['rewards']), len(others['rewards']))
  batch = min(inputs['rewards'].shape[1], others['rewards'].shape[1])
  cut = lambda name, a: a[:batch] if name == 'bootstrap_value' else (
      a[:num_steps, :batch])
  inputs = {name: cut(name, a) for name, a in inputs.items()}
  others = {name: cut(name, a) for name, a in others.items()}
  end = data.draw(st.integers(0, num_steps - 1))
  inputs['discounts'][end] = others['discounts'][end] = 0.
  for name in ('log_rhos', 'discounts', 'rewards', 'values'):
    others[name][:end + 1] = inputs[name][:end + 1]
  ours = vtrace.from_importance_weights(**inputs)
  theirs = vtrace.from_importance_weights(**others)
  np.testing.assert_array_equal(ours.vs[:end + 1], theirs.vs[:end + 1])
  np.testing.assert_array_equal(
      ours.pg_advantages[:end + 1], theirs.pg_advantages[:end + 1])


def test_on_policy_is_the_n_step_bellman_target():
  """With pi = mu, v_s is the discounted rewards plus the bootstrap's share."""
  inputs = _random_inputs((8, 5), seed=1)
  inputs['log_rhos'][:] = 0.
  expected = []
  target = inputs['bootstrap_value'].astype(np.float64)
  for reward, discount in zip(inputs['rewards'][::-1],
                              inputs['discounts'][::-1]):
    target = reward + discount * target
    expected.insert(0, target)
  returns = vtrace.from_importance_weights(**inputs)
  _assert_close(returns.vs, np.stack(expected))
  _assert_close(returns.pg_advantages, np.stack(expected) - inputs['values'])


@pytest.mark.parametrize('lambda_', [0., .3, .95])
def test_on_policy_lambda_is_truncated_td_lambda(lambda_):
  """With pi = mu, v_s mixes the n-step returns with weights of lambda^n."""
  inputs = _random_inputs((6, 4), seed=2)
  inputs['log_rhos'][:] = 0.
  num_steps = len(inputs['rewards'])
  values = np.concatenate(
      [inputs['values'], inputs['bootstrap_value'][np.newaxis]]
  ).astype(np.float64)

  def n_step_return(s, n):
    result, discount = 0., 1.
    for t in range(s, s + n):
      result = result + discount * inputs['rewards'][t]
      discount = discount * inputs['discounts'][t]
    return result + discount * values[s + n]

  returns = vtrace.from_importance_weights(**inputs, lambda_=lambda_)
  for s in range(num_steps):
    longest = num_steps - s
    expected = lambda_ ** (longest - 1) * n_step_return(s, longest)
    for n in range(1, longest):
      expected = expected + (
          (1 - lambda_) * lambda_ ** (n - 1) * n_step_return(s, n))
    _assert_close(returns.vs[s], expected)


def test_unlikely_actions_leave_the_values():
  """As pi(a) goes to 0 nothing is learned: v is V and advantages vanish."""
  inputs = _random_inputs((5, 3), seed=3)
  inputs['log_rhos'][:] = -100.
  returns = vtrace.from_importance_weights(**inputs)
  np.testing.assert_allclose(returns.vs, inputs['values'], atol=1e-6)
  np.testing.assert_allclose(returns.pg_advantages, 0., atol=1e-6)


def test_further_dimensions():
  """Rewards and values of several channels are independent problems."""
  shape = 5, 3, 2
  inputs = _random_inputs(shape, seed=4)
  returns = vtrace.from_importance_weights(**inputs)
  assert returns.vs.shape == returns.pg_advantages.shape == shape
  for c in range(shape[-1]):
    channel = {name: array[..., c] for name, array in inputs.items()}
    expected = vtrace.from_importance_weights(**channel)
    _assert_close(returns.vs[..., c], expected.vs.numpy())
    _assert_close(returns.pg_advantages[..., c],
                  expected.pg_advantages.numpy())


def test_further_dimensions_broadcast():
  """One importance weight and discount may serve several channels."""
  inputs = _random_inputs((5, 3, 4), seed=5)
  for name in ('log_rhos', 'discounts'):
    inputs[name] = inputs[name][..., :1]
  returns = vtrace.from_importance_weights(**inputs)
  for name in ('log_rhos', 'discounts'):
    inputs[name] = np.repeat(inputs[name], 4, axis=-1)
  expected = vtrace.from_importance_weights(**inputs)
  _assert_close(returns.vs, expected.vs.numpy())
  _assert_close(returns.pg_advantages, expected.pg_advantages.numpy())


@pytest.mark.parametrize(
    'name', ['log_rhos', 'discounts', 'rewards', 'values', 'bootstrap_value'])
def test_wrong_rank_is_refused(name):
  """One argument of another rank than the rest raises, whichever it is."""
  inputs = _random_inputs((4, 2), seed=6)
  inputs[name] = inputs[name][..., np.newaxis]
  with pytest.raises(ValueError, match='rank'):
    vtrace.from_importance_weights(**inputs)


@pytest.mark.parametrize(
    'name', ['log_rhos', 'discounts', 'rewards', 'values', 'bootstrap_value'])
def test_nothing_is_broadcast(name):
  """One argument of a single B raises, whichever it is."""
  inputs = _random_inputs((4, 2), seed=6)
  inputs[name] = inputs[name][..., :1]
  with pytest.raises(ValueError, match='incompatible'):
    vtrace.from_importance_weights(**inputs)


@pytest.mark.parametrize(
    'name', ['clip_rho_threshold', 'clip_pg_rho_threshold'])
def test_threshold_that_is_no_scalar_is_refused(name):
  inputs = _random_inputs((4, 2), seed=6)
  with pytest.raises(ValueError, match='rank'):
    vtrace.from_importance_weights(**inputs, **{name: [1., 2.]})


_DEFAULTS = dict(clip_rho_threshold=1., clip_pg_rho_threshold=1., lambda_=1.)


def _assert_equals_paper(returns, inputs):
  vs, pg_advantages = _paper_vtrace(**inputs, **_DEFAULTS)
  assert returns.vs.shape == returns.pg_advantages.shape == vs.shape
  _assert_close(returns.vs, vs)
  _assert_close(returns.pg_advantages, pg_advantages)


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.integers(1, 40), st.lists(st.integers(1, 4), max_size=2))
def test_equals_sum_of_paper_for_any_shape(num_steps, further):
  """Odd and even T, powers of two and their neighbours, and any rank."""
  inputs = _random_inputs((num_steps, *further), seed=num_steps)
  _assert_equals_paper(vtrace.from_importance_weights(**inputs), inputs)


@pytest.mark.parametrize('num_steps', [1, 20, 100])
@pytest.mark.parametrize('jit_compile', [False, True])
def test_compiled_equals_sum_of_paper(jit_compile, num_steps):
  """As a graph and compiled by XLA, for unrolls of the usual lengths."""
  inputs = _random_inputs((num_steps, 4), seed=num_steps, end_probability=.02)
  compiled = tf.function(
      vtrace.from_importance_weights, jit_compile=jit_compile)
  _assert_equals_paper(compiled(**inputs), inputs)


@pytest.mark.parametrize('jit_compile, shapes', [
    (False, [(1, 1), (2, 3), (3, 1), (8, 4), (20, 2), (100, 3)]),
    # Each of which XLA compiles.
    (True, [(1, 1), (20, 2)])])
def test_unknown_time_and_batch(jit_compile, shapes):
  """One graph, traced with T and B unknown, serves every T and B.

  The number of channels stays known, and one weight may serve them all.
  """
  weight_spec = tf.TensorSpec([None, None, 1])
  spec = tf.TensorSpec([None, None, 5])
  compiled = tf.function(
      vtrace.from_importance_weights, jit_compile=jit_compile,
      input_signature=[weight_spec] * 2 + [spec] * 2
      + [tf.TensorSpec([None, 5])])
  for static in compiled.get_concrete_function().structured_outputs:
    assert static.shape.as_list() == [None, None, 5]
  for shape in shapes:
    inputs = _random_inputs(
        (*shape, 5), seed=sum(shape), end_probability=.02)
    for name in ('log_rhos', 'discounts'):
      inputs[name] = inputs[name][..., :1]
    returns = compiled(*inputs.values())
    for name in ('log_rhos', 'discounts'):
      inputs[name] = np.repeat(inputs[name], 5, axis=-1)
    _assert_equals_paper(returns, inputs)
  assert compiled.experimental_get_tracing_count() == 1


def _log_softmax(logits):
  logits = logits.astype(np.float64)
  logits = logits - logits.max(axis=-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def _log_probs(logits, actions):
  return np.take_along_axis(
      _log_softmax(logits), actions[..., np.newaxis], -1)[..., 0]


@pytest.mark.parametrize('scale', [1., 300.])
def test_log_probs(scale):
  """The actions' entries of a log-softmax, stable for large logits."""
  rng = np.random.default_rng(7)
  logits = scale * rng.normal(size=[4, 3, 9]).astype(np.float32)
  actions = rng.integers(9, size=[4, 3]).astype(np.int32)
  log_probs = vtrace.log_probs_from_logits_and_actions(logits, actions)
  np.testing.assert_allclose(
      log_probs, _log_probs(logits, actions), rtol=1e-5, atol=1e-5)


def test_log_probs_beside_impossible_actions():
  """Actions with a logit of -inf get no gradient, and spoil no other."""
  logits = np.array([[[1., -np.inf, 2.], [-np.inf, -np.inf, 5.]]], np.float32)
  actions = np.array([[0, 2]], np.int32)
  variable = tf.constant(logits)
  with tf.GradientTape() as tape:
    tape.watch(variable)
    log_probs = vtrace.log_probs_from_logits_and_actions(variable, actions)
  p = 1. / (1. + np.exp(1.))
  np.testing.assert_allclose(log_probs, [[np.log(p), 0.]], rtol=1e-6)
  np.testing.assert_allclose(
      tape.gradient(log_probs, variable),
      [[[1. - p, 0., p - 1.], [0., 0., 0.]]], rtol=1e-6)


@pytest.mark.parametrize('shape', [(1, 3), (4, 1), (4, 2)])
def test_log_probs_of_other_times_or_batch_are_refused(shape):
  """Nothing is broadcast, not even one action for all."""
  with pytest.raises(ValueError, match='are incompatible'):
    vtrace.log_probs_from_logits_and_actions(
        np.zeros([4, 3, 9], np.float32), np.zeros(shape, np.int32))


def test_log_probs_of_wrong_rank_are_refused():
  logits, actions = np.zeros([4, 3, 9], np.float32), np.zeros([4, 3], np.int32)
  with pytest.raises(ValueError, match='rank'):
    vtrace.log_probs_from_logits_and_actions(logits[0], actions)
  with pytest.raises(ValueError, match='rank'):
    vtrace.log_probs_from_logits_and_actions(logits, actions[0])


def _logits_inputs():
  rng = np.random.default_rng(8)
  shape = 5, 3
  inputs = _random_inputs(shape, seed=8)
  del inputs['log_rhos']
  return dict(
      inputs,
      behaviour_policy_logits=3 * rng.normal(size=shape + (6,)).astype('f'),
      target_policy_logits=3 * rng.normal(size=shape + (6,)).astype('f'),
      actions=rng.integers(6, size=shape).astype(np.int32))


def test_arguments_have_the_order_of_the_released_code():
  names = list(inspect.signature(vtrace.from_logits).parameters)
  assert names[:10] == [
      'behaviour_policy_logits', 'target_policy_logits', 'actions', 'discounts',
      'rewards', 'values', 'bootstrap_value', 'clip_rho_threshold',
      'clip_pg_rho_threshold', 'name']
  names = list(inspect.signature(vtrace.from_importance_weights).parameters)
  assert names[:8] == [
      'log_rhos', 'discounts', 'rewards', 'values', 'bootstrap_value',
      'clip_rho_threshold', 'clip_pg_rho_threshold', 'name']


def test_from_logits():
  """Is `from_importance_weights` of log pi - log mu, and returns these."""
  inputs = _logits_inputs()
  settings = dict(
      clip_rho_threshold=1.5, clip_pg_rho_threshold=.8, lambda_=.9)
  returns = vtrace.from_logits(**inputs, **settings)
  behaviour = _log_probs(inputs.pop('behaviour_policy_logits'),
                         inputs['actions'])
  target = _log_probs(inputs.pop('target_policy_logits'),
                      inputs.pop('actions'))
  _assert_close(returns.behaviour_action_log_probs, behaviour)
  _assert_close(returns.target_action_log_probs, target)
  _assert_close(returns.log_rhos, target - behaviour)
  vs, pg_advantages = _paper_vtrace(
      log_rhos=target - behaviour, **inputs, **settings)
  _assert_close(returns.vs, vs)
  _assert_close(returns.pg_advantages, pg_advantages)


def test_from_logits_of_unknown_shape():
  """T, B and the number of actions may all be unknown when traced."""
  names = ('behaviour_policy_logits', 'target_policy_logits', 'actions',
           'discounts', 'rewards', 'values', 'bootstrap_value')
  inputs = {name: _logits_inputs()[name] for name in names}
  compiled = tf.function(
      vtrace.from_logits,
      input_signature=[tf.TensorSpec([None] * array.ndim, array.dtype)
                       for array in inputs.values()])
  expected = vtrace.from_logits(**inputs)
  for actual, other in zip(compiled(*inputs.values()), expected, strict=True):
    _assert_close(actual, other.numpy())


def test_from_logits_does_not_truncate_on_none():
  """None reaches `from_importance_weights` as None."""
  inputs = _logits_inputs()
  returns = vtrace.from_logits(
      **inputs, clip_rho_threshold=None, clip_pg_rho_threshold=None)
  rhos = np.exp(returns.log_rhos)
  assert (rhos > 2.).any()
  vs, pg_advantages = _paper_vtrace(
      returns.log_rhos.numpy(),
      **{name: inputs[name] for name in (
          'discounts', 'rewards', 'values', 'bootstrap_value')},
      clip_rho_threshold=None, clip_pg_rho_threshold=None, lambda_=1.)
  _assert_close(returns.vs, vs)
  _assert_close(returns.pg_advantages, pg_advantages)


@pytest.mark.parametrize('name', [
    'behaviour_policy_logits', 'target_policy_logits', 'actions', 'discounts',
    'rewards', 'values', 'bootstrap_value'])
def test_from_logits_refuses_wrong_rank(name):
  inputs = _logits_inputs()
  inputs[name] = inputs[name][0]
  with pytest.raises(ValueError, match='rank'):
    vtrace.from_logits(**inputs)


def test_no_gradient_flows():
  """Targets and advantages are constants to whoever differentiates a loss."""
  inputs = {name: tf.constant(array)
            for name, array in _logits_inputs().items()}
  with tf.GradientTape() as tape:
    tape.watch([t for t in inputs.values() if t.dtype.is_floating])
    returns = vtrace.from_logits(**inputs)
    loss = tf.reduce_sum(returns.vs) + tf.reduce_sum(returns.pg_advantages)
  gradients = tape.gradient(
      loss, [t for t in inputs.values() if t.dtype.is_floating])
  assert gradients == [None] * 6
