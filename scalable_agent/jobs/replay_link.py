"""The link of a learner to the replay job that it shares with others."""

import os
import socket

from absl import logging

from scalable_agent.jobs import addresses
from scalable_agent.shared_replay import client as client_lib
from scalable_agent.shared_replay import protocol


def start(config):
  """Checks what can be checked before there is a run.

  Args:
    config: A `config.Config` of a process that trains.

  Returns:
    None if replay is not shared, or a function of the environments' facts that
    returns the `client.Client`.

  Raises:
    config_lib.ConfigError: The address or the security will not do.
  """
  if not config.replay_host:
    return None
  security = addresses.load_security(config)
  address = addresses.replay_address(config)
  # The log directory is this agent's alone, whatever process it is.
  name = f'{socket.gethostname()}:{os.path.abspath(config.logdir)}'

  def make_client(facts):
    logging.info('Replay is shared with other agents, at %s', address)
    return client_lib.Client(
        address, protocol.agreement(config, facts), name,
        config.num_new_unrolls,
        lambda num_levels: protocol.unroll_layout(config, facts, num_levels),
        security)

  return make_client
