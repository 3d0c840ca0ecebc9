"""Tests of `timing`."""

import contextlib
import math

import pytest

from scalable_agent.process import timing


@pytest.fixture
def clock(monkeypatch):
  """A clock that stands; [seconds]."""
  now = [100.]
  monkeypatch.setattr(timing.time, 'perf_counter', lambda: now[0])
  return now


def test_stages_add_up_until_they_are_taken(clock):
  times = timing.StageTimes()
  for name, seconds in (('a', 1.), ('b', 2.), ('a', 4.)):
    with times.stage(name):
      clock[0] += seconds
  assert times.take() == dict(a=5., b=2.)
  assert times.take() == {}


def test_stages_are_annotated_while_they_last():
  seen = []

  @contextlib.contextmanager
  def annotate(name):
    seen.append(f'{name} begins')
    yield
    seen.append(f'{name} ends')

  with timing.StageTimes(annotate).stage('a'):
    seen.append('block')
  assert seen == ['a begins', 'block', 'a ends']


def test_mean_is_of_what_ended_well_since_the_last(clock):
  mean = timing.MeanTime()
  assert math.isnan(mean.take())
  for seconds in (1., 3.):
    with mean.measure():
      clock[0] += seconds
  with pytest.raises(KeyError):
    with mean.measure():
      clock[0] += 1000.
      raise KeyError
  assert mean.take() == 2.
  assert math.isnan(mean.take())


def test_a_process_that_stands_still_does_not_wait(monkeypatch):
  now = [100.]
  monkeypatch.setattr(timing.time, 'monotonic', lambda: now[0])
  waited = timing.Waited()
  for _ in range(7):
    now[0] += 2.
    seconds = waited.seconds()
  assert seconds == 14.
  now[0] += 3600.
  assert waited.seconds() < 14. + 20.
  waited.reset()
  now[0] += 2.
  assert waited.seconds() == 2.
