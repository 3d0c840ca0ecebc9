"""Finds out which addresses a name stands for, and whether they are free.

Of the addresses of a name gRPC is content with one that is free, and of all
addresses with those of IPv4. Whoever has the others would get callers of this
process, and their token. So listening fails if one of them is taken.
"""

import errno
import socket

_LOOPBACK = ('127.0.0.1', '::1')
_ALL = ('0.0.0.0', '::')
_SEVERAL = {'localhost': _LOOPBACK, '0.0.0.0': _ALL, '::': _ALL}
# Of an address that is not one of this machine.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def numeric_addresses(address):
  """Returns the addresses to have gRPC listen on, a list.

  Args:
    address: 'host:port'.
  """
  host, _, port = address.rpartition(':')
  if host != 'localhost' or port == '0':
    return [address]
  return [f'[{number}]:{port}' if ':' in number else f'{number}:{port}'
          for number in _LOOPBACK if _is_free(number, '0')]


def check_free(address):
  """Looks whether an address can be listened on.

  Args:
    address: 'host:port'. Port 0 stands for one that is free.

  Raises:
    OSError: Another program has it, this user may not listen there, or it is
      not one of this machine; `strerror` says which.
  """
  host, _, port = address.rpartition(':')
  host = host.strip('[]')
  # Not a generator: all of them have to be free.
  if not any([_is_free(each, port) for each in _SEVERAL.get(host, [host])]):
    raise OSError(errno.EADDRNOTAVAIL, 'it is no address of this machine')


def _is_free(host, port):
  """Whether a host has addresses of this machine, all of which are free.

  Raises:
    OSError: One is taken, this user may not have it, or nobody knows the host.
  """
  is_here = False
  for family, kind, protocol, _, place in socket.getaddrinfo(
      host, port, type=socket.SOCK_STREAM):
    try:
      with socket.socket(family, kind, protocol) as s:
        # As gRPC does: connections that have just ended do not count.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
          s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind(place)
      is_here = True
    except OSError as e:
      if e.errno not in _NOT_HERE:
        raise
  return is_here
