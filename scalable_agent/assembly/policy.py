"""A configuration's policy, for actors in the learner's process."""

from scalable_agent import dynamic_batching
from scalable_agent import policy as policy_lib
from scalable_agent.config import seeds


def create_policy(config, agent, devices, weights, version):
  """Makes the policy.

  Args:
    config: A `config.Config`.
    agent: An agent of `networks`.
    devices: A `devices.Devices`.
    weights: A dict of name to tensor.
    version: The update they are from.

  Returns:
    A `policy.Policy`.
  """
  return policy_lib.Policy(
      agent, weights, version,
      # A resumed run does not draw the same actions again, nor does another of
      # its learners.
      seed=seeds.derive(
          config.seed, seeds.ACTIONS, version, max(config.task, 0)),
      device=devices.inference, jit_compile=devices.jit_compile)


def batch_calls(config, policy):
  """Returns a function that batches calls of a policy: see `dynamic_batching`.

  Args:
    config: A `config.Config`.
    policy: A `policy.Policy`.
  """
  return dynamic_batching.batch_fn_with_options(
      config.inference_minimum_batch_size,
      config.inference_maximum_batch_size,
      config.inference_timeout_ms)(policy)
