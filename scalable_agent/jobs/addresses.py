"""Finds addresses and secrets of jobs in a configuration."""

from scalable_agent import config as config_lib
from scalable_agent.config import addresses as addresses_lib
from scalable_agent.remote import security as security_lib


def load_security(config):
  """Reads the token and certificates of a configuration.

  Raises:
    config_lib.ConfigError: They cannot be read, or do not fit together.
  """
  try:
    return security_lib.load(
        config.auth_token_file, config.tls_cert, config.tls_key, config.tls_ca)
  except security_lib.SecurityError as e:
    raise config_lib.ConfigError(f'{e}.') from e


def _split_all(flag, hosts):
  """Returns host and port of each of the `hosts` that a flag names."""
  return [addresses_lib.split(flag, address) for address in hosts]


def listen_address(config, security):
  """Returns 'host:port' where a learner is to listen, if it may.

  Args:
    config: A `config.Config` of a learner job.
    security: A `security.Security`.

  Raises:
    config_lib.ConfigError: The flags name no address, or protect it too little.
  """
  return _listen_address(
      'learner_hosts', config.learner_hosts, config.task, 'the learner',
      config, security)


def _listen_address(flag, hosts, index, who, config, security):
  host, port = _split_all(flag, hosts)[index]
  # Others may know this job by the name of a proxy or a service.
  if not security_lib.is_loopback(host):
    host = '::' if ':' in host else '0.0.0.0'
  address = addresses_lib.join(host, port)
  try:
    security_lib.check_exposure(
        address, security, config.insecure_network, who)
  except security_lib.SecurityError as e:
    raise config_lib.ConfigError(f'--{flag}={",".join(hosts)}: {e}.') from e
  return address


def learner_address(config):
  """Returns 'host:port' of an actor job's learner.

  Raises:
    config_lib.ConfigError: The flags name no address.
  """
  addresses = _split_all('learner_hosts', config.learner_hosts)
  return addresses_lib.join(*addresses[config.task % len(addresses)])


def replay_listen_address(config, security):
  """Returns 'host:port' where a replay job is to listen, if it may.

  Args:
    config: A `config.Config` of a replay job.
    security: A `security.Security`.

  Raises:
    config_lib.ConfigError: The flag is no address, or protects it too little.
  """
  return _listen_address(
      'replay_host', [config.replay_host], 0, 'the replay job', config,
      security)


def replay_address(config):
  """Returns 'host:port' of the replay job that a learner shares.

  Raises:
    config_lib.ConfigError: The flag is no address.
  """
  return addresses_lib.join(
      *addresses_lib.split('replay_host', config.replay_host))
