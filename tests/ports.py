"""Ports for tests that listen."""

import contextlib
import socket


def free_ports(count):
  """Returns a list of `count` ports of this machine that nobody listens on."""
  with contextlib.ExitStack() as stack:
    # All are open until the last is found, so that none is found twice.
    servers = [stack.enter_context(socket.create_server(('127.0.0.1', 0)))
               for _ in range(count)]
    return [server.getsockname()[1] for server in servers]


def free_port():
  """Returns one of them."""
  (port,) = free_ports(1)
  return port
