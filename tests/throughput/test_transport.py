"""Tests of `transport`: the measurement runs, and adds up."""

import pytest

from scalable_agent.throughput import transport
from scalable_agent.throughput import unrolls

_SHAPE = unrolls.Shape((36, 48, 3), 5, 4, True, 'shallow')


def test_unrolls_and_weights_pass_between_processes(capsys):
  results = transport.measure_transport(.5, (2,), (1, 3), dict(small=_SHAPE))
  for row, per_call in zip(results['small'], (1, 3), strict=True):
    assert row['unrolls_per_call'] == per_call
    _check(row)
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 3 and lines[0].startswith('small: unrolls of 0.03 MB')
  assert '2 connections, 3 unrolls a call' in lines[2]


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
