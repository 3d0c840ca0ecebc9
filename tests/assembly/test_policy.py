"""From flags to a learner's own policy, and to what batches its calls."""

import time

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import policy as policy_assembly
from scalable_agent.config import seeds


def test_every_value_comes_where_it_belongs(monkeypatch):
  made = []
  monkeypatch.setattr(policy_assembly.policy_lib, 'Policy',
                      lambda *args, **kwargs: made.append((args, kwargs)))
  policy_assembly.create_policy(
      config_lib.resolve(dict(level_name='pong', seed=7)), 'agent',
      devices_assembly.Devices(['/gpu:0'], '/gpu:1', True), 'weights', 70)
  assert made == [(('agent', 'weights', 70), dict(
      seed=seeds.derive(7, seeds.ACTIONS, 70, 0), device='/gpu:1',
      jit_compile=True))]


def _batched(timeout_ms):
  config = config_lib.resolve(dict(
      level_name='pong', num_actors=16, inference_minimum_batch_size=3,
      inference_maximum_batch_size=17, inference_timeout_ms=timeout_ms))
  return policy_assembly.batch_calls(config, np.negative)


def _seconds(batched, size):
  """Returns how long a call of a batched function takes."""
  start = time.monotonic()
  np.testing.assert_array_equal(batched(np.arange(size)), -np.arange(size))
  return time.monotonic() - start


def test_calls_are_batched_as_the_flags_say():
  # More than if nothing is said.
  assert .15 <= _seconds(_batched(150), 2) < 30
  patient = _batched(60_000)
  assert _seconds(patient, 3) < 30
  assert _seconds(patient, 17) < 30
  with pytest.raises(ValueError, match='exceeds maximum_batch_size=17'):
    patient(np.arange(18))


def test_no_two_policies_of_a_run_draw_the_same_actions(monkeypatch):
  """Neither those of two learners, nor those before and after a restart."""
  found = []
  monkeypatch.setattr(policy_assembly.policy_lib, 'Policy',
                      lambda *args, seed, **kwargs: found.append(seed))
  devices = devices_assembly.Devices(['/cpu:0'], '/cpu:0', False)
  for task in -1, 0, 1:
    config = config_lib.resolve(dict(
        level_name='pong', task=task, insecure_network=True,
        inference='learner', learner_hosts=['a:1', 'b:2'] if task >= 0 else []))
    for version in 0, 70:
      policy_assembly.create_policy(config, 'agent', devices, {}, version)
  assert len(set(found)) == 4 and found[:2] == found[2:4]
