"""Tables that learn: what lag, correction and seed change in them."""

import collections
import pathlib

import numpy as np
import pytest

from scalable_agent.environments import small_worlds
from scalable_agent.studies import small_world
from scalable_agent.studies import tabular

_SHORT = dict(num_updates=12, batch_size=2, unroll_length=10)
_RATE = .3


def _settings(correction, lag, **others):
  return tabular.Settings(correction, lag, _RATE, **dict(_SHORT, **others))


@pytest.fixture(name='behaviour')
def _behaviour(monkeypatch):
  """Records what acted and what learned, as lists of arrays of logits."""
  seen = collections.namedtuple('Seen', 'acted learned')([], [])
  unroll = tabular._Worlds.unroll
  update = tabular._Tables.update

  def unroll_and_record(self, logits):
    seen.acted.append(logits)
    return unroll(self, logits)

  def update_and_record(self, **batch):
    seen.learned.append(self.logits.numpy())
    return update(self, **batch)

  monkeypatch.setattr(tabular._Worlds, 'unroll', unroll_and_record)
  monkeypatch.setattr(tabular._Tables, 'update', update_and_record)
  return seen


@pytest.mark.parametrize('lag', [0, 3])
def test_weights_are_held_back_exactly(behaviour, lag):
  tabular.train(_settings('vtrace', lag), num_runs=2, seed=1)
  assert len(behaviour.learned) == _SHORT['num_updates']
  for n, acted in enumerate(behaviour.acted):
    np.testing.assert_array_equal(acted, behaviour.learned[max(0, n - lag)])
  assert not np.array_equal(behaviour.learned[0], behaviour.learned[-1])


def test_corrections_are_the_same_without_lag_and_differ_with_it():
  def finals(correction, lag):
    return tabular.train(_settings(correction, lag), num_runs=3, seed=1)

  on_policy = finals('vtrace', 0)
  np.testing.assert_array_equal(finals('none', 0), on_policy)
  assert not np.array_equal(finals('none', 5), finals('vtrace', 5))


def test_runs_do_not_depend_on_each_other():
  """A run's gradient is of its own unrolls alone."""
  settings = _settings('vtrace', 2)
  worlds = tabular._Worlds(2, settings, seed=1)
  both, alone = tabular._Tables(2, settings), tabular._Tables(1, settings)
  for _ in range(3):
    batch = worlds.unroll(both.logits.numpy())
    both.update(**batch)
    alone.update(**{name: array[:, :settings.batch_size]
                    for name, array in batch.items()})
  np.testing.assert_allclose(both.logits[0], alone.logits[0], atol=1e-6)
  assert np.abs(both.logits[0] - both.logits[1]).max() > .01


def test_it_learns():
  finals = tabular.train(
      tabular.Settings('vtrace', 0, .3, num_updates=400), num_runs=4, seed=1)
  random = small_worlds.returns(np.full([25, 4], .25), .98)
  assert random < -.8
  # All avoid the cliffs; some go to the goal, where 0.453 is the most.
  assert finals.min() > -.3
  assert finals.max() > .4


def test_the_study_is_written(tmp_path, capsys):
  kinds = [
      _settings(correction, lag) for correction in ('vtrace', 'epsilon')
      for lag in (0, 2)]
  path = small_world.run(str(tmp_path / 'new' / 'study'), 2, kinds)
  text = pathlib.Path(path).read_text()
  assert 'computed exactly' in text and 'off_policy_correction=epsilon' in text
  folder = tmp_path / 'new' / 'study'
  rows = (folder / 'study.csv').read_text().splitlines()
  assert len(rows) == 1 + len(kinds) * 2
  assert list((folder / 'study').glob('*.png'))
  assert '4 of 4: epsilon, lag 2, learning rate 0.3' in capsys.readouterr().out
