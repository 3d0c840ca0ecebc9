"""Tests of `log_lines`."""

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies
import pytest

from scalable_agent.files import log_lines

_FRAMES = strategies.integers(0, 2**63 - 1)


@given(strategies.binary())
def test_any_bytes_are_a_line_or_damaged(line):
  metrics = log_lines.parse_metrics(line)
  assert metrics is None or log_lines.is_frames(metrics['frames'])
  episode = log_lines.parse_episode(line)
  assert episode is None or (
      log_lines.is_frames(episode.frames) and episode.level.isprintable())


@given(_FRAMES, strategies.text(
    strategies.characters(categories=['L', 'N', 'P', 'S']), min_size=1),
       strategies.floats(allow_nan=False), _FRAMES)
def test_what_was_written_is_read(frames, level, value, episode_frames):
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerow(
      (frames, level, value, episode_frames))
  assert log_lines.parse_episode(text.getvalue().encode()) == (
      frames, level, value, episode_frames)
  assert log_lines.parse_metrics(
      json.dumps(dict(frames=frames, fps=value)).encode()) == dict(
          frames=frames, fps=value)


@pytest.mark.parametrize('line', [
    b'', b'\n', b'5', b'null', b'[]', b'"frames"', b'{}', b'{"frames": null}',
    b'{"frames": true}', b'{"frames": 1.5}', b'{"frames": "5"}',
    b'{"frames": -1}', b'{"frames": 9223372036854775808}',
    b'{"frames": Infinity}', b'{"frames": 12', b'{"frames": 5}\xff',
    b'\xff\xfe', b'[' * 100_000, b'{"frames": ' + b'9' * 5000 + b'}'])
def test_damaged_metrics(line):
  assert log_lines.parse_metrics(line) is None


@pytest.mark.parametrize('line', [
    b'', b'\n', b'5', b'100,pong,1', b'100,pong,1,', b'100,pong,1,4,5',
    b'100,pong,one,4', b'-1,pong,1,4', b'1.5,pong,1,4', b'100,,1,4',
    b'100,po\xffng,1,4', b'100,po\x00ng,1,4', b'100,"pong,1,4',
    b'100,"po\nng",1,4', b'100,po\rng,1,4', b'9223372036854775808,pong,1,4',
    b'100,' + 200_000 * b'x' + b',1,4', b'frames,level,episode_return,'
    b'episode_frames'])
def test_damaged_episodes(line):
  assert log_lines.parse_episode(line) is None
  assert log_lines.parse_finite_episode(line) is None


@pytest.mark.parametrize('value, is_finite', [
    (b'-3.4028234663852886e+38', True), (b'3.5e+38', False), (b'1e999', False),
    (b'nan', False)])
def test_finite_returns_are_float32(value, is_finite):
  line = b'100,pong,' + value + b',4'
  episode = log_lines.parse_episode(line)
  assert episode is not None
  assert log_lines.parse_finite_episode(line) == (
      episode if is_finite else None)


def test_the_fields_are_the_columns():
  assert log_lines.EpisodeLine._fields == (
      'frames', 'level', 'episode_return', 'episode_frames')
