"""Lays out what an actor job that has the policy sends to its learner."""

from scalable_agent import a3c
from scalable_agent import actor
from scalable_agent.unroll_messages import unroll_layouts


def unroll_layout(config, agent, facts, num_levels):
  """Returns the `wire.Layout` of unrolls; with A3C, of their gradients.

  Args:
    config: A `config.Config` of either end.
    agent: A `networks.Agent` or a `networks.ReactorAgent`.
    facts: Has `num_actions` and `observation_spec`, as an
      `environments.Pool`.
    num_levels: Levels that the learner knows.
  """
  output = actor.initial_output(1, facts.num_actions)
  if config.architecture == 'a3c':
    return unroll_layouts.gradient_layout(
        a3c.gradient_like(agent), output, config.unroll_length, num_levels)
  return unroll_layouts.unroll_layout(
      agent.initial_state(1), output, facts.observation_spec,
      config.unroll_length, num_levels)
