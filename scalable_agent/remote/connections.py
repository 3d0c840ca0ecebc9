"""Closes connections to a port of this process, for which gRPC has no call.

gRPC itself closes connections that never begin to speak, and those that make no
calls for long. It keeps those whose calls are refused, as long as they make
more.
"""

import contextlib
import ipaddress
import os
import socket
import time
import urllib.parse

_DESCRIPTORS = '/proc/self/fd'


class _Connection:
  """A connection, when it was found, and whether its peer is known."""

  def __init__(self, address, descriptor):
    self.address = address
    self.descriptor = descriptor
    self.since = time.monotonic()
    self.is_known = False


class Connections:
  """The connections to a port; for one thread.

  A connection is unknown until one of its calls was let in. A `peer` is gRPC's
  name of the other end of a connection.
  """

  def __init__(self, port, unknown_seconds, max_unknown):
    """Initializes the collection.

    Args:
      port: The port, an int.
      unknown_seconds: How long a connection may be unknown.
      max_unknown: How many connections may be unknown at a time.
    """
    self._port = port
    self._unknown_seconds = unknown_seconds
    self._max_unknown = max_unknown
    # Maps the name that /proc has for a socket, which no other has at the time,
    # to its `_Connection`; to None if the socket is something else.
    self._connections = {}
    # Peers that were named since the last `check`.
    self._let_in = set()
    self._refused = set()
    self._to_close = set()

  def __len__(self):
    """The number of connections at the last `check`."""
    return sum(c is not None for c in self._connections.values())

  def let_in(self, peer):
    """Notes that a call of a peer was let in."""
    self._let_in.add(peer)

  def refuse(self, peer):
    """Has `check` close a peer's connection if it is still unknown."""
    self._refused.add(peer)

  def close(self, peer):
    """Has `check` close a peer's connection."""
    self._to_close.add(peer)

  def check(self):
    """Closes what it was told to, and unknown ones too old or too many."""
    has_seen_all = self._look()
    let_in, refused, to_close = (
        set(map(_address_of_peer, peers))
        for peers in (self._let_in, self._refused, self._to_close))
    for peers in self._refused, self._to_close:
      peers.clear()
    if has_seen_all:
      self._let_in.clear()
    too_old = time.monotonic() - self._unknown_seconds
    unknown = []
    for name, connection in self._connections.items():
      if connection is None:
        continue
      address = connection.address
      connection.is_known = connection.is_known or address in let_in
      if address in to_close or not connection.is_known and (
          address in refused or connection.since < too_old):
        self._shut(name)
      elif not connection.is_known:
        unknown.append((connection.since, name))
    unknown.sort()
    for _, name in unknown[:max(len(unknown) - self._max_unknown, 0)]:
      self._shut(name)

  def _look(self):
    """Brings `_connections` up to date; returns whether all are in it."""
    found, has_seen_all = {}, True
    try:
      descriptors = os.listdir(_DESCRIPTORS)
    except OSError:  # No descriptor is left to read the directory with.
      return False
    for descriptor in descriptors:
      try:
        name = os.readlink(f'{_DESCRIPTORS}/{descriptor}')
      except OSError:  # It was closed meanwhile.
        continue
      if not name.startswith('socket:'):
        continue
      if name in self._connections:
        found[name] = self._connections[name]
        if found[name]:
          found[name].descriptor = int(descriptor)
      else:
        try:
          found[name] = self._examine(int(descriptor))
        except OSError:  # It was closed meanwhile, or none is left for a copy.
          has_seen_all = False
    self._connections = found
    return has_seen_all

  def _examine(self, descriptor):
    """Returns a `_Connection`; None if the socket is no connection to the port.
    """
    with _socket(descriptor) as s:
      if (s.family not in (socket.AF_INET, socket.AF_INET6) or
          s.type != socket.SOCK_STREAM or s.getsockname()[1] != self._port):
        return None
      try:
        peer = s.getpeername()
      except OSError:
        # The socket listens, or has just been closed.
        return None
      return _Connection(_address(*peer[:2]), descriptor)

  def _shut(self, name):
    """Ends a connection; gRPC then frees what belongs to it."""
    with contextlib.suppress(OSError):
      with _socket(self._connections[name].descriptor) as s:
        if f'socket:[{os.fstat(s.fileno()).st_ino}]' == name:
          s.shutdown(socket.SHUT_RDWR)


def _socket(descriptor):
  """Returns a `socket.socket` of a copy of a descriptor.

  gRPC may close the descriptor at any time, and the next to open a file would
  get its number.

  Raises:
    OSError: It has been closed, or is a file's by now.
  """
  copy = os.dup(descriptor)
  try:
    return socket.socket(fileno=copy)
  except OSError:
    os.close(copy)
    raise


def _address(host, port):
  """Returns an address as a pair of its number and its port."""
  ip = ipaddress.ip_address(host.partition('%')[0])
  return getattr(ip, 'ipv4_mapped', None) or ip, int(port)


def _address_of_peer(peer):
  """Returns the `_address` of a peer; None if it has none.

  Args:
    peer: As in 'ipv4:127.0.0.1:80' or 'ipv6:[::1]:80'.
  """
  host, _, port = urllib.parse.unquote(peer).partition(':')[2].rpartition(':')
  try:
    return _address(host.strip('[]'), port)
  except ValueError:
    return None
