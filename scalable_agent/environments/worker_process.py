"""Starts the worker processes of a `ProcessPool`, and exchanges messages."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from scalable_agent.environments import worker as worker_lib

_GRACE_SECONDS = 1.0
_PIPE_BYTES = 1 << 16
_TAIL_BYTES = 4096
_TAIL_LINES = 10


class WorkerProcess:
  """Starts a worker, and speaks to it without ever blocking.

  It has a directory for temporary files, which goes when it has ended: an
  emulator that is killed leaves its files behind.

  Attributes:
    ids: A range, the environments it holds.
    info: What it said about them, or None until it did.
    control: The socket to it, which never blocks.
    output: Reads what it prints, and never blocks.
  """

  def __init__(self, ids, memory_fd):
    self.ids = ids
    self.info = None
    self._tail = b''
    self.control, remote = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with remote, contextlib.ExitStack() as undo:
      undo.callback(self.control.close)
      self._directory = tempfile.mkdtemp(prefix='scalable_agent_environment_')
      undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
      # Its output is kept for its obituary; it is not wanted among the logs.
      self._process = subprocess.Popen(
          [sys.executable, '-u', '-m', worker_lib.__name__,
           str(remote.fileno()), str(memory_fd), self._directory],
          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
          stderr=subprocess.STDOUT, bufsize=0,
          env=dict(_worker_environ(), TMPDIR=self._directory),
          pass_fds=(remote.fileno(), memory_fd))
      undo.pop_all()
    self.output = self._process.stdout
    self.control.setblocking(False)
    os.set_blocking(self.output.fileno(), False)

  def send(self, message):
    """Returns whether the message is sent, or is lost on a dead worker."""
    try:
      self.control.send(message)
    except BlockingIOError:
      return False
    except OSError:
      pass  # `receive_into` will see it, after the worker's last words.
    return True

  def receive_into(self, buffer):
    """Returns the size of a message in bytes, 0 at the end, None for none."""
    while True:
      try:
        return self.control.recv_into(buffer)
      except BlockingIOError:
        return None
      except ConnectionResetError:
        continue  # Reported once, and ahead of what can still be read.

  def read_output(self):
    """Keeps the end of what was printed. Returns False when no more comes."""
    data = self.output.read(_PIPE_BYTES)
    if data:
      self._tail = (self._tail + data)[-_TAIL_BYTES:]
    return data != b''

  def describe_end(self):
    """Says how the process ended, given that its control channel did."""
    try:
      status = self._process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
      return 'closed its control channel'
    if status < 0:
      text = 'was killed by {}'.format(_signal_name(-status))
    else:
      text = 'exited with status {}'.format(status)
    return text + self.last_words()

  def last_words(self):
    """Returns the end of what was printed, to append, or ''."""
    self.read_output()
    lines = self._tail.decode(errors='replace').strip().splitlines()
    if not lines:
      return ''
    return '\n  '.join(['; it last printed', *lines[-_TAIL_LINES:]])

  def hang_up(self):
    """Asks the process to end, which it does on losing its control channel."""
    with contextlib.suppress(OSError):
      # A forked copy of this process would keep the channel open otherwise.
      self.control.shutdown(socket.SHUT_RDWR)
    self.control.close()
    self.output.close()

  def terminate(self):
    self._process.terminate()

  def kill(self):
    self._process.kill()

  def has_ended(self, deadline):
    """Waits until `deadline` of the monotonic clock; returns whether it did."""
    try:
      self._process.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
      return False
    shutil.rmtree(self._directory, ignore_errors=True)
    return True


def _worker_environ():
  path = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]
  environ = dict(
      os.environ, CUDA_VISIBLE_DEVICES='', PYTHONPATH=os.pathsep.join(path),
      PYTHONSAFEPATH='1')
  # Parallelism is between the processes.
  environ.setdefault('OMP_NUM_THREADS', '1')
  return environ


def _signal_name(number):
  try:
    return signal.Signals(number).name
  except ValueError:
    return 'signal {}'.format(number)
