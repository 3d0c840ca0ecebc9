"""A log that loses no line when it cannot be written for a while."""

import contextlib
import itertools
import os

from scalable_agent.files import log_lines
from scalable_agent.files import whole_file

METRICS = 'metrics.jsonl'
EPISODES, EVALUATIONS = 'episodes.csv', 'evaluations.csv'
_TAIL_BYTES = 1 << 16


class LogFile:
  """A text file of lines that grows at its end.

  Each `flush` opens the file anew, so that it notices a file or directory that
  is gone. The file is made by the first `flush` that follows `begin`, or that
  has lines to write. Lines are kept until the disk has them: a file system that
  buffers may say only afterwards that it had no room.
  """

  def __init__(self, path, header=''):
    """Initializes the file.

    Args:
      path: The file, which may be there already.
      header: A line with its end, for the beginning of an empty file.
    """
    self._path = path
    self._header = header
    self._size = 0
    with contextlib.suppress(FileNotFoundError):
      self._size = os.path.getsize(path)
    self._pending = []
    # Lines that are written, and how much of the file the disk had before.
    self._unsynced, self._synced_size = [], self._size

  def begin(self):
    """Has the next `flush` make the file, if it is not there or empty."""
    if not self._size and not self._pending:
      self._pending.append('')

  def add(self, line):
    """Takes a line, without its end, for the next `flush`."""
    self._pending.append(f'{line}\n')

  def flush(self, to_disk=False):
    """Writes what was added.

    Args:
      to_disk: Whether to wait until the disk has everything.

    Raises:
      OSError: It cannot be written now. The next call tries again.
    """
    if not self._pending and not (to_disk and self._size):
      return
    flags = os.O_WRONLY | (os.O_CREAT if self._pending else 0)
    try:
      descriptor = os.open(self._path, flags, 0o666)
    except FileNotFoundError:
      # A file that somebody has removed begins anew with the next lines, unless
      # its directory is gone too.
      if self._pending or not os.path.isdir(
          os.path.dirname(self._path) or '.'):
        raise
      return
    is_written = False
    try:
      try:
        if self._pending:
          self._append(descriptor)
        is_written = True
        if to_disk:
          os.fsync(descriptor)
      finally:
        os.close(descriptor)
    except OSError:
      if is_written:
        self._pending, self._unsynced = self._unsynced, []
        self._size = self._synced_size
      raise
    if to_disk:
      self._unsynced, self._synced_size = [], self._size

  def _append(self, descriptor):
    # Somebody may have removed or cut the file, so that it is shorter than what
    # was written. If it is longer, a write has failed half-way.
    found = os.fstat(descriptor).st_size
    if found < self._size:
      self._size, self._unsynced = found, []
    self._synced_size = min(self._synced_size, self._size)
    os.ftruncate(descriptor, self._size)
    header = '' if self._size else self._header
    data = (header + ''.join(self._pending)).encode()
    end = self._size
    try:
      while data:
        written = os.pwrite(descriptor, data, end)
        data, end = data[written:], end + written
    except OSError:
      os.ftruncate(descriptor, self._size)  # For those who read it meanwhile.
      raise
    self._size = end
    self._unsynced += self._pending
    self._pending = []


def keep_until(path, progress, progress_of_line, header_lines=0):
  """Drops the lines that a run wrote after the checkpoint it resumes from.

  Args:
    path: The file; it need not exist.
    progress: How far the checkpoint is: its environment frames, or a tuple that
      begins with them.
    progress_of_line: A function of a line, bytes, that returns the same of the
      line, or None if it is damaged; damaged lines are dropped too.
    header_lines: How many lines at the beginning are none of these.

  Raises:
    OSError: The file cannot be read or written; it stays as it was.
  """
  def is_kept(number, line):
    # A line without an end was being written when the run was killed.
    if not line.endswith(b'\n') or number < header_lines:
      return line.endswith(b'\n')
    found = progress_of_line(line)
    return found is not None and found <= progress

  try:
    beginning = open(path, 'rb')
  except FileNotFoundError:
    return
  # Line by line: a log may be larger than the memory.
  with beginning, open(path, 'rb') as log:
    lines = enumerate(log)
    num_whole = next((number for number, line in lines
                      if not is_kept(number, line)), None)
    if num_whole is not None:
      whole_file.write_lines(path, itertools.chain(
          itertools.islice(beginning, num_whole),
          (line for number, line in lines if is_kept(number, line))))


def last_frames(path, frames_of_line):
  """Returns the most environment frames in a log, 0 if it has no lines.

  Args:
    path: The file; it need not exist.
    frames_of_line: A function of a line, bytes, that returns its environment
      frames, or None if it is damaged.
  """
  try:
    with open(path, 'rb') as f:
      return max((frames_of_line(line) or 0 for line in f), default=0)
  except FileNotFoundError:
    return 0


def lines_backwards(path):
  """Yields the lines of a file without their ends, the last first.

  What follows the end of the last line, if only nothing, counts as a line.

  Raises:
    OSError: The file cannot be read.
  """
  with open(path, 'rb') as f:
    start, rest = f.seek(0, os.SEEK_END), b''
    while start:
      size = min(start, _TAIL_BYTES)
      start -= size
      f.seek(start)
      # The block may begin within a line.
      rest, *lines = (f.read(size) + rest).split(b'\n')
      yield from reversed(lines)
    yield rest


def whole_lines_backwards(path):
  """Yields the lines that have ended, the last first, as far as can be read."""
  with contextlib.suppress(OSError):
    yield from itertools.islice(lines_backwards(path), 1, None)


def has_lines(path):
  """Returns whether a log has more in it than the beginnings of one."""
  try:
    with open(path, 'rb') as f:
      lines = [f.readline(), f.readline()]
  except FileNotFoundError:
    return False
  header = f'{log_lines.EPISODE_HEADER}\n'.encode()
  return bool(lines[0]) and (lines[0] != header or bool(lines[1]))
