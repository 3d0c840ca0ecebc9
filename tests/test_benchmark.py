"""The benchmark as its users start it, on tiny numbers."""

import json
import os
import subprocess
import sys

import pytest

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def test_measures_all_parts_and_the_whole(tmp_path):
  path = tmp_path / 'figures.json'
  output = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.benchmark',
       '--level_name=gym:CartPole-v1', '--num_actors=8', '--batch_size=4',
       '--measure_secs=0.5', f'--json={path}'],
      cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=300, check=True).stdout
  figures = json.loads(path.read_text())
  parts = [figures[name] for name in ('environments', 'inference', 'learner')]
  assert min(parts) > 0
  assert figures['ideal'] == pytest.approx(1 / sum(1 / x for x in parts))
  assert figures['whole'] > 0
  assert figures['efficiency'] == pytest.approx(
      figures['whole'] / figures['ideal'])
  assert [line.split()[0] for line in output.splitlines()] == list(figures)


def test_bad_flags_are_answered_in_one_line():
  result = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.benchmark', '--level_name=pogn'],
      cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=120)
  assert result.returncode == 1
  errors = [line for line in result.stderr.splitlines() if 'Error' in line]
  assert len(errors) == 1 and 'Did you mean pong' in errors[0]
  assert 'Traceback' not in result.stderr
