"""The whole of it learns, and does not with a sign wrong in V-trace."""

import csv
import json

import numpy as np
import pytest

from scalable_agent import vtrace
from scalable_agent.algorithms import policy_gradients
from tests.test_experiment import run_main  # pylint: disable=unused-import

# A random policy balances the pole for 22 steps, the best for 500.
_LEARNED = 100.
_NOT_LEARNED = 40.
_FRAMES = 50_000
_OF_IMPALA = ('--batch_size=8', '--learning_rate=0.006')
# A quarter of the frames, each of which is trained on 13 times. Few updates, so
# that the test is short: batches are large, the target network has to keep up
# with them, and the mean of 100 games, which begin with the first, is far below
# the last game.
_LEARNED_SO_SOON = 50.
_FRAMES_OF_REACTOR = 12_000
_OF_REACTOR = ('--agent=reactor', '--v_min=0', '--v_max=100', '--nouse_lstm',
               '--batch_size=8', '--learning_rate=0.0014',
               '--steps_per_update=20', '--target_update_period=50')


def _learn(run, logdir, *arguments, frames=_FRAMES, settings=_OF_IMPALA):
  """Trains on CartPole; returns the mean return of the last 100 games."""
  result = run('--level_name=gym:CartPole-v1', f'--logdir={logdir}',
               f'--total_environment_frames={frames}', *settings, *arguments)
  assert result.code == 0, result
  with open(logdir / 'episodes.csv', newline='') as f:
    returns = [float(row['episode_return']) for row in csv.DictReader(f)]
  return np.mean(returns[-100:])


def _learn_until(score, run, logdir, *arguments, frames=_FRAMES, **kwargs):
  """Trains to a score, thrice as long at the most; checks that it is reached.

  What a run has learned after so many frames is a matter of luck, since threads
  decide what it learns from.

  Returns:
    How many frames it took.
  """
  for share in (1, 2, 3):
    reached = _learn(run, logdir, *arguments, frames=share * frames, **kwargs)
    if reached > score:
      break
  assert reached > score
  return share * frames


@pytest.mark.parametrize('architecture', ['a2c_sync_step',
                                          'a2c_sync_trajectory'])
def test_cartpole_is_learned_by_batched_a2c(tmp_path, run_main, architecture):
  _learn_until(_LEARNED, run_main, tmp_path, '--num_actors=8',
               f'--architecture={architecture}')
  with open(tmp_path / 'metrics.jsonl') as f:
    assert [json.loads(line)['policy_lag_max'] for line in f][-1] == 0


def test_cartpole_is_learned(tmp_path, run_main):
  _learn_until(_LEARNED, run_main, tmp_path, '--num_actors=16')


def test_cartpole_is_not_learned_with_the_advantages_negated(
    tmp_path, run_main, monkeypatch):
  """The same run, so that the test above tells a right update from a wrong."""
  right, calls = vtrace.from_importance_weights, []

  def wrong(*args, **kwargs):
    calls.append(1)
    returns = right(*args, **kwargs)
    return returns._replace(pg_advantages=-returns.pg_advantages)

  monkeypatch.setattr(vtrace, 'from_importance_weights', wrong)
  assert _learn(run_main, tmp_path, '--num_actors=16') < _NOT_LEARNED
  assert calls


def test_cartpole_is_learned_by_reactor_unless_its_policy_loss_is_negated(
    tmp_path, run_main, monkeypatch):
  """In as many frames as the right update needs, the wrong one learns nothing.

  Both leave out the LSTM, with which every update takes longer and this test
  would too. `testdata/results` has runs with it.
  """
  num_frames = _learn_until(
      _LEARNED_SO_SOON, run_main, tmp_path / 'right',
      frames=_FRAMES_OF_REACTOR, settings=_OF_REACTOR)
  gradients = policy_gradients.POLICY_GRADIENTS
  right, calls = gradients['beta_loo'], []

  def wrong(*args, **kwargs):
    calls.append(1)
    return -right(*args, **kwargs)

  monkeypatch.setitem(gradients, 'beta_loo', wrong)
  assert _learn(run_main, tmp_path / 'wrong', frames=num_frames,
                settings=_OF_REACTOR) < _NOT_LEARNED
  assert calls
