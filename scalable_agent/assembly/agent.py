"""A configuration's agent."""

from scalable_agent import config as config_lib
from scalable_agent import networks


def choose_network(config, facts):
  """Returns the name of the torso that --network stands for.

  Args:
    config: A `config.Config`.
    facts: The environments' `suites.Facts`.
  """
  if config.network != 'auto':
    return config.network
  return networks.choose_torso(
      tuple(facts.observation_spec[0].shape),
      large='reactor' if config.agent == 'reactor' else 'shallow')


def create_agent(config, facts):
  """Makes the agent for what environments are like.

  Args:
    config: A `config.Config`.
    facts: The environments' `suites.Facts`.

  Returns:
    An agent of `networks`.

  Raises:
    config_lib.ConfigError: The network cannot be found, or does not fit the
      observations.
  """
  make, options = networks.Agent, {}
  if config.agent == 'reactor':
    make = networks.ReactorAgent
    options = {name: getattr(config, name) for name in (
        'num_atoms', 'v_min', 'v_max', 'policy_uniform')}
  try:
    agent = make(
        facts.num_actions, facts.observation_spec,
        choose_network(config, facts), config.use_lstm,
        precision=config.precision,
        channel_multiplier=config.channel_multiplier, **options)
    # Raises here, and not later, if a user's torso breaks the interface.
    agent.initial_params(config.seed)
    return agent
  except ValueError as e:
    raise config_lib.ConfigError(str(e)) from e
