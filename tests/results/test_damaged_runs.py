"""Log directories that hold anything at all: a report or one line, never more.
"""

import builtins
import json
import os
import pathlib
import shutil
import tempfile

from absl import flags
from absl.testing import flagsaver
import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from scalable_agent import report
from scalable_agent.results import agents
from scalable_agent.results import curves
from scalable_agent.results import runs
from tests import test_report

_FILES = ('config.json', 'episodes.csv', 'metrics.jsonl', 'test_scores.json')
_EPISODES = [(100, 'pong', -21), (200, 'pong', -20), (300, 'pong', -19)]


def _make(root):
  logdir = pathlib.Path(test_report.make_run(
      root / 'run', _EPISODES, {'pong': [1., 2.]}, level_name='pong', seed=1))
  (logdir / 'metrics.jsonl').write_text('{"frames": 100}\n{"frames": 400}\n')
  return logdir


def _report(logdirs, report_dir):
  """Runs the true `main`; returns its error, None if there is none."""
  try:
    with flagsaver.flagsaver():
      report.main(flags.FLAGS(
          ['report', f'--logdirs={logdirs}', f'--report_dir={report_dir}']))
  except SystemExit as e:
    assert isinstance(e.code, str)
    assert len(e.code.splitlines()) == 1, e.code
    return e.code
  return None


@pytest.mark.parametrize('name', _FILES)
@pytest.mark.parametrize('logdirs', ['run', '*'])
def test_a_directory_in_place_of_a_file(tmp_path, name, logdirs):
  path = _make(tmp_path) / name
  path.unlink()
  path.mkdir()
  assert _report(f'{tmp_path}/{logdirs}', tmp_path / 'report') == (
      f'Error: {path} cannot be read: Is a directory.')


@pytest.mark.parametrize('name', _FILES)
def test_a_file_that_may_not_be_read(tmp_path, name, monkeypatch):
  path = _make(tmp_path) / name
  true_open = builtins.open

  def deny(opened, *args, **kwargs):
    if str(opened) == str(path):
      raise PermissionError(13, 'Permission denied', str(path))
    return true_open(opened, *args, **kwargs)

  monkeypatch.setattr(builtins, 'open', deny)
  assert _report(path.parent, tmp_path / 'report') == (
      f'Error: {path} cannot be read: Permission denied.')


@pytest.mark.parametrize('line', [
    b'\xff\xfe\xfd', b'5', b'null', b'"frames"', b'[1]', b'[' * 100_000,
    b'{"frames": Infinity}', b'{"frames": "x"}', b'{"frames": [4]}', b'{'])
def test_damaged_metrics_are_left_out(tmp_path, line, caplog):
  logdir = _make(tmp_path)
  with open(logdir / 'metrics.jsonl', 'ab') as f:
    f.write(line + b'\n{"frames": 500}\n' + line)
  assert runs.read(str(logdir)).frames == 500
  assert 'metrics.jsonl: left out 1 lines' in caplog.text


@pytest.mark.parametrize('line', [
    b'\xff\xfe\xfd', b'5', b'"', b'400,"pong,1,400', b'400,po\x00ng,1,400',
    b'400,' + b'x' * 200_000 + b',1,400', b'99999999999999999999,pong,1,400',
    b'400,pong,nan,400', b'400,pong,inf,400', b'400,pong,1e300,400',
    b'400,pong', b'400,pong,1,400,5', b'400,,1,400', b'a\rb'])
def test_damaged_episodes_are_left_out(tmp_path, line, caplog):
  """And none of those after them."""
  logdir = _make(tmp_path)
  with open(logdir / 'episodes.csv', 'ab') as f:
    f.write(line + b'\n500,pong,7,400\n')
  (episodes,) = runs.read_episodes(logdir).values()
  np.testing.assert_array_equal(episodes.frames, [100, 200, 300, 500])
  np.testing.assert_array_equal(episodes.returns, [-21, -20, -19, 7])
  assert 'episodes.csv: left out 1 lines' in caplog.text


def test_a_damaged_header_costs_no_episode(tmp_path):
  logdir = _make(tmp_path)
  path = logdir / 'episodes.csv'
  path.write_bytes(path.read_bytes().replace(b'level', b'lev\xffel', 1))
  assert len(runs.read_episodes(logdir)['pong'].frames) == 3


def test_whole_logs_are_read_without_a_warning(tmp_path, caplog):
  logdir = _make(tmp_path)
  for name in ('metrics.jsonl', 'episodes.csv'):
    with open(logdir / name, 'a') as f:
      f.write('4')
  runs.read(str(logdir))
  assert not caplog.text


_NAMED = ' --batch_size=[1] cannot work: it has to be a whole number, '


@pytest.mark.parametrize('name, content, expected', [
    ('config.json', b'\xff', 'is not readable as JSON'),
    ('config.json', b'[' * 100_000, 'is not readable as JSON'),
    ('config.json', b'5', 'holds no JSON object'),
    ('config.json', b'{"batch_size": [1]}', _NAMED),
    ('config.json', b'{"level_name": 3}', '--level_name=3 cannot work'),
    ('config.json', b'{"level_name": ["pong"]}', '--level_name='),
    ('config.json', b'{"level_name": "\\ud800"}', '--level_name='),
    ('config.json', b'{"network": "a\\nb"}', "--network='a\\nb' is no name"),
    ('config.json', b'{"batch_size": "a\\nb"}', '--batch_size=a b cannot work'),
    ('config.json', b'{"total_environment_frames": "x"}',
     '--total_environment_frames=x'),
    ('config.json', b'{"total_environment_frames": 1' + 400 * b'0' + b'}',
     '--total_environment_frames is too large'),
    ('test_scores.json', b'\xff', 'is not readable as JSON'),
    ('test_scores.json', b'5', 'holds no JSON object'),
    ('test_scores.json', b'{"frames": 5}', 'holds no test scores'),
    ('test_scores.json', b'{"levels": {"pong": 5}, "frames": 5}',
     'holds no test scores'),
    ('test_scores.json',
     b'{"levels": {"pong": {"episode_returns": ["x"]}}, "frames": 5}',
     'holds no test scores'),
    ('test_scores.json',
     b'{"levels": {"pong": {"episode_returns": [[1], [2]]}}, "frames": 5}',
     "holds no test scores of 'pong'"),
    ('test_scores.json',
     b'{"levels": {"pong": {"episode_returns": 5}}, "frames": 5}',
     "holds no test scores of 'pong'"),
    ('test_scores.json',
     b'{"levels": {"pong": {"episode_returns": [1, NaN]}}, "frames": 5}',
     "holds no test scores of 'pong'"),
    ('test_scores.json',
     b'{"levels": {"pong": {"episode_returns": [1' + 400 * b'0' +
     b']}}, "frames": 5}', 'holds no test scores'),
    ('test_scores.json',
     b'{"levels": {"pong": {"episode_returns": [5]}}, "frames": "x"}',
     'does not say after how many frames')])
def test_other_json_is_named(tmp_path, name, content, expected):
  path = _make(tmp_path) / name
  path.write_bytes(content)
  error = _report(path.parent, tmp_path / 'report')
  assert error.startswith(f'Error: {path}'), error
  assert expected in error


def test_names_that_are_no_formulas(tmp_path):
  """Dollars and bytes that are no text, in names of levels and directories."""
  logdir = _make(tmp_path)
  (logdir / 'config.json').unlink()
  with open(logdir / 'episodes.csv', 'a') as f:
    f.write('500,gym:a$\\foo$b-v0,1,4\n')
  other = os.fsencode(tmp_path) + b'/run_\xff$\\foo$'
  shutil.copytree(os.fsencode(logdir), other)
  assert _report(f'{tmp_path}/run*', tmp_path / 'report') is None
  text = (tmp_path / 'report' / 'report.md').read_text()
  assert 'run_\\xff$\\foo$' in text and 'a$\\foo$b' in text


# -- Anything at all ----------------------------------------------------------

_NUMBERS = (strategies.integers() | strategies.floats() |
            strategies.sampled_from([10**30, 10**400, 0, 5, True]))
_JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | _NUMBERS | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) |
    strategies.dictionaries(strategies.sampled_from(
        ['frames', 'fps', 'levels', 'pong', 'episode_returns', 'level_name']) |
                            strategies.text(), inner, max_size=3),
    max_leaves=8)
_SETTINGS = strategies.dictionaries(
    strategies.sampled_from(['level_name', 'seed', *agents.SETTINGS]), _JSON,
    max_size=3)
_SCORES = strategies.fixed_dictionaries(dict(
    frames=_JSON | strategies.just(5), levels=strategies.dictionaries(
        strategies.sampled_from(['pong', 'qbert']),
        strategies.fixed_dictionaries(dict(episode_returns=_JSON |
            strategies.lists(_NUMBERS, max_size=3))), max_size=2)))
_LINES = strategies.lists(
    strategies.binary(max_size=20) |
    (_JSON | strategies.fixed_dictionaries(dict(frames=_NUMBERS)) |
     strategies.fixed_dictionaries(dict(
         frames=strategies.integers(1, 10**6),
         fps=strategies.floats(.01, 1e4)))).map(
             lambda value: json.dumps(value).encode()) |
    strategies.tuples(
        _NUMBERS, strategies.sampled_from(['pong', 'x', '$a$', '"']) |
        strategies.text(strategies.characters(exclude_categories=['Cs'])),
        _NUMBERS, _NUMBERS).map(
            lambda values: ','.join(map(str, values)).encode()),
    max_size=6).map(b'\n'.join)
_CONTENTS = {
    'config.json': _SETTINGS | _JSON,
    'episodes.csv': _LINES,
    'metrics.jsonl': _LINES,
    'test_scores.json': _SCORES | _JSON}
_REPLACED = strategies.fixed_dictionaries({}, optional={
    name: content | strategies.binary() | strategies.just('a directory') |
          strategies.just(None) for name, content in _CONTENTS.items()})


def check_any_content(contents):
  """Reports on a run some of whose files have been replaced.

  Args:
    contents: A dict of a file's name to bytes, what JSON can hold, None for no
      file, or 'a directory'.
  """
  with tempfile.TemporaryDirectory() as root:
    root = pathlib.Path(root)
    logdir = _make(root)
    for name, content in contents.items():
      path = logdir / name
      path.unlink()
      if content == 'a directory':
        path.mkdir()
      elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else
                         json.dumps(content).encode())
    error = _report(f'{root}/*', root / 'report')
    assert error or (root / 'report' / 'index.html').exists()


@hypothesis.settings(max_examples=40, suppress_health_check=[
    hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(_REPLACED)
def test_any_content_gives_a_report_or_one_line(monkeypatch, contents):
  """Without its pictures, which take most of the time."""
  monkeypatch.setattr(curves, 'draw', lambda panels, in_hours=False: b'')
  check_any_content(contents)
