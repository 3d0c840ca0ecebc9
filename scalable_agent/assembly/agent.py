"""A configuration's agent."""

from scalable_agent import config as config_lib
from scalable_agent import networks


def create_agent(config, facts):
  """Makes the agent for what environments are like.

  Args:
    config: A `config.Config`.
    facts: Has `num_actions` and `observation_spec`, as an
      `environments.Pool`.

  Returns:
    A `networks.Agent`.

  Raises:
    config_lib.ConfigError: The network cannot be found, or does not fit the
      observations.
  """
  network = config.network
  if network == 'auto':
    is_vector = len(facts.observation_spec[0].shape) == 1
    network = 'vector' if is_vector else 'shallow'
  try:
    return networks.Agent(facts.num_actions, facts.observation_spec, network,
                          config.use_lstm, config.precision)
  except ValueError as e:
    raise config_lib.ConfigError(str(e)) from e
