"""What is said of a wait for shared replay, and how often."""

import logging as python_logging

import pytest

from scalable_agent.training import replay_watch


class _Replay:

  def __init__(self):
    self.seconds = None
    self.held = False

  def is_held(self):
    return self.held

  def waits(self):
    return None if self.seconds is None else ('waits for X', self.seconds)


def test_long_waits_are_told_once_a_minute(monkeypatch, caplog):
  caplog.set_level(python_logging.INFO)
  now = [1000.]
  monkeypatch.setattr(replay_watch.time, 'monotonic', lambda: now[0])
  replay = _Replay()
  watch = replay_watch.ReplayWatch(replay)
  for replay.seconds in (None, .5, 29.):
    assert bool(watch.complaint()) == (replay.seconds == 29.)
    watch.check()
  assert not caplog.text and watch.complaint(30.) == ''
  assert watch.complaint(5.) == 'it waits for X, for 29 s so far'
  for replay.seconds in range(30, 155):
    watch.check()
    now[0] += 1
  lines = [record.getMessage() for record in caplog.records]
  assert lines == [f'This run has no batch: it waits for X, for {s} s so far.'
                   for s in (30, 90, 150)]


@pytest.mark.parametrize('held', [True, False])
def test_the_replay_says_whether_it_holds_the_run(held):
  replay = _Replay()
  replay.held = held
  assert replay_watch.ReplayWatch(replay).is_held() == held


def test_who_shares_nothing_waits_for_nothing():
  watch = replay_watch.ReplayWatch(None)
  assert not watch.is_held()
  watch.check()
  assert watch.complaint(0.) == ''
