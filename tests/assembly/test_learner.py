"""From the flags of Reactor to its loss, optimizer and replay."""

import pytest

from scalable_agent import config as config_lib
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import loss as loss_assembly
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
