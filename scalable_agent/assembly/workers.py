"""A configuration's workers of A3C."""

from scalable_agent import a3c
from scalable_agent import policy as policy_lib
from scalable_agent.assembly import loss as loss_assembly


def create_workers(config, agent, devices, weights, version, seed):
  """Returns what makes workers, which share what is traced.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    devices: A `devices.Devices`; workers act and learn where the policy does.
    weights: A dict of name to tensor or array.
    version: The update they are from.
    seed: Of the actions.

  Returns:
    A function of the arguments `fetch` and `put_unroll` of an `a3c.Worker` that
    returns one.
  """
  policy = policy_lib.Policy(
      agent, weights, version, seed, devices.inference,
      devices.jit_compile)
  gradient_fn = a3c.make_gradient_fn(
      loss_assembly.create_loss_fn(config, agent), devices.inference,
      devices.jit_compile)
  return lambda fetch, put_unroll: a3c.Worker(
      policy.fork(), gradient_fn, fetch, put_unroll)
