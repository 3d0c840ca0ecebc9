"""Tests of `shared_replay`: the measurement runs, and adds up."""

import itertools
from unittest import mock

import pytest

from scalable_agent.throughput import shared_replay
from scalable_agent.throughput import unrolls
from scalable_agent.unroll_messages import call_sizes

_SHAPE = unrolls.Shape((36, 48, 3), 5, 4, True, 'shallow')


def test_learners_draw_in_processes_of_their_own(capsys, monkeypatch):
  monkeypatch.setattr(shared_replay, '_CONTENTS_BYTES', 1 << 20)
  add_up = mock.Mock(wraps=shared_replay._add_up)
  monkeypatch.setattr(shared_replay, '_add_up', add_up)
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
  # Of two learners, in turns that end at their time and no earlier.
  assert add_up.call_count == len(shared_replay.WAYS)
  for (stretches, count), _ in add_up.call_args_list:
    assert count == 30
    assert [len(turns) for turns in stretches] == [shared_replay._NUM_TURNS] * 2
    for stretch in itertools.chain(*stretches):
      assert stretch.num_batches > 0
      assert stretch.seconds >= .4 / shared_replay._NUM_TURNS
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(':')[0] for line in lines] == [
      'small, served', 'small, drawn ', 'small, mixed ']
  assert all('MB/s to 2 learners' in line for line in lines)


def test_stretches_of_several_learners_add_up():
  stretch = shared_replay._Stretch
  # Bytes, batches, and seconds: all, of the learner, and of the job.
  row = shared_replay._add_up([
      [stretch(2e6, 2, 1., .1, .5), stretch(6e6, 6, 2., .2, .9)],
      [stretch(4e6, 4, 1., .3, .7), stretch(8e6, 8, 2., .4, 1.1)]], 30)
  assert row == pytest.approx(dict(
      mb_per_second=(6 + 7) / 2, unrolls_per_second=30 * (6 + 7) / 2,
      batch_ms=1e3 * 6 / 20, mb_per_job_cpu_second=20 / (.6 + 1.),
      mb_per_learner_cpu_second=20 / 1.))


@pytest.mark.parametrize('way, count, num_inserted', [
    ('drawn', 14, 0), ('mixed', 14, 2), ('mixed', 6, 1)])
def test_only_mixed_batches_insert(way, count, num_inserted):
  """One unroll for each seven that are drawn, and at least one."""
  client = mock.Mock()
  client.sample.side_effect = lambda count: ['unroll'] * count
  unroll = shared_replay._make_unroll(_SHAPE)
  draw = shared_replay._make_batch(way, client, _SHAPE, count, unroll)
  client.sample.assert_not_called()
  assert draw() > count * 6 * 36 * 48 * 3
  client.sample.assert_called_once_with(count)
  assert [len(call.args[0]) for call in client.extend.call_args_list] == (
      [num_inserted] if num_inserted else [])


def test_the_bytes_are_those_of_the_wire():
  """Of stacks of frames, each frame once."""
  shape = unrolls.SHAPES['atari']
  layout = shared_replay._layout(shape)
  message = layout.encode(unrolls.message(
      shared_replay._make_unroll(shape)))
  assert len(message) < .3 * layout.num_bytes
  assert call_sizes.max_unrolls_per_call(layout) > 1
