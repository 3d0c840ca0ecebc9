"""A configuration's loss, and with A3C the gradient that workers compute."""

from scalable_agent import a3c
from scalable_agent.algorithms import impala
from scalable_agent.algorithms import reactor


def create_loss_fn(config, agent):
  """Returns the loss function of a `learner.Learner`.

  Args:
    config: A `config.Config`.
    agent: Of `agent.create_agent`.
  """
  if config.agent == 'reactor':
    return reactor.make_loss_fn(agent, reactor.LossSettings(
        discounting=config.discounting,
        reward_clipping=config.reward_clipping,
        entropy_cost=config.entropy_cost,
        lambda_=config.retrace_lambda,
        policy_gradient=config.policy_gradient,
        beta_loo_clip=config.beta_loo_clip))
  return impala.make_loss_fn(agent, impala.LossSettings(
      discounting=config.discounting,
      reward_clipping=config.reward_clipping,
      baseline_cost=config.baseline_cost,
      entropy_cost=config.entropy_cost,
      clip_rho_threshold=config.clip_rho_threshold or None,
      clip_pg_rho_threshold=config.clip_pg_rho_threshold or None,
      lambda_=config.vtrace_lambda,
      off_policy_correction=config.off_policy_correction,
      q_estimate=config.q_estimate,
      trust_region_threshold=config.trust_region_threshold or None,
      entropy_on_replay=config.entropy_on_replay))


def create_gradient_fn(config, agent, device, jit_compile):
  """Returns what workers of A3C share: see `a3c.make_gradient_fn`.

  Args:
    config: A `config.Config`.
    agent: A `networks.Agent`.
    device: Name of the device to run on.
    jit_compile: Whether XLA compiles loss and gradients.
  """
  return a3c.make_gradient_fn(
      create_loss_fn(config, agent), device, jit_compile)
