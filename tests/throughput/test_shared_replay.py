"""Tests of `shared_replay`: the measurement runs, and adds up."""

import pytest

from scalable_agent.learner_service import protocol as learner_protocol
from scalable_agent.throughput import shared_replay
from scalable_agent.throughput import unrolls

_SHAPE = unrolls.Shape((36, 48, 3), 5, 4, True, 'shallow')


def test_learners_draw_in_processes_of_their_own(capsys, monkeypatch):
  monkeypatch.setattr(shared_replay, '_CONTENTS_BYTES', 1 << 20)
  results = shared_replay.measure_shared_replay(
      .4, 2, 30, dict(small=_SHAPE))
  figures = results['small']
  assert set(figures) == {*shared_replay.WAYS, 'cores'}
  for way in shared_replay.WAYS:
    row = figures[way]
    assert all(value > 0 for value in row.values())
    # Six frames, and little else.
    unroll_mb = row['mb_per_second'] / row['unrolls_per_second']
    assert 6 * 36 * 48 * 3 < 1e6 * unroll_mb < 1.2 * 6 * 36 * 48 * 3
    # Two learners are served at a time.
    assert row['unrolls_per_second'] * row['batch_ms'] == pytest.approx(
        2 * 30 * 1e3, rel=.5)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(':')[0] for line in lines] == [
      'small, served', 'small, drawn ', 'small, mixed ']
  assert all('MB/s to 2 learners' in line for line in lines)


def test_the_bytes_are_those_of_the_wire():
  """Of stacks of frames, each frame once."""
  shape = unrolls.SHAPES['atari']
  layout = shared_replay._layout(shape)
  message = layout.encode(unrolls.message(
      shared_replay._make_unroll(shape)))
  assert len(message) < .3 * layout.num_bytes
  assert learner_protocol.max_unrolls_per_call(layout) > 1
