"""Tests of `timing`."""

import contextlib
import math
import time

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


@pytest.fixture
def heart(monkeypatch):
  """Lets seconds pass while the process runs, or while it stands still."""
  now = [100.]
  monkeypatch.setattr(timing.time, 'monotonic', lambda: now[0])
  heartbeat = timing.Heartbeat()
  monkeypatch.setattr(timing, '_heartbeat', lambda: heartbeat)

  class Heart:
    beat = heartbeat.beat

    def run(self, seconds):
      for _ in range(seconds):
        now[0] += 1.
        heartbeat.beat()

    def stand_still(self, seconds):
      now[0] += seconds

  return Heart()


def test_a_process_that_stands_still_does_not_wait(heart):
  waited = timing.Waited()
  heart.run(14)
  assert waited.seconds() == 14.
  heart.stand_still(3600.)
  assert waited.seconds() == 14. + 10.
  heart.beat()
  assert waited.seconds() == 14. + 10.
  heart.run(5)
  heart.stand_still(60.)
  heart.run(5)
  assert waited.seconds() == 14. + 10. + 5. + 10. + 4.
  waited.reset()
  heart.run(2)
  assert waited.seconds() == 2.


def test_who_looks_seldom_does_not_stand_still(heart):
  """As a thread that is busy with something else for a while."""
  standstill = timing.Standstill()
  heart.run(600)
  assert standstill.take() == 0.


def test_the_heart_of_this_process_beats(monkeypatch):
  monkeypatch.setattr(timing, '_BEAT_SECONDS', .01)
  heartbeat = timing._heartbeat.__wrapped__()
  beats = []
  monkeypatch.setattr(heartbeat, 'beat', lambda: beats.append(0))
  deadline = time.monotonic() + 60.
  while len(beats) < 3 and time.monotonic() < deadline:
    time.sleep(.01)
  assert len(beats) >= 3
