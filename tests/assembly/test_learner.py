"""From flags to a learner, and from those of Reactor to all its parts."""

import types

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import loss as loss_assembly
from scalable_agent.environments import ArraySpec
from scalable_agent.process import timing

# None of these is a default.
_VALUES = dict(
    level_name='pong', agent='reactor', discounting=.9,
    reward_clipping='soft_asymmetric', entropy_cost=.2, retrace_lambda=.3,
    policy_gradient='tislr', beta_loo_clip=4., learning_rate=.5, momentum=.6,
    decay=.7, epsilon=.8, replay_steps=20_000, replay_min_steps=300,
    unroll_length=10, steps_per_update=11., replay_uniform=.12, seed=13,
    frame_stack=4, num_actors=4)


@pytest.fixture(name='calls')
def _calls(monkeypatch):
  """What is called in place of the classes, by name."""
  calls = {}

  def record(module, name):
    monkeypatch.setattr(module, name, lambda *args, **kwargs: calls.update(
        {name: (args, kwargs)}))

  record(loss_assembly.reactor, 'make_loss_fn')
  record(learner_assembly.adam, 'Adam')
  record(learner_assembly.prioritized_sequences, 'PrioritizedSequences')
  return calls


def test_every_value_comes_where_it_belongs(calls):
  config = config_lib.resolve(_VALUES)
  loss_assembly.create_loss_fn(config, 'agent')
  agent, settings = calls['make_loss_fn'][0]
  assert agent == 'agent'
  assert settings._asdict() == dict(
      discounting=.9, reward_clipping='soft_asymmetric', entropy_cost=.2,
      lambda_=.3, policy_gradient='tislr', beta_loo_clip=4.)
  learner_assembly._create_optimizer(config)
  assert calls['Adam'] == ((.5,), dict(beta_1=.6, beta_2=.7, epsilon=.8))
  times = timing.StageTimes()
  learner_assembly.create_source(config, 'queue', times, 'agent', None)
  assert calls['PrioritizedSequences'] == (
      ('queue', 20_000, 300, 10, 11., .12, 13, times, True), {})


def test_learners_share_the_steps_of_an_update(calls):
  config = config_lib.resolve(dict(
      _VALUES, task=0, learner_hosts=['a:1', 'b:2'], insecure_network=True))
  learner_assembly.create_source(config, 'queue', None, 'agent', None)
  assert calls['PrioritizedSequences'][0][4] == 5.5


@pytest.mark.parametrize('values, spec, num_replicas, expected', [
    (dict(level_name='pong'), ArraySpec((84, 84, 4), np.uint8), 1, 2),
    (dict(level_name='pong', batch_size=8), ArraySpec((84, 84, 4), np.uint8),
     1, 2),
    # A replica has the half of 4 * 21 * 84 * 84 * 4 bytes, or all of them.
    (dict(level_name='pong', batch_size=4), ArraySpec((84, 84, 4), np.uint8),
     1, 2),
    (dict(level_name='pong', batch_size=4), ArraySpec((84, 84, 4), np.uint8),
     2, 1),
    (dict(level_name='pong', agent='reactor'), ArraySpec((84, 84, 1), np.uint8),
     1, 1),
    (dict(level_name='gym:MinAtar/Breakout-v1'),
     ArraySpec((10, 10, 4), np.uint8), 1, 1),
    (dict(level_name='gym:CartPole-v1', batch_size=1),
     ArraySpec((4,), np.float32), 1, 1),
    (dict(level_name='gym:CartPole-v1', batch_size=1, unroll_length=1),
     ArraySpec((250_000,), np.float32), 1, 2),
])
def test_a_small_batch_is_not_split(
    monkeypatch, values, spec, num_replicas, expected):
  calls = []
  monkeypatch.setattr(learner_assembly.learner_lib, 'Learner',
                      lambda *args, **kwargs: calls.append(kwargs))
  monkeypatch.setattr(loss_assembly, 'create_loss_fn', lambda *args: None)
  agent = types.SimpleNamespace(observation_spec=(spec,))
  devices = devices_assembly.Devices(
      ['/cpu:0'] * num_replicas, '/cpu:0', False, False, num_parts=2)
  learner_assembly.create_learner(
      config_lib.resolve(values), agent, devices, 'strategy')
  assert calls[0]['num_parts'] == expected
