"""Takes the addresses that settings name apart, and puts them together."""

import ipaddress
import re

from scalable_agent.config import settings

# Labels of up to 63 characters, as names on the network have them. Others
# Python cannot even look for.
_HOST = re.compile(
    r'[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*\.?')
_PORT = re.compile(r'[0-9]{1,5}')


def split(name, address):
  """Returns host and port of 'host:port' or '[v6 address]:port'.

  Args:
    name: Of the setting that names the address.
    address: A string.

  Raises:
    ConfigError: It is neither.
  """
  host, _, port = address.rpartition(':')
  bare = host
  if host.startswith('[') and host.endswith(']') and _is_v6(host[1:-1]):
    bare = host[1:-1]
  elif not _HOST.fullmatch(host):
    bare = ''
  if not bare or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
    raise settings.ConfigError(
        f'--{name}: {address!r} is no address, expected host:port with a port '
        'from 1 to 65535, and brackets around an IPv6 address.')
  return bare, int(port)


def join(host, port):
  """Inverse of `split`."""
  return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def _is_v6(host):
  try:
    return ipaddress.ip_address(host).version == 6
  except ValueError:
    return False
