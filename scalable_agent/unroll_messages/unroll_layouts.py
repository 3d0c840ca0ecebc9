"""Lays out messages of unrolls, and of unrolls with gradients."""

import numpy as np
import tree

from scalable_agent import frame_stacks
from scalable_agent.remote import wire
from scalable_agent.unroll_messages import specs
from scalable_agent.unroll_messages import stacked_layout
from scalable_agent.unroll_messages import unroll_message

_MAX_INT64 = 2**63 - 1
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def unroll_layout(agent_state, agent_output, observation_spec, unroll_length,
                  num_levels, finite=False):
  """Returns the `wire.Layout` of `UnrollMessage`s.

  Args:
    agent_state: A nest of arrays [1, ...], the core state of one environment.
    agent_output: An `AgentOutput` of arrays [1, ...].
    observation_spec: A tuple of `ArraySpec`.
    unroll_length: T, in agent steps.
    num_levels: Levels that the service knows.
    finite: Whether floats have to be finite. From actor jobs they need not be:
      the learner skips what it cannot learn from, as where actors are threads.
  """
  template, bounds = _unroll_template(
      agent_state, agent_output, observation_spec, unroll_length, num_levels)
  if len(observation_spec) == 1 and frame_stacks.is_stack(observation_spec[0]):
    return stacked_layout.StackedLayout(template, bounds, finite)
  return wire.Layout(template, bounds, finite)


def gradient_layout(gradient, agent_output, unroll_length, num_levels):
  """Returns the `wire.Layout` of `UnrollMessage`s with gradients.

  They have no observations and no core state, which their learner does without.

  Args:
    gradient: A `Gradient` of arrays.
    agent_output: As for `unroll_layout`.
    unroll_length: As for `unroll_layout`.
    num_levels: As for `unroll_layout`.
  """
  template, bounds = _unroll_template(
      (), agent_output, (), unroll_length, num_levels)
  template = template._replace(gradient=specs.repeat(gradient))
  # The learner skips by the norm, of which these are no part.
  bounds.update((name, (0., _MAX_FLOAT32)) for name, _ in wire.paths(template)
                if name.startswith('gradient.touched.'))
  return wire.Layout(template, bounds, finite=False)


def _unroll_template(agent_state, agent_output, observation_spec, unroll_length,
                     num_levels):
  """Returns an `UnrollMessage` of specs, and the bounds of its values."""
  one = lambda nest: tree.map_structure(lambda leaf: leaf[0], nest)
  num_actions = agent_output.policy_logits.shape[-1]
  template = unroll_message.UnrollMessage(
      session=specs.UINT64, sequence=specs.INT64, level=specs.INT32,
      policy_version=specs.INT64, stream=specs.INT64,
      agent_state=specs.repeat(one(agent_state)),
      env_outputs=specs.repeat(
          specs.step_output(observation_spec), unroll_length + 1),
      agent_outputs=specs.repeat(one(agent_output), unroll_length + 1))
  bounds = dict(
      specs.step_bounds('env_outputs', observation_spec), **{
          'sequence': (1, _MAX_INT64),
          'level': (0, num_levels - 1),
          'policy_version': (0, _MAX_INT64),
          'agent_outputs.action': (0, num_actions - 1)})
  return template, bounds
