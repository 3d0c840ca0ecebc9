"""What is said of the training loop is of the time that is measured."""

import collections
import time
import types

import numpy as np
import pytest

from scalable_agent.process import timing
from scalable_agent.throughput import loop


class _Run:
  """Updates that take no time; the first ones differ from all later ones."""

  def __init__(self):
    self.times = timing.StageTimes()
    self.queue = ['unroll'] * 9
    self.batches = self
    self._sizes = collections.Counter()
    self.num_trained = 0

  def next(self, stop):
    del stop
    return [self.num_trained]

  def policy_lags(self, batch):
    return np.full([2], 1 if batch else 50)

  def train_on(self, staged):
    del staged
    self._sizes[8 if self.num_trained else 99] += 1
    if not self.num_trained:
      with self.times.stage('learner_step'):
        time.sleep(.3)
    self.queue[1:] = []
    self.num_trained += 1

  def take_batch_sizes(self):
    taken, self._sizes = self._sizes, collections.Counter()
    return taken


def test_figures_are_of_the_time_after_the_warm_up():
  """Not of the first update, which compiles."""
  run = _Run()
  figures = loop._measure_run(
      types.SimpleNamespace(frames_per_step=10), run, .2)
  for name, value in dict(
      queue_size=1, inference_batch=8, policy_lag=1).items():
    found = figures[name]
    assert (found['min'], found['max']) == (value, value), name
    assert list(found['counts']) == [str(value)], name
  assert figures['times'].get('learner_step', 0.) < .5
  assert figures['whole'] > 0


def test_a_distribution_of_nothing():
  assert loop._distribution(collections.Counter()) == dict(
      min=0, mean=0., max=0, counts={})
  found = loop._distribution(collections.Counter({3: 1, 1: 3}))
  assert found == dict(
      min=1, max=3, mean=pytest.approx(1.5), counts={'1': 3, '3': 1})
