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
    A `networks.Agent` or a `networks.ReactorAgent`.

  Raises:
    config_lib.ConfigError: The network cannot be found, or does not fit the
      observations.
  """
  is_reactor = config.agent == 'reactor'
  network = config.network
  if network == 'auto':
    network = networks.choose_torso(tuple(facts.observation_spec[0].shape))
    if is_reactor and network == 'shallow':
      network = 'reactor'
  make, options = networks.Agent, {}
  if is_reactor:
    make = networks.ReactorAgent
    options = {name: getattr(config, name) for name in (
        'num_atoms', 'v_min', 'v_max', 'policy_uniform')}
  try:
    return make(facts.num_actions, facts.observation_spec, network,
                config.use_lstm, precision=config.precision,
                channel_multiplier=config.channel_multiplier, **options)
  except ValueError as e:
    raise config_lib.ConfigError(str(e)) from e
