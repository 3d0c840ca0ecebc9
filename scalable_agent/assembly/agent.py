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
  """Makes the agent for what environments are like, and checks its weights.

  Args:
    config: A `config.Config`.
    facts: The environments' `suites.Facts`.

  Returns:
    An agent of `networks`.

  Raises:
    config_lib.ConfigError: The network cannot be found, does not fit the
      observations, or breaks the interface.
  """
  agent = construct_agent(config, facts)
  check_weights(config, agent)
  return agent


def construct_agent(config, facts):
  """As `create_agent`, but uses no device of TensorFlow's, and no weights."""
  make, options = networks.Agent, {}
  if config.agent == 'reactor':
    make = networks.ReactorAgent
    options = {name: getattr(config, name) for name in (
        'num_atoms', 'v_min', 'v_max', 'policy_uniform')}
  try:
    return make(
        facts.num_actions, facts.observation_spec,
        choose_network(config, facts), config.use_lstm,
        precision=config.precision,
        channel_multiplier=config.channel_multiplier,
        subtract_background=config.subtract_background, **options)
  except ValueError as e:
    raise config_lib.ConfigError(str(e)) from e


def check_weights(config, agent):
  """Makes weights, to see whether a user's torso can.

  Args:
    config: A `config.Config`.
    agent: Of `construct_agent`.

  Raises:
    config_lib.ConfigError: It breaks the interface.
  """
  try:
    agent.initial_params(config.seed)
  except ValueError as e:
    raise config_lib.ConfigError(str(e)) from e
