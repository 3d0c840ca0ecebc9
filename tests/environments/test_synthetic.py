"""Synthetic environments: their names, times and episodes."""

import numpy as np
import pytest

from scalable_agent.environments import PoolError
from scalable_agent.environments.engines import synthetic


@pytest.fixture
def slept(monkeypatch):
  """The seconds that environments sleep, without sleeping."""
  seconds = []
  monkeypatch.setattr(synthetic.time, 'sleep', seconds.append)
  return seconds


def _make(options, seed=1, height=4, width=6):
  return synthetic.SyntheticEnvironment(
      'synthetic:' + options, seed, height, width)


def test_steps_take_the_same_time_by_default(slept):
  environment = _make('step_ms=7')
  for _ in range(5):
    environment.step(0)
  assert slept == [.007] * 5


@pytest.mark.parametrize('std', [.1, .5, 1.5])
def test_step_times_have_mean_and_deviation(slept, std):
  environment = _make(f'step_ms=5,std={std}')
  for _ in range(20000):
    environment.step(0)
  assert min(slept) >= 0
  assert np.mean(slept) == pytest.approx(.005, rel=.05)
  assert np.std(slept) == pytest.approx(.005 * std, rel=.05)


def test_resets_add_to_the_last_step_of_an_episode(slept):
  environment = _make('step_ms=1,reset_ms=500,episode_steps=20')
  dones = []
  for _ in range(4000):
    reward, done, _ = environment.step(0)
    assert reward == done
    dones.append(done)
  assert np.mean(dones) == pytest.approx(1 / 20, rel=.2)
  np.testing.assert_allclose(slept, np.where(dones, .501, .001))


def test_observations_follow_the_spec(slept):
  for options, shape, dtype in (('', (4, 6, 3), np.uint8),
                                ('size=5', (5,), np.float32)):
    environment = _make(options)
    (spec,) = environment.observation_spec
    assert (spec.shape, spec.dtype) == (shape, dtype)
    for observation in (environment.initial(), environment.step(0)[2]):
      (frame,) = observation
      assert (frame.shape, frame.dtype) == (shape, dtype)


def test_seeds_differ(slept):
  same, other = _make('std=1', seed=1), _make('std=1', seed=2)
  for environment in (_make('std=1', seed=1), same, other):
    environment.step(0)
  assert slept[0] == slept[1] != slept[2]


@pytest.mark.parametrize('options, meant', [
    ('speed=1', "'speed'"), ('step_ms', "step_ms is ''"),
    ('step_ms=fast', "step_ms is 'fast'"), ('std=-1', "std is '-1'"),
    ('reset_ms=inf', "reset_ms is 'inf'"), ('std=nan', "std is 'nan'"),
    ('episode_steps=0', 'episodes need a step'),
    ('size=0.5', 'size is 0.5, expected a whole'),
    ('std=1e-200', 'std is 1e-200, expected 0')])
def test_malformed_names_are_refused(options, meant):
  with pytest.raises(PoolError) as caught:
    synthetic.make_pool('synthetic:' + options, 2, 1, 4, 6)
  assert meant in str(caught.value) and '\n' not in str(caught.value)
