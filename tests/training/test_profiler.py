"""Which updates are traced, with a profiler that notes what it is told."""

import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent.training import profiler


@pytest.fixture
def calls(monkeypatch):
  """What the profiler was told, a list."""
  calls = []
  experimental = tf.profiler.experimental
  monkeypatch.setattr(experimental, 'start', calls.append)
  monkeypatch.setattr(experimental, 'stop', lambda: calls.append('stop'))
  return calls


def _config(updates, **values):
  return config_lib.resolve(dict(
      level_name='pong', logdir='/run', profile_updates=updates, **values))


@pytest.mark.parametrize('steps, expected', [
    (0, {2: ['/run'], 5: ['/run', 'stop']}),
    (2, {2: ['/run'], 5: ['/run', 'stop']})])
def test_the_range_is_traced(calls, steps, expected):
  traced = profiler.Profiler(_config('2:5'), steps)
  seen = {steps: list(calls)} if calls else {}
  for step in range(steps + 1, 9):
    before = len(calls)
    traced.reach(step)
    if len(calls) > before:
      seen[step] = list(calls)
  traced.close()
  assert seen == expected and calls == ['/run', 'stop']


def test_a_run_that_ends_early_writes_what_there_is(calls):
  traced = profiler.Profiler(_config('0:5'), 0)
  traced.close()
  traced.close()
  assert calls == ['/run', 'stop']


def test_a_range_that_is_past_is_a_warning(calls, caplog):
  traced = profiler.Profiler(_config('2:5'), 3)
  assert caplog.messages == [
      'No trace is written (--profile_updates=2:5), since the run goes on '
      'after update 3.']
  for step in range(4, 7):
    traced.reach(step)
  traced.close()
  assert not calls


@pytest.mark.usefixtures('calls')
def test_a_trace_that_cannot_be_written_is_a_warning(monkeypatch):
  def fail():
    raise tf.errors.ResourceExhaustedError(None, None, 'disk full')

  monkeypatch.setattr(tf.profiler.experimental, 'stop', fail)
  warnings = []
  monkeypatch.setattr(profiler.logging, 'warning',
                      lambda text, *args: warnings.append(text % args))
  profiler.Profiler(_config('0:5'), 0).close()
  (text,) = warnings
  assert text.startswith('The trace cannot be written') and 'disk full' in text


@pytest.mark.parametrize('updates, works', [
    ('', True), ('0:1', True), ('100:110', True), ('5:5', False),
    ('6:5', False), ('5', False), ('5:', False), ('a:b', False),
    ('-1:5', False), ('1:2:3', False)])
def test_a_range_is_two_numbers(updates, works):
  if works:
    assert _config(updates).updates_to_profile == tuple(
        int(bound) for bound in updates.split(':') if bound)
  else:
    with pytest.raises(config_lib.ConfigError, match='has to be FIRST:LAST'):
      _config(updates)


def test_a_range_past_the_end_is_refused():
  frames = 2560  # Of an update.
  assert _config('0:3', total_environment_frames=2 * frames + 1)
  with pytest.raises(config_lib.ConfigError, match=(
      r'^--profile_updates=0:3 cannot work: the run ends after update 2 \(')):
    _config('0:3', total_environment_frames=2 * frames)
