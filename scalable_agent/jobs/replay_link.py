"""The link of a learner to the replay job that it shares with others."""

import contextlib
import os
import re
import secrets
import socket

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent.files import file_names
from scalable_agent.files import whole_file
from scalable_agent.jobs import addresses
from scalable_agent.process import errors
from scalable_agent.shared_replay import agent_link
from scalable_agent.shared_replay import drawn_episodes
from scalable_agent.shared_replay import drawn_unrolls
from scalable_agent.shared_replay import protocol

_AGENT = re.compile(rb'[0-9a-f]{32}')


def start(config):
  """Checks what can be checked before there is a run.

  Args:
    config: A `config.Config` of a process that trains.

  Returns:
    None if replay is not shared, or a function of the environments' facts that
    returns the learner's `DrawnUnrolls` or `DrawnEpisodes`.

  Raises:
    config_lib.ConfigError: The address or the security will not do.
  """
  if not config.replay_host:
    return None
  security = addresses.load_security(config)
  address = addresses.replay_address(config)
  name = f'{socket.gethostname()}:{os.path.abspath(config.logdir)}'

  def make_replay(facts):
    logging.info('Replay is shared with other agents, at %s', address)
    link = agent_link.AgentLink(
        address, protocol.agreement(config, facts),
        _choose_agent(config.logdir), name, config.num_new_unrolls,
        lambda num_levels: protocol.unroll_layout(config, facts, num_levels),
        security)
    if config.replay_state == 'stored':
      return drawn_unrolls.DrawnUnrolls(link)
    return drawn_episodes.DrawnEpisodes(link, config.unroll_length)

  return make_replay


def _choose_agent(logdir):
  """Returns the agent's name, which no other has, the same at every start.

  Raises:
    config_lib.ConfigError: It can neither be read nor written.
  """
  # The log directory belongs to this agent alone on any machine.
  path = os.path.join(logdir, file_names.REPLAY_AGENT)
  try:
    with contextlib.suppress(FileNotFoundError), open(path, 'rb') as f:
      found = _AGENT.match(f.read(1000))
      if found:
        return found[0].decode()
    agent = secrets.token_hex(16)
    whole_file.write(path, f'{agent}\n'.encode())
    return agent
  except OSError as e:
    raise config_lib.ConfigError(
        f'{path}, by which the replay job knows this agent again, cannot be '
        f'read or written: {errors.first_line(e)}. Remove what hinders it, or '
        'choose another --logdir.') from e
