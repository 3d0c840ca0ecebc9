import types

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.environments import ArraySpec


def _facts(size):
  return types.SimpleNamespace(
      num_actions=3, observation_spec=(ArraySpec((size, size, 1), np.uint8),))


@pytest.mark.parametrize('agent, name, values, expected', [
    ('impala', 'Agent', {}, {}),
    ('reactor', 'ReactorAgent', dict(v_min=-2., v_max=3., num_atoms=7,
                                     policy_uniform=.2),
     dict(v_min=-2., v_max=3., num_atoms=7, policy_uniform=.2))])
def test_every_value_comes_where_it_belongs(
    monkeypatch, agent, name, values, expected):
  made = []
  monkeypatch.setattr(agent_assembly.networks, name,
                      lambda *args, **kwargs: made.append((args, kwargs)))
  config = config_lib.resolve(dict(
      values, agent=agent, level_name='pong', network='small', use_lstm=True,
      precision='bfloat16', channel_multiplier=2, subtract_background=True))
  facts = _facts(35)
  agent_assembly.construct_agent(config, facts)
  assert made == [((3, facts.observation_spec, 'small', True), dict(
      expected, precision='bfloat16', channel_multiplier=2,
      subtract_background=True))]


@pytest.mark.parametrize('agent, size, network', [
    ('impala', 35, 'shallow'), ('reactor', 35, 'small'),
    ('reactor', 36, 'reactor')])
def test_the_network_of_a_gymnasium_image_depends_on_the_agent(
    agent, size, network):
  values = dict(agent=agent, level_name='gym:Any-v0')
  if agent == 'reactor':
    values.update(v_min=-1., v_max=1.)
  config = config_lib.resolve(values)
  assert agent_assembly.choose_network(config, _facts(size)) == network
  agent_assembly.create_agent(config, _facts(size))
