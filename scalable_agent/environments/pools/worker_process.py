"""Starts the worker processes of a `ProcessPool`, and exchanges messages."""

import collections
import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from scalable_agent.environments import PoolError
from scalable_agent.environments import python_environ
from scalable_agent.process import signals

_PROGRAM = 'scalable_agent.environments.pools.worker'
# How long a worker has to end when asked, and again after SIGTERM; and how long
# the system has to end one that was killed.
_GRACE_SECONDS = 1.0
_KILL_GRACE_SECONDS = 10.0
# Between two looks at whether a process has ended.
_SHORTEST_PAUSE_SECONDS = 0.0005
_LONGEST_PAUSE_SECONDS = 0.05
_PIPE_BYTES = 1 << 16
_TAIL_BYTES = 4096
_TAIL_LINES = 10
_CRASH = 'Fatal Python error'
# DeepMind Lab's engine begins with this to say why it aborts. The traceback
# that it prints next is longer than what is kept.
_REASON = 'Check failed'


class WorkerProcess:
  """Starts a worker, and speaks to it without ever blocking.

  It has a directory for temporary files, which goes when it has ended: an
  emulator that is killed leaves its files behind. What its environments start
  is in its process group, which ends with it.

  Attributes:
    ids: A range, the environments it holds.
    is_successor: Whether it makes these anew, after another one was lost.
    info: What it said about them, or None until it did.
    num_owed: How many answers it owes: one for being introduced, and one for
      each first output and each step of an environment.
    owes_since: When it last answered, or began to owe, in seconds of the
      monotonic clock.
    has_begun: Whether there have been first outputs of its environments.
    control: The socket to it, which never blocks.
    output: Reads what it prints, and never blocks.
  """

  def __init__(self, ids, memory_fd, niceness, is_successor):
    self.ids = ids
    self.is_successor = is_successor
    self.info = None
    self.num_owed = 0
    self.owes_since = None
    self.has_begun = False
    self._unsent = collections.deque()
    self._tail = b''
    self._reason = ''
    self.control, remote = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with remote, contextlib.ExitStack() as undo:
      undo.callback(self.control.close)
      self._directory = tempfile.mkdtemp(prefix='scalable_agent_environment_')
      undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
      # The end of its output is kept to say why it died, and is not logged.
      self._process = subprocess.Popen(
          [sys.executable, '-u', '-m', _PROGRAM, str(remote.fileno()),
           str(memory_fd), self._directory, python_environ.own()],
          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
          stderr=subprocess.STDOUT, bufsize=0,
          env=dict(_worker_environ(), TMPDIR=self._directory),
          pass_fds=(remote.fileno(), memory_fd))
      undo.pop_all()
    with contextlib.suppress(OSError):  # A priority that it may not have.
      os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)
    self.output = self._process.stdout
    self.control.setblocking(False)
    os.set_blocking(self.output.fileno(), False)

  def send(self, message):
    """Sends a message, or keeps it for `flush`, whose result it returns."""
    self._unsent.append(message)
    return self.flush()

  def flush(self):
    """Sends what there is room for; returns whether this was all there is."""
    while self._unsent and self._try_to_send(self._unsent[0]):
      self._unsent.popleft()
    return not self._unsent

  def _try_to_send(self, message):
    """Returns whether the message is sent, or is lost on a dead worker."""
    try:
      self.control.send(message)
    except BlockingIOError:
      return False
    except OSError as e:
      if e.errno == errno.EMSGSIZE:
        raise PoolError(
            f'{len(message)} bytes are too many to tell a process of its '
            f'{len(self.ids)} environments at once. Have more processes '
            '(--environment_threads).') from e
      # `receive_into` will see it, after the worker's last words.
    return True

  def owe(self, count):
    """Takes note that it has to answer for `count` more things."""
    if not self.num_owed:
      self.owes_since = time.monotonic()
    self.num_owed += count

  def answer(self, count):
    """Takes note that it answered for `count` things."""
    self.num_owed -= count
    self.owes_since = time.monotonic()

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
      self._tail += data
      for line in self._tail.splitlines():
        line = line.decode(errors='replace').strip()
        # What is left of a line whose beginning is no longer kept says less.
        if _REASON in line and not self._reason.endswith(line):
          self._reason = line[:_TAIL_BYTES]
      self._tail = self._tail[-_TAIL_BYTES:]
    return data != b''

  def describe_end(self):
    """Says how the process ended, given that its control channel did."""
    end = None
    with contextlib.suppress(ChildProcessError):
      end = self._wait(time.monotonic() + _GRACE_SECONDS)
    if end is None:
      return 'closed its control channel'
    if end.si_code == os.CLD_EXITED:
      text = f'exited with status {end.si_status}'
    else:
      text = f'was killed by {signals.name_of(end.si_status)}'
    return text + self.last_words()

  def last_words(self):
    """Returns the end of what was printed, to append, or ''."""
    self.read_output()
    lines = [line.strip() for line in
             self._tail.decode(errors='replace').splitlines() if line.strip()]
    if not lines:
      return ''
    crashes = [i for i, line in enumerate(lines) if line.startswith(_CRASH)]
    # Of a crash the first lines say where it was.
    first = crashes[-1] if crashes else max(0, len(lines) - _TAIL_LINES)
    lines = lines[first:first + _TAIL_LINES]
    if self._reason and self._reason not in lines:
      lines.insert(0, self._reason)
    return '; it last printed: ' + ' | '.join(lines)

  def hang_up(self):
    """Asks the process to end, which it does on losing its control channel."""
    with contextlib.suppress(OSError):
      # A forked copy of this process would keep the channel open otherwise.
      self.control.shutdown(socket.SHUT_RDWR)
    self.control.close()
    self.output.close()

  def end_now(self):
    """Kills the process, and waits for its end."""
    self.kill()
    self.has_ended(time.monotonic() + _KILL_GRACE_SECONDS)
    self.hang_up()

  def terminate(self):
    """Sends SIGTERM to the process and to what its environments started."""
    self._signal(signal.SIGTERM)

  def kill(self):
    """Sends SIGKILL to the process and to what its environments started."""
    self._signal(signal.SIGKILL)

  def has_ended(self, deadline):
    """Waits until `deadline` of the monotonic clock; returns whether it did."""
    if self._process.returncode is None:
      with contextlib.suppress(ChildProcessError):
        if self._wait(deadline) is None:
          return False
        self.kill()  # What its environments started.
      self._process.wait()
    shutil.rmtree(self._directory, ignore_errors=True)
    return True

  def _wait(self, deadline):
    """Waits for the end of the process, and leaves it to be reaped.

    Until it is, no other process and no other group can get its id.

    Args:
      deadline: In seconds of the monotonic clock.

    Returns:
      The result of `os.waitid`, or None if it goes on.

    Raises:
      ChildProcessError: It was reaped, as where SIGCHLD is ignored.
    """
    pause = _SHORTEST_PAUSE_SECONDS
    while True:
      end = os.waitid(os.P_PID, self._process.pid,
                      os.WEXITED | os.WNOHANG | os.WNOWAIT)
      left = deadline - time.monotonic()
      if end is not None or left <= 0:
        return end
      time.sleep(min(pause, left))
      pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

  def _signal(self, number):
    if self._process.returncode is not None:
      return  # Reaped: its id may be another's.
    try:
      os.killpg(self._process.pid, number)
    except ProcessLookupError:  # It is too young to have a group of its own.
      self._process.send_signal(number)
    except PermissionError:
      pass  # What is left of the group belongs to another user.


def end_all(workers):
  """Ends workers, as gently as they let it.

  Args:
    workers: A list of `WorkerProcess`.
  """
  for ask, grace in ((WorkerProcess.hang_up, _GRACE_SECONDS),
                     (WorkerProcess.terminate, _GRACE_SECONDS),
                     (WorkerProcess.kill, _KILL_GRACE_SECONDS)):
    for worker in workers:
      ask(worker)
    deadline = time.monotonic() + grace
    if all([worker.has_ended(deadline) for worker in workers]):
      return


def _worker_environ():
  environ = dict(python_environ.same_path(), CUDA_VISIBLE_DEVICES='')
  # Parallelism is between the processes. The second is of Mesa's software
  # renderer, which then draws in the thread that asks for it.
  environ.setdefault('OMP_NUM_THREADS', '1')
  environ.setdefault('LP_NUM_THREADS', '0')
  return environ
