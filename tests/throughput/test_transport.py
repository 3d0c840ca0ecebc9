"""Tests of `transport`: the measurement runs, and adds up."""

import pytest

from scalable_agent.throughput import transport
from scalable_agent.throughput import unrolls

_SHAPE = unrolls.Shape((36, 48, 3), 5, 4, True, 'shallow')


def test_unrolls_and_weights_pass_between_processes(capsys):
  results = transport.measure_transport(.2, (2,), (1, 3), dict(small=_SHAPE))
  for row, per_call in zip(results['small'], (1, 3), strict=True):
    assert row['unrolls_per_call'] == per_call
    _check(row)
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 3 and lines[0].startswith('small: unrolls of 0.03 MB')
  assert '2 connections, 3 unrolls a call' in lines[2]


def test_stretches_of_several_processes_add_up():
  """Rates and CPU time of callers do; they all see one server."""
  # Two processes, in each two turns, of unrolls and of weights.
  stretches = [
      [[transport._Stretch(10., .5, .2), transport._Stretch(100., .8, .1)],
       [transport._Stretch(20., .7, .4), transport._Stretch(300., .8, .3)]],
      [[transport._Stretch(30., .5, .6), transport._Stretch(100., .6, .1)],
       [transport._Stretch(40., .7, .8), transport._Stretch(500., .6, .1)]]]
  figures = transport._add_up(stretches, 3)
  assert figures.unrolls_per_second == pytest.approx(3 * (40 + 60) / 2)
  assert figures.gets_per_second == pytest.approx((200 + 800) / 2)
  assert figures.server_seconds_per_unroll == pytest.approx(.6 / 150)
  assert figures.client_seconds_per_unroll == pytest.approx(1. / 150)
  assert figures.server_seconds_per_get == pytest.approx(.7 / 500)
  assert figures.client_seconds_per_get == pytest.approx(.3 / 500)


def _check(row):
  assert set(row) == {
      'connections', 'unrolls_per_call', 'unroll_mb', 'weights_mb',
      'unrolls_mb_per_second',
      'plain_unrolls_mb_per_second', 'unrolls_ratio', 'weights_per_second',
      'echo_unrolls_mb_per_second', 'unrolls_echo_ratio',
      'plain_weights_per_second', 'frames_per_second',
      'unrolls_mb_per_learner_cpu_second',
      'memory_kb_per_connection'}
  assert row['connections'] == 2
  # Six frames, and little else.
  assert 6 * 36 * 48 * 3 < 1e6 * row['unroll_mb'] < 1.2 * 6 * 36 * 48 * 3
  assert row['unrolls_mb_per_second'] > 0.
  assert row['weights_per_second'] > 0.
  assert row['unrolls_ratio'] == pytest.approx(
      row['unrolls_mb_per_second'] / row['plain_unrolls_mb_per_second'])
  assert row['unrolls_echo_ratio'] == pytest.approx(
      row['unrolls_mb_per_second'] / row['echo_unrolls_mb_per_second'])
  # 5 agent steps of 4 frames in each unroll.
  assert row['frames_per_second'] == pytest.approx(
      20 * row['unrolls_mb_per_second'] / row['unroll_mb'])
