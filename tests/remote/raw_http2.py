"""A client of a service that speaks as little HTTP/2 as it can.

It opens as many calls as one likes without a thread for any, and leaves them in
whatever state.
"""

import contextlib
import select
import socket
import struct

from scalable_agent.learner_service import protocol

_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0, 1, 3, 4
_PING, _GOAWAY, _WINDOW_UPDATE = 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_MAX_FRAME = 16384
_WINDOW = 1 << 30


def _frame(kind, flags, stream, payload=b''):
  return (struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) +
          struct.pack('>I', stream) + payload)


def _literal(name, value):
  """A header as it is, of up to 126 characters each."""
  name, value = name.encode(), value.encode()
  assert max(len(name), len(value)) < 127
  return b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value


class Connection:
  """A connection, on which calls can be opened.

  Attributes:
    answers: A dict of call to the bytes of answers that came.
    ended: A set of the calls that the other end has ended.
    is_open: Whether the connection was, when it was last looked at.
  """

  def __init__(self, port, metadata=(), host='127.0.0.1', reads=True):
    """Connects; unless it `reads`, it lets no answer come."""
    self._metadata = tuple(metadata)
    self.socket = socket.create_connection((host, port), timeout=30.)
    self.answers = {}
    self.ended = set()
    self.is_open = True
    self._received = b''
    self._next = 1
    # The settings say how much each call may be sent, an update how much all.
    settings = struct.pack('>HI', 4, _WINDOW if reads else 0)
    self._send(_PREFACE + _frame(_SETTINGS, 0, 0, settings) +
               _frame(_WINDOW_UPDATE, 0, 0, struct.pack('>I', _WINDOW)))

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    self.socket.close()

  @property
  def num_open(self):
    """How many of its calls the other end has not ended."""
    return (self._next - 1) // 2 - len(self.ended)

  def _send(self, data):
    try:
      self.socket.sendall(data)
    except OSError:
      self.is_open = False

  def open(self, method, metadata=()):
    """Opens a call that has sent nothing yet; returns its number."""
    call, self._next = self._next, self._next + 2
    headers = [(':method', 'POST'), (':scheme', 'http'),
               (':path', f'/{protocol.SERVICE}/{method}'),
               (':authority', 'learner'), ('te', 'trailers'),
               ('content-type', 'application/grpc'),
               *self._metadata, *metadata]
    self._send(_frame(_HEADERS, _END_HEADERS, call,
                      b''.join(_literal(*pair) for pair in headers)))
    return call

  def send(self, call, message, is_last=False, length=None):
    """Sends a message, or the first bytes of one of `length` bytes."""
    data = b'\0' + struct.pack(
        '>I', len(message) if length is None else length) + message
    starts = range(0, len(data), _MAX_FRAME)
    self._send(b''.join(
        _frame(_DATA, _END_STREAM if is_last and start == starts[-1] else 0,
               call, data[start:start + _MAX_FRAME]) for start in starts))

  def look(self, seconds=0.):
    """Takes in what has come, waiting for something for some time."""
    with contextlib.suppress(OSError):
      poll = select.poll()
      poll.register(self.socket, select.POLLIN)
      while self.is_open and poll.poll(1000 * seconds):
        seconds = 0.
        data = self.socket.recv(1 << 16)
        self.is_open = bool(data)
        self._received += data
        self._take_frames()
      return
    self.is_open = False

  def _take_frames(self):
    start = 0
    while len(self._received) >= start + 9:
      length = int.from_bytes(self._received[start:start + 3], 'big')
      if len(self._received) < start + 9 + length:
        break
      kind, flags = self._received[start + 3:start + 5]
      stream = int.from_bytes(self._received[start + 5:start + 9], 'big')
      payload = self._received[start + 9:start + 9 + length]
      start += 9 + length
      if kind == _SETTINGS and not flags & _ACK:
        self._send(_frame(_SETTINGS, _ACK, 0))
      elif kind == _PING and not flags & _ACK:
        self._send(_frame(_PING, _ACK, 0, payload))
      elif kind == _DATA:
        self.answers[stream] = self.answers.get(stream, b'') + payload
      if kind == _RST_STREAM or (
          kind in (_DATA, _HEADERS) and flags & _END_STREAM):
        self.ended.add(stream)
    self._received = self._received[start:]
