"""Tables that learn: what lag, correction and seed change in them."""

import collections
import itertools
import pathlib

import numpy as np
import pytest

from scalable_agent.algorithms import corrections
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


# Settings of an update, none of which is a default.
_UPDATE = dict(batch_size=2, unroll_length=6, discounting=.9, entropy_cost=.2,
               baseline_cost=.3, decay=.8, epsilon=.4)


def _random_batch(rng):
  """Weights of both tables and a batch of two unrolls, in a few squares.

  The policy hardly ever takes action 1 in square 3, but it is taken there.
  """
  length, count = _UPDATE['unroll_length'], _UPDATE['batch_size']
  logits = rng.normal(
      size=(small_worlds.NUM_SQUARES, small_worlds.NUM_ACTIONS))
  logits[3, 1] -= 12.
  batch = dict(
      states=rng.integers(2, 8, (length + 1, count)).astype(np.int32),
      actions=rng.integers(
          small_worlds.NUM_ACTIONS, size=(length, count)).astype(np.int32),
      behaviour_logits=rng.normal(
          size=(length, count, small_worlds.NUM_ACTIONS)).astype(np.float32),
      rewards=rng.normal(size=(length, count)).astype(np.float32),
      dones=rng.random((length, count)) < .2)
  batch['states'][2], batch['actions'][2] = 3, 1
  batch['dones'][2] = False, True
  values = rng.normal(size=small_worlds.NUM_SQUARES)
  return logits.astype(np.float32), values.astype(np.float32), batch


def _softmax(logits):
  exp = np.exp(logits - logits.max(-1, keepdims=True))
  return exp / exp.sum(-1, keepdims=True)


def _weights_of(correction, rho):
  """What a correction weighs errors, traces and the policy gradient by."""
  truncated = min(1., rho)
  return {'vtrace': (truncated, truncated, truncated),
          'one_step': (1., 1., truncated),
          'epsilon': (1., 1., 1.), 'none': (1., 1., 1.)}[correction]


def _gradients(correction, logits, values, batch):
  """The gradients of both tables, entry by entry."""
  policies = _softmax(logits)
  gradients = np.zeros_like(logits), np.zeros_like(values)
  for states, actions, behaviour_logits, rewards, dones in zip(*(
      np.swapaxes(batch[name], 0, 1) for name in (
          'states', 'actions', 'behaviour_logits', 'rewards', 'dones'))):
    length = len(actions)
    discounts = _UPDATE['discounting'] * ~dones
    of_error, of_trace, of_gradient = zip(*(
        _weights_of(correction, policies[state, action] / behaviour[action])
        for state, action, behaviour in zip(
            states, actions, _softmax(behaviour_logits.astype(np.float64)))))
    targets = values[states]
    for start in range(length):
      for t in range(start, length):
        error = (rewards[t] + discounts[t] * values[states[t + 1]] -
                 values[states[t]])
        targets[start] += of_error[t] * error * np.prod(
            [discounts[i] * of_trace[i] for i in range(start, t)])
    for t in range(length):
      state, action, policy = states[t], actions[t], policies[states[t]]
      advantage = of_gradient[t] * (
          rewards[t] + discounts[t] * targets[t + 1] - values[state])
      added = 1e-6 if correction == 'epsilon' else 0.
      entropy = -np.sum(policy * np.log(policy))
      gradients[0][state] -= advantage * policy[action] / (
          policy[action] + added) * (np.eye(len(policy))[action] - policy)
      gradients[0][state] += _UPDATE['entropy_cost'] * policy * (
          np.log(policy) + entropy)
      gradients[1][state] -= _UPDATE['baseline_cost'] * (
          targets[t] - values[state])
  return gradients


@pytest.mark.parametrize('correction', corrections.CORRECTIONS)
def test_an_update_is_that_of_the_equations(correction):
  """In float64, with sums in place of recursions; slots of RMSProp are 1."""
  logits, values, batch = _random_batch(np.random.default_rng(1))
  tables = tabular._Tables(1, _settings(correction, 0, **_UPDATE))
  for table, weights in (tables.logits, logits), (tables.values, values):
    table.assign(weights[np.newaxis])
  tables.update(**batch)
  before = logits.astype(np.float64), values.astype(np.float64)
  assert 1e-7 < _softmax(before[0])[3, 1] < 1e-5
  for table, weights, gradient in zip(
      (tables.logits, tables.values), before,
      _gradients(correction, *before, batch)):
    mean_square = _UPDATE['decay'] + (1. - _UPDATE['decay']) * gradient ** 2
    np.testing.assert_allclose(
        table.numpy()[0], weights - _RATE * gradient / np.sqrt(
            mean_square + _UPDATE['epsilon']), atol=2e-5, rtol=0.)


def test_it_learns():
  finals = tabular.train(
      tabular.Settings('vtrace', 0, .3, num_updates=400), num_runs=4, seed=1)
  random = small_worlds.returns(np.full([25, 4], .25), .98)
  assert random < -.8
  # All avoid the cliffs; some go to the goal, where 0.453 is the most.
  assert finals.min() > -.3
  assert finals.max() > .4


def test_all_kinds_get_the_same_random_numbers(monkeypatch):
  """By which the study pairs them."""
  seeds = []

  def train(unused_settings, num_runs, seed):
    seeds.append(seed)
    return np.zeros(num_runs)

  monkeypatch.setattr(tabular, 'train', train)
  for kind in itertools.product(corrections.CORRECTIONS, (0, 3), (.1, .3)):
    small_world._train(tabular.Settings(*kind), num_seeds=2)
  assert len(seeds) == 16
  assert len(set(seeds)) == 1


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
