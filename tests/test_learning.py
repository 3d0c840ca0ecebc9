"""The whole of it learns, and does not with a sign wrong in V-trace."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip('gymnasium')

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A random policy balances the pole for 22 steps, the best for 500.
_LEARNED = 100.
_NOT_LEARNED = 40.

_FLIP_ADVANTAGES = '''
from scalable_agent import vtrace
right = vtrace.from_importance_weights

def wrong(*args, **kwargs):
  returns = right(*args, **kwargs)
  return returns._replace(pg_advantages=-returns.pg_advantages)

vtrace.from_importance_weights = wrong
'''

_MAIN = '''
import runpy
runpy.run_module('scalable_agent.experiment', run_name='__main__')
'''


def _mean_of_last_games(logdir, *arguments):
  """Trains on CartPole; returns the mean return of the last 100 games."""
  completed = subprocess.run(
      [sys.executable, *arguments, '--level_name=gym:CartPole-v1',
       f'--logdir={logdir}', '--batch_size=8', '--learning_rate=0.006',
       '--total_environment_frames=80000'],
      cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT, text=True, timeout=900,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'))
  assert completed.returncode == 0, completed.stdout[-4000:]
  with open(logdir / 'episodes.csv', newline='') as f:
    returns = [float(row['episode_return']) for row in csv.DictReader(f)]
  return np.mean(returns[-100:])


@pytest.mark.parametrize('architecture', ['a2c_sync_step',
                                          'a2c_sync_trajectory'])
def test_cartpole_is_learned_by_batched_a2c(tmp_path, architecture):
  assert _mean_of_last_games(
      tmp_path, '-m', 'scalable_agent.experiment', '--num_actors=8',
      f'--architecture={architecture}') > _LEARNED
  with open(tmp_path / 'metrics.jsonl') as f:
    assert [json.loads(line)['policy_lag_max'] for line in f][-1] == 0


def test_cartpole_is_learned(tmp_path):
  assert _mean_of_last_games(
      tmp_path, '-m', 'scalable_agent.experiment',
      '--num_actors=16') > _LEARNED


def test_cartpole_is_not_learned_with_the_advantages_negated(tmp_path):
  """The same run, so that the test above tells a right update from a wrong."""
  assert _mean_of_last_games(
      tmp_path, '-c', _FLIP_ADVANTAGES + _MAIN,
      '--num_actors=16') < _NOT_LEARNED
