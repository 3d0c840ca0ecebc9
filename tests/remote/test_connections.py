import contextlib
import errno
import os
import socket
import time

import pytest

from scalable_agent.files import open_files
from scalable_agent.remote import connections as connections_lib

pytestmark = pytest.mark.usefixtures('bounded')


class _Server:
  """Accepts connections."""

  def __init__(self, host='127.0.0.1', **options):
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    self._listener = socket.create_server(
        (host, 0), family=family, **options)
    self.port = self._listener.getsockname()[1]
    self._stack = contextlib.ExitStack()
    self._stack.enter_context(self._listener)

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self._stack.close()

  def connect(self, host='127.0.0.1'):
    """Returns the client's end, the server's end, and gRPC's name of it."""
    client = socket.create_connection((host, self.port), timeout=30.)
    server, _ = self._listener.accept()
    for end in client, server:
      self._stack.enter_context(end)
    host, port = client.getsockname()[:2]
    name = (f'ipv6:%5B{host}%5D:{port}' if ':' in host
            else f'ipv4:{host}:{port}')
    return client, server, name


def _is_open(client):
  client.setblocking(False)
  try:
    return client.recv(1) != b''
  except BlockingIOError:
    return True


@pytest.fixture
def server():
  with _Server() as server:
    yield server


def _connections(server, unknown_seconds=100., max_unknown=100):
  return connections_lib.Connections(
      server.port, unknown_seconds, max_unknown)


def test_who_stays_unknown_is_closed(server):
  connections = _connections(server, unknown_seconds=.05)
  known, unknown = server.connect(), server.connect()
  connections.let_in(known[2])
  connections.check()
  assert len(connections) == 2
  assert _is_open(known[0]) and _is_open(unknown[0])
  time.sleep(.06)
  late = server.connect()
  connections.check()
  assert _is_open(known[0]) and _is_open(late[0])
  assert not _is_open(unknown[0])
  # The server's end finds that, and may then close its descriptor.
  assert unknown[1].recv(1) == b''
  unknown[1].close()
  connections.let_in(late[2])
  connections.check()
  assert len(connections) == 2
  time.sleep(.06)
  connections.check()
  assert _is_open(known[0]) and _is_open(late[0])


@pytest.mark.parametrize('module, name', [
    (os, 'listdir'), (connections_lib, '_socket')])
def test_who_was_let_in_stays_known_if_descriptors_are_short(
    server, monkeypatch, module, name):
  connections = _connections(server, unknown_seconds=.05)
  known = server.connect()
  connections.let_in(known[2])

  def fail(*unused_args):
    raise OSError(errno.EMFILE, 'Too many open files')

  with monkeypatch.context() as patched:
    patched.setattr(module, name, fail)
    connections.check()
  connections.check()
  time.sleep(.06)
  connections.check()
  assert len(connections) == 1 and _is_open(known[0])


def test_who_was_refused_is_closed(server):
  connections = _connections(server)
  refused, other, known = (server.connect() for _ in range(3))
  connections.let_in(known[2])
  connections.check()
  for connection in refused, known:
    connections.refuse(connection[2])
  connections.check()
  assert not _is_open(refused[0])
  # Others may share the connection.
  assert _is_open(known[0]) and _is_open(other[0])


def test_of_too_many_unknown_the_oldest_are_closed(server):
  connections = _connections(server, max_unknown=2)
  known = server.connect()
  connections.let_in(known[2])
  unknown = []
  for _ in range(5):
    unknown.append(server.connect())
    connections._look()  # pylint: disable=protected-access
  connections.check()
  assert [_is_open(c[0]) for c in unknown] == [False] * 3 + [True] * 2
  assert _is_open(known[0])


def test_one_is_closed_by_name(server):
  connections = _connections(server)
  a, b = server.connect(), server.connect()
  for known in a, b:
    connections.let_in(known[2])
  connections.check()
  for name in a[2], 'ipv4:127.0.0.1:1', 'unix:/tmp/socket', '':
    connections.close(name)
  assert _is_open(a[0])
  connections.check()
  assert not _is_open(a[0]) and _is_open(b[0])


def test_other_sockets_are_left_alone(server):
  """Among them this process's own ends of connections to the port."""
  connections = _connections(server, unknown_seconds=0.)
  with _Server() as other:
    elsewhere = other.connect()
    pair = socket.socketpair()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(('127.0.0.1', server.port))
    datagrams.connect(('127.0.0.1', other.port))
    client, theirs, _ = server.connect()
    connections.check()
    time.sleep(.01)
    connections.check()
    assert not _is_open(client)
    assert _is_open(elsewhere[0]) and _is_open(elsewhere[1])
    assert _is_open(pair[0])
    assert len(connections) == 1
    for end in (*pair, datagrams):
      end.close()
    theirs.close()
    # The port is still listened on.
    assert _is_open(server.connect()[0])


def test_descriptors_that_change_hands_are_not_mistaken(server):
  """A number that a connection had may be another's at the next look."""
  connections = _connections(server, unknown_seconds=.05)
  client, theirs, _ = server.connect()
  connections.check()
  number = theirs.fileno()
  theirs.close()
  reused = server.connect()
  assert reused[0].fileno() == number or reused[1].fileno() == number
  time.sleep(.06)
  connections.let_in(reused[2])
  connections.check()
  assert _is_open(reused[0]) and not _is_open(client)
  time.sleep(.06)
  connections.check()
  assert _is_open(reused[0])


@pytest.mark.skipif(not socket.has_ipv6, reason='There is no IPv6.')
@pytest.mark.parametrize('host', ['::1', '127.0.0.1'])
def test_names_of_ipv6(host):
  with _Server('::', dualstack_ipv6=True) as server:
    connections = _connections(server, unknown_seconds=.02)
    known, unknown = server.connect(host), server.connect(host)
    connections.let_in(known[2])
    connections.check()
    time.sleep(.03)
    connections.check()
    assert _is_open(known[0]) and not _is_open(unknown[0])


def test_without_a_descriptor_to_look_with_nothing_is_closed(
    server, monkeypatch):
  connections = _connections(server, unknown_seconds=0.)
  client, _, _ = server.connect()
  def refuse(*unused_args):
    raise OSError(24, 'Too many open files')
  with monkeypatch.context() as patch:
    patch.setattr(connections_lib.os, 'listdir', refuse)
    connections.check()
  with monkeypatch.context() as patch:
    patch.setattr(connections_lib.os, 'dup', refuse)
    connections.check()
  assert _is_open(client)
  connections.check()
  time.sleep(.01)
  connections.check()
  assert not _is_open(client)


def test_a_number_that_has_become_a_files_leaves_no_copy(server):
  connections = _connections(server)
  with open(os.devnull) as file:
    before = open_files.count()
    with pytest.raises(OSError):
      connections._examine(file.fileno())
    connections._connections['socket:[1]'] = connections_lib._Connection(
        None, file.fileno())
    connections._shut('socket:[1]')
    assert open_files.count() == before
